"""When does the next message of a session leave?

One writer per stream. It is self-clocking: what gathers while a write is awaited leaves in the next
message. Only when output comes faster than messages does it linger, up to `coalesce` since the last
write began; what is urgent (first output, results, credits, answers) never lingers. An idle writer
sends a heartbeat, which is an empty message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from node_agent.rpc.outbox import Outbox
from node_agent.rpc.settings import Timing

CHANGE = 0.1  # of the utilization: report at once
CHANGES_PER_REPORT = 10  # at most, within a report interval


class Writer:
    """Writes the outbox to a stream until it is cancelled or the stream breaks."""

    def __init__(
        self,
        outbox: Outbox,
        write: Callable[[bytes], Awaitable[None]],
        timing: Timing,
        utilization: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._write = write
        self._timing = timing
        self._utilization = utilization
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._written_at = 0.0  # when the last write began
        self._reported_at = self._loop.time()
        self._reported = 0.0  # utilization in the last report
        self._finishing = False
        self.messages = 0

    def wake(self) -> None:
        """There is something to write, or may be."""
        self._wake.set()

    def finish(self) -> None:
        """Write what is urgent, a Drain say, and be done: `run` returns then."""
        self._finishing = True
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled or told to finish. Raises what the stream raises."""
        try:
            while self._outbox.is_urgent or not self._finishing:
                wait_s = self._wait_s()
                if wait_s <= 0:
                    await self._write_one()
                    continue
                self._alarm = self._loop.call_later(wait_s, self._wake.set)
                await self._wake.wait()
                self._wake.clear()
                self._alarm.cancel()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    async def _write_one(self) -> None:
        now = self._loop.time()
        self._written_at = now
        message = self._outbox.next_message()
        if message.HasField("report"):
            self._reported_at = now
            self._reported = self._utilization()
        self.messages += 1
        await self._write(message.SerializeToString())

    def _wait_s(self) -> float:
        """How long the next message may wait; 0 or less: not at all."""
        now = self._loop.time()
        report_due = self._report_due()
        if report_due <= now:
            self._outbox.need_report()
        if self._outbox.is_urgent:
            return 0.0
        due = min(self._written_at + self._timing.heartbeat_s, report_due)
        if self._outbox.has_output:
            due = min(due, self._written_at + self._timing.coalesce_s)
        return due - now

    def _report_due(self) -> float:
        interval_s = self._timing.report_s
        if abs(self._utilization() - self._reported) > CHANGE:
            interval_s /= CHANGES_PER_REPORT
        return self._reported_at + interval_s
