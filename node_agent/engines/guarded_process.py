"""How does the agent start, watch and end a server that is not its own? Through `child_guard.py`.

What the server writes is tailed: each line goes to the agent's log (level debug), and the last ones
are kept, for they say why it died.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger("node_agent.engine.child")

GUARD_MODULE = "node_agent.engines.child_guard"
PATIENCE_S = 10.0  # for the guard to end the server, polite wait included
_LOG_LINES = 20
_CHUNK = 1 << 16


class GuardedProcess:
    """One running server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._reader = asyncio.create_task(self._read_log())

    @classmethod
    async def start(cls, command: Sequence[str], folder: Path | None) -> GuardedProcess:
        """Start a server; it is not there yet, and may never be."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            GUARD_MODULE,
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Of the guard; the server is its child."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Of the server; above 128: ended by that signal less 128. None: it runs."""
        return self._process.returncode

    def last_words(self) -> str:
        """Return ": " and the last line that it wrote, or nothing."""
        return f": {self._log[-1]}" if self._log else ""

    def obituary(self) -> str:
        """Say how it ended."""
        status = self.exit_status or 0
        how = f"was killed by signal {status - 128}" if status > 128 else f"ended ({status})"
        return f"the server's process {how}{self.last_words()}"

    async def wait(self) -> None:
        """Return when it has ended and its output is read."""
        await self._process.wait()
        await self._reader

    def kill(self) -> None:
        """End the server by force."""
        stdin = self._process.stdin
        if self._process.returncode is None and stdin is not None and not stdin.is_closing():
            stdin.write(b"kill\n")

    async def close(self) -> None:
        """Let it end, politely first."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(self._process.wait())
        except TimeoutError:
            self._process.kill()
        await self.wait()

    async def _read_log(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_CHUNK):
            for line in chunk.decode("utf-8", "replace").splitlines():
                text = line.strip()
                if text:
                    self._log.append(text[:500])
                    log.debug("%s", text[:2000], extra={"event": "engine_log"})


def free_port() -> int:
    """Return a port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
