"""How does the agent start, reach and end the child that runs llama.cpp? One object per child.

The child is exec'd, never forked from a copy of the agent, so it is safe beside gRPC's threads.
It has a session of its own: Ctrl-C in the agent's terminal must not end it before the drain. It
ends by itself when its standard input closes, so it cannot outlive the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque

from node_agent.engines.llamacpp_child import ChildReady, ChildSettings

CHILD_MODULE = "node_agent.engines.llamacpp_child"
_CLOSE_S = 2.0  # from closing its input to SIGKILL
_LOG_LINES = 20
_LINE_LIMIT = 1 << 16


class ChildFailed(Exception):
    """The child did not come up; the text says what it said last."""


class ChildProcess:
    """One running child, from its first answer on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._reader = asyncio.create_task(self._read_log())
        self.address = ""
        self.version = ""

    @classmethod
    async def start(cls, settings: ChildSettings, timeout_s: float) -> ChildProcess:
        """Start a child and wait for its address.

        Raises:
            ChildFailed: it ended, or said nothing in time.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            CHILD_MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LINE_LIMIT,
        )
        child = cls(process)
        try:
            async with asyncio.timeout(timeout_s):
                await child._greet(settings)
        except (TimeoutError, OSError, ValueError) as error:
            child.kill()
            await child.wait()
            why = "said nothing in time" if isinstance(error, TimeoutError) else "ended"
            raise ChildFailed(f"llama.cpp's process {why}{child.last_words()}") from error
        except BaseException:  # cancelled: leave no process behind
            child.kill()
            await child.wait()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Its exit status, negative for a signal; None: it runs."""
        return self._process.returncode

    def last_words(self) -> str:
        """Return ": " and the last line that it logged, or nothing."""
        return f": {self._log[-1]}" if self._log else ""

    async def wait(self) -> None:
        """Return when it has ended and its log is read."""
        await self._process.wait()
        await self._reader

    def kill(self) -> None:
        """End it by force, now; a stopped one too."""
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Let it end; by force after 2 s."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.shield(self._process.wait())
        except TimeoutError:
            self.kill()
        await self.wait()

    async def _greet(self, settings: ChildSettings) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(settings).encode() + b"\n")
        await stdin.drain()
        ready: ChildReady = json.loads(await stdout.readline())
        self.address, self.version = ready["address"], ready["version"]

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_LINE_LIMIT):
            lines = chunk.decode("utf-8", "replace").splitlines()
            self._log.extend(line.strip() for line in lines if line.strip())


def new_api_key() -> str:
    """Return a key for one child: other users of this host must not use its port."""
    return os.urandom(16).hex()
