"""How does the agent start and end a server that is not its own? Through `child_guard.py`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from node_agent.engines.child_process import ChildProcess

GUARD_MODULE = "node_agent.engines.child_guard"
PATIENCE_S = 10.0  # for the guard to end the server, polite wait included


class GuardedProcess(ChildProcess):
    """One running server; its `pid` is the guard's, of which the server is a child."""

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
        return cls(process, process.stdout, patience_s=PATIENCE_S)

    @property
    def exit_status(self) -> int | None:
        """Of the server, which the guard passes on; negative for a signal. None: it runs."""
        status = self.process.returncode
        return 128 - status if status is not None and status > 128 else status

    def kill(self) -> None:
        """End the server by force; its guard follows."""
        stdin = self.process.stdin
        if self.process.returncode is None and stdin is not None and not stdin.is_closing():
            stdin.write(b"kill\n")


def free_port() -> int:
    """Return a port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
