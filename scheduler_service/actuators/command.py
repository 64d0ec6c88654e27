"""The user's own command, with the desired count as JSON on standard input: what a cluster needs.

    {"pool": "m", "desired": 3, "ready": 2, "starting": 0, "reason": "...", "drained": []}

One run at a time per pool; while one runs, only the latest decision waits. A run has ended when the
command itself has, whatever it left behind in the background (an agent, say); what that says on
standard error is dropped. One that fails, or takes more than a minute, is reported, and what it was
to start is not awaited. One that takes too long, or runs when the scheduler stops, is stopped with
all that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from scheduler_service.core.commands import RequestScale

log = logging.getLogger(__name__)

TIME_LIMIT_S: Final = 60.0
STOP_GRACE_S: Final = 2.0  # from SIGTERM to SIGKILL
_WORDS: Final = 500  # characters of its last words that are told
_TAIL: Final = 2_000  # bytes of them that are kept
_CHUNK: Final = 65_536


class CommandActuator:
    """Runs the command."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        on_failed: Callable[[str, str], None],
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        """`argv`: program and arguments; `on_failed(pool, message)`."""
        self._argv = list(argv)
        self._on_failed = on_failed
        self._time_limit_s = time_limit_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, RequestScale] = {}
        self._listening: set[_Words] = set()  # to commands, and to what they left behind

    def scale(self, command: RequestScale) -> None:
        """Run it now, or when the present run of the pool has ended."""
        if command.pool in self._running:
            self._next[command.pool] = command
        else:
            self._running[command.pool] = asyncio.ensure_future(self._serve(command))

    async def _serve(self, command: RequestScale) -> None:
        pool = command.pool
        try:
            wanted: RequestScale | None = command
            while wanted is not None:
                fault = await self._run(wanted)
                if fault:
                    self._on_failed(pool, f"{self._argv[0]} {fault}")
                wanted = self._next.pop(pool, None)
        finally:
            del self._running[pool]

    async def _run(self, command: RequestScale) -> str:
        """What went wrong; empty: nothing."""
        try:
            words = _Words(self._listening)
            try:
                process = await self._start(words.inlet)
            finally:
                words.close_inlet()
        except (OSError, ValueError) as fault:
            return f"cannot be run: {fault}"
        try:
            async with asyncio.timeout(self._time_limit_s):
                await _tell(process, json.dumps(asdict(command)).encode())
                code = await process.wait()
        except TimeoutError:
            await _stop(process)
            return f"took more than {self._time_limit_s:g} s"
        except asyncio.CancelledError:
            await _stop(process)
            raise
        return f"ended with code {code}: {words.last()}" if code else ""

    async def _start(self, stderr: int) -> asyncio.subprocess.Process:
        """In a group of its own, so that all of it can be stopped, also if that comes right now."""
        start = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        )
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, ValueError):
                await _stop(await start)
            raise

    async def close(self) -> None:
        """Stop what runs."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for words in list(self._listening):
            words.close()


async def _tell(process: asyncio.subprocess.Process, message: bytes) -> None:
    """Write to its standard input, which it need not read and may have closed: uvloop has a
    RuntimeError for that.
    """
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
        process.stdin.write(message)
        await process.stdin.drain()
    process.stdin.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End it and all that it started: politely, then for good. One that is not ours to end, as
    `sudo` is not, is left.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_GRACE_S)


class _Words:
    """The last of what a command says on standard error, however much that is.

    A pipe of our own: the loop's would keep a command from having ended while anything that it left
    in the background holds the other end. It is read until nothing does: what writes to a pipe that
    nobody reads is killed.
    """

    def __init__(self, listening: set[_Words]) -> None:
        """`listening` holds it until the pipe is closed."""
        self._outlet, self.inlet = os.pipe()
        os.set_blocking(self._outlet, False)
        self._tail = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._outlet, self._read)
        self._listening = listening
        listening.add(self)

    def close_inlet(self) -> None:
        """Whoever is to write has it now."""
        os.close(self.inlet)

    def close(self) -> None:
        """Read no more. Idempotent."""
        if self in self._listening:
            self._listening.remove(self)
            self._loop.remove_reader(self._outlet)
            os.close(self._outlet)

    def _read(self) -> None:
        """Take what is there."""
        try:
            chunk = os.read(self._outlet, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
        self._tail += chunk
        del self._tail[:-_TAIL]

    def last(self) -> str:
        """In words for people."""
        if self in self._listening:
            self._read()  # a pipe holds no more than one chunk
        return self._tail.decode(errors="replace").strip()[-_WORDS:] or "no word"
