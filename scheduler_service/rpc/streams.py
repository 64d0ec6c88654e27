"""How does output get onto a client's stream? One writer per stream, self-clocking.

Whatever gathers while a write is awaited leaves in the next message: nothing waits when idle, and
messages grow under load. A call of which more than `max_buffer` waits is cut off with
CLIENT_TOO_SLOW, and its neighbours go on. Parts of a message go in the protocol's order: accepted,
started, deltas, results; no call's result overtakes its text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from batchyard.v1 import scheduler_service_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.rpc.deltas import MAX_BYTES, MAX_ITEMS, Deltas

Write = Callable[[bytes], Awaitable[None]]


class MultiplexWriter:
    """Gathers what a Multiplex stream has to say, and writes it."""

    def __init__(self, max_buffer: int, max_unread: int) -> None:
        self.written = 0  # messages
        self._max_buffer = max_buffer
        self._max_unread = max_unread
        self._opened: scheduler_service_pb2.MultiplexOpened | None = None
        self._going_away = False
        self._max_outstanding = 0
        self._accepted: list[scheduler_service_pb2.Accepted] = []
        self._started: list[scheduler_service_pb2.Started] = []
        self._deltas = Deltas(max_buffer)
        self._results: list[tuple[int, bytes]] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closing = False

    def opened(self, message: scheduler_service_pb2.MultiplexOpened, max_outstanding: int) -> None:
        """Answer the stream's open."""
        self._opened = message
        self._max_outstanding = max_outstanding
        self._wake.set()

    def going_away(self) -> None:
        """Ask for a new stream for new calls."""
        self._going_away = True
        self._wake.set()

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Add one."""
        self._accepted.append(message)
        self._wake.set()

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Add one; what waits of an output that it voids is dropped."""
        if message.restarted:
            self._deltas.drop(message.call_id)
        self._started.append(message)
        self._wake.set()

    def delta(
        self,
        call_id: int,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> bool:
        """Add output; False: the reader is too slow for this call."""
        before = self._deltas.add(call_id, choice, channel, offset, text, tokens, token_ids)
        if not before:  # else the writer is awake, or looks again after its write
            self._wake.set()
        return before <= self._max_buffer

    def extra(self, extra: types_pb2.DeltaExtra) -> bool:
        """Add a rare row; False: the reader is too slow for this call."""
        before = self._deltas.add_extra(extra.id, extra)
        self._wake.set()
        return before <= self._max_buffer

    def result(self, call_id: int, result: bytes) -> None:
        """Add a call's end."""
        if not self._results:  # else the writer is awake, or looks again after its write
            self._wake.set()
        self._results.append((call_id, result))

    def drop(self, call_id: int) -> None:
        """Forget the output that waits for this call."""
        self._deltas.drop(call_id)

    def close(self) -> None:
        """Write what is there, then end."""
        self._closing = True
        self._wake.set()

    async def room(self) -> None:
        """Wait while the client leaves more ends of calls unread than it may have calls: it is
        then not read either, so that gRPC holds it up and memory stays bounded.
        """
        while len(self._results) > self._max_unread:
            self._room.clear()
            await self._room.wait()

    async def run(self, write: Write) -> None:
        """Write messages until closed and empty. `write` is awaited, one at a time."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending():
                await write(self._message())
                self.written += 1
            if self._closing:
                return

    def _pending(self) -> bool:
        return bool(
            self._results or self._deltas or self._accepted or self._started
            or self._opened or self._going_away
        )  # fmt: skip

    def _message(self) -> bytes:
        """The next message. What comes first in it has no limit but that of calls, and is small."""
        message = wire_pb2.PackedMultiplexResponse()
        if self._opened is not None:
            message.opened.CopyFrom(self._opened)
            message.max_outstanding = self._max_outstanding
            self._opened = None
        if self._going_away:
            message.going_away, self._going_away = True, False
        if self._accepted:
            message.accepted.extend(self._accepted)
            self._accepted.clear()
        if self._started:
            message.started.extend(self._started)
            self._started.clear()
        if self._deltas:
            self._deltas.take(message.deltas)
        if self._results:
            self._add_results(message)
        return message.SerializeToString()

    def _add_results(self, message: wire_pb2.PackedMultiplexResponse) -> None:
        """As many as fit, in order, but for those whose output still waits."""
        size = count = added = 0
        passed: list[tuple[int, bytes]] = []
        deltas, add = self._deltas, message.results.add
        speaks = bool(deltas)
        for call_id, result in self._results:
            size += len(result)
            if added == MAX_ITEMS or (size > MAX_BYTES and added):
                break
            count += 1
            if speaks and call_id in deltas:
                passed.append((call_id, result))
                continue
            added += 1
            item = add()
            item.call_id = call_id
            item.result = result
        self._results[:count] = passed
        self._room.set()


class SingleWriter:
    """Gathers what a GenerateStream has to say: one event per message, deltas merged."""

    streams = True

    def __init__(self, max_buffer: int, on_slow: Callable[[], None]) -> None:
        self.error: types_pb2.Error | None = None
        self.result: bytes = b""
        self._max_buffer = max_buffer
        self._on_slow = on_slow
        self.cut = False  # nobody reads the output any more
        self._events: list[scheduler_service_pb2.GenerateStreamResponse] = []
        self._deltas = Deltas(max_buffer)
        self._wake = asyncio.Event()
        self._finished = False
        self.messages = 0  # with output

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Add it."""
        self._events.append(scheduler_service_pb2.GenerateStreamResponse(accepted=message))
        self._wake.set()

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Add it, behind what came before it."""
        if message.restarted:
            self._deltas.drop(0)
        self._flush_deltas()
        self._events.append(scheduler_service_pb2.GenerateStreamResponse(started=message))
        self._wake.set()

    def delta(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """Add output."""
        if not self.cut:
            self._check(self._deltas.add(0, choice, channel, offset, text, tokens, token_ids))

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Add a rare row."""
        if not self.cut:
            row = types_pb2.DeltaExtra()
            row.CopyFrom(extra)
            row.id = 0
            self._check(self._deltas.add_extra(0, row))

    def _check(self, before: int) -> None:
        self._wake.set()
        if before > self._max_buffer:
            self.cut = True
            self._deltas.drop(0)
            self._on_slow()

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        """The end."""
        self.result, self.error = result, error
        self._finished = True
        self._wake.set()

    def _flush_deltas(self) -> None:
        while self._deltas:
            event = scheduler_service_pb2.GenerateStreamResponse()
            self._deltas.take(event.deltas, with_ids=False)
            self.messages += 1
            self._events.append(event)

    async def run(self, write: Write) -> None:
        """Write until the result is written."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._flush_deltas()
            events, self._events = self._events, []
            for event in events:
                await write(event.SerializeToString())
            if self._finished and not self._events and not self._deltas:
                last = scheduler_service_pb2.GenerateStreamResponse()
                last.result.MergeFromString(self.result)
                await write(last.SerializeToString())
                return
