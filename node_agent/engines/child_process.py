"""How is a child of an engine watched and ended? What its kinds have in common; they start it.

A child has a session of its own: Ctrl-C in the agent's terminal must not end it before the drain.
What it logs is tailed: each line goes to the agent's log (level debug), and the last ones are kept,
for they say why it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque

log = logging.getLogger("node_agent.engine.child")

CHUNK = 1 << 16
_LOG_LINES = 20
_KEPT_BYTES = 1 << 13  # of a chunk of which only the last lines are wanted
_FLOOD_S = 0.01  # between two full chunks
_LOG_S = 1.0  # for its last words, where others hold its output open


class ChildProcess:
    """One running child. `output` is what it logs; `patience_s`, its time to end when asked to."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: asyncio.StreamReader | None,
        *,
        patience_s: float,
    ) -> None:
        assert output is not None
        self.process = process
        self._output = output
        self._patience_s = patience_s
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._reader = asyncio.create_task(self._read_log())

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self.process.pid

    @property
    def exit_status(self) -> int | None:
        """Its exit status, negative for a signal; None: it runs."""
        return self.process.returncode

    def last_words(self) -> str:
        """Return ": " and the last line that it logged, or nothing."""
        return f": {self._log[-1]}" if self._log else ""

    def how_it_ended(self) -> str:
        """Say how, with its last words."""
        status = self.exit_status or 0
        how = f"was killed by signal {-status}" if status < 0 else f"ended ({status})"
        return f"{how}{self.last_words()}"

    async def send(self, data: bytes) -> None:
        """Write to its standard input.

        Raises:
            OSError: it has ended, or closed its input.
        """
        stdin = self.process.stdin
        assert stdin is not None
        if stdin.is_closing():  # as it ended; uvloop's write would raise a RuntimeError
            raise BrokenPipeError("its input is closed")
        stdin.write(data)
        await stdin.drain()

    async def exited(self) -> None:
        """Return as soon as it has ended, also where what it started holds its output open, for
        which `wait` would wait.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # no Linux, or an old one
            await self.process.wait()
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    async def wait(self) -> None:
        """Return when it has ended and its log is read."""
        await self.process.wait()
        _, unread = await asyncio.wait((self._reader,), timeout=_LOG_S)
        for reader in unread:
            reader.cancel()

    def kill(self) -> None:
        """End it by force, now; a stopped one too."""
        if self.process.returncode is None:
            self.process.kill()

    def kill_session(self) -> None:
        """End it by force with all that it started, of which some may outlive it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Let it end: its standard input closes. By force when its time is up."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(self._patience_s):
                await self.process.wait()
        except TimeoutError:
            if self.process.returncode is None:
                self.process.kill()
        await self.wait()

    async def _read_log(self) -> None:
        while chunk := await self._output.read(CHUNK):
            if len(chunk) == CHUNK:
                await asyncio.sleep(_FLOOD_S)  # it floods: the agent has other work as well
            if not log.isEnabledFor(logging.DEBUG):
                chunk = chunk[-_KEPT_BYTES:]
            for line in chunk.decode("utf-8", "replace").splitlines():
                text = line.strip()
                if text:
                    self._log.append(text[:500])
                    log.debug("%s", text[:2000], extra={"event": "engine_log"})
