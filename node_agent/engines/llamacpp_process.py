"""How does the agent start the child that runs llama.cpp?

The child is exec'd, never forked from a copy of the agent, so it is safe beside gRPC's threads. It
ends by itself when its standard input closes, so it cannot outlive the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from node_agent.engines.child_process import CHUNK, ChildProcess
from node_agent.engines.llamacpp_child import ChildReady, ChildSettings

CHILD_MODULE = "node_agent.engines.llamacpp_child"
PATIENCE_S = 2.0  # from closing its input to SIGKILL


class ChildFailed(Exception):
    """The child did not come up; the text says what it said last."""


class LlamacppProcess(ChildProcess):
    """One running child, from its first answer on."""

    address = ""
    version = ""

    @classmethod
    async def start(cls, settings: ChildSettings, timeout_s: float) -> LlamacppProcess:
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
            limit=CHUNK,
        )
        child = cls(process, process.stderr, patience_s=PATIENCE_S)
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

    async def _greet(self, settings: ChildSettings) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        await self.send(json.dumps(settings).encode() + b"\n")
        ready: ChildReady = json.loads(await stdout.readline())
        self.address, self.version = ready["address"], ready["version"]


def new_api_key() -> str:
    """Return a key for one child: other users of this host must not use its port."""
    return os.urandom(16).hex()
