"""One process of the tree: started, read, asked to stop, and killed if it does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from batchyard.cli.dev import leash

LOG_LINES_KEPT = 200
_CHUNK_BYTES = 65_536

# Receives the child's name and a line of its output.
LogSink = Callable[[str, str], None]


class Child:
    """A running `python -m MODULE`, with its last log lines and its `ready` event."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, on_line: LogSink) -> None:
        self.name = name
        self.process = process
        self.log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._on_line = on_line
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._readers = [
            asyncio.create_task(self._read(process.stdout, events=True)),
            asyncio.create_task(self._read(process.stderr, events=False)),
        ]
        self.exited = asyncio.create_task(self._wait())

    @classmethod
    async def start(
        cls, name: str, module: str, arguments: Sequence[str], *, on_line: LogSink
    ) -> Child:
        """Start the module with this interpreter, in a session of its own, on a leash."""
        process = await asyncio.create_subprocess_exec(
            *leash.command(module, list(arguments)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        return cls(name, process, on_line)

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def ready(self, timeout_s: float) -> dict[str, Any] | None:
        """Its `ready` event; None when it ended or stayed silent instead."""
        waits: set[asyncio.Future[Any]] = {self._ready, self.exited}
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return self._ready.result() if self._ready.done() else None

    async def stop(self, grace_s: float) -> bool:
        """SIGTERM, then SIGKILL after the grace; whether it ended without the latter."""
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self.exited}, timeout=grace_s)
        if not done:
            self.kill()
            await self.exited
        return self.process.returncode != -signal.SIGKILL

    def kill(self) -> None:
        """SIGKILL now."""
        self._signal(signal.SIGKILL)

    def end_text(self) -> str:
        """How it ended, for people."""
        code = self.process.returncode
        if code is None:
            return "is running"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def _wait(self) -> int:
        code = await self.process.wait()
        # A grandchild may hold the pipes open; what the child itself wrote is read by then.
        await asyncio.wait(self._readers, timeout=1.0)
        for reader in self._readers:
            reader.cancel()
        return code

    async def _read(self, stream: asyncio.StreamReader | None, *, events: bool) -> None:
        assert stream is not None
        async for line in _lines(stream):
            event = _event(line) if events else None
            if event is not None and event.get("event") == "ready":
                if not self._ready.done():
                    self._ready.set_result(event)
                continue
            self.log.append(line)
            self._on_line(self.name, line)


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    with contextlib.suppress(json.JSONDecodeError):
        document = json.loads(line)
        return document if isinstance(document, dict) else None
    return None


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of any length; one without an end is passed on in pieces."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _CHUNK_BYTES:
            whole.append(rest)
            rest = b""
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")
