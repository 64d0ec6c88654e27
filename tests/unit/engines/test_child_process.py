"""What engines with a process of their own share: its pipe, its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from node_agent.engines.child_process import ChildProcess
from service_kit.event_loop import loop_factory


@pytest.mark.parametrize("loop", [None, loop_factory()], ids=["asyncio", "the agent's"])
def test_what_is_sent_to_a_process_that_has_ended_fails_as_its_pipe_does(
    loop: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    """On either loop: uvloop raises a RuntimeError where asyncio would say nothing."""

    async def scene() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()",
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        child = ChildProcess(process, process.stderr, patience_s=1.0)
        child.kill()
        await child.wait()
        for _ in range(3):
            with pytest.raises(OSError):
                await child.send(b"x" * 100_000)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scene())


async def test_process_that_floods_its_log_is_read_to_its_last_words() -> None:
    """Only the last lines of a chunk are looked at: the agent has other work as well."""
    program = "print('x\\n' * 3_000_000 + '\\nout of memory', flush=True)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program,
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    child = ChildProcess(process, process.stdout, patience_s=1.0)
    async with asyncio.timeout(30):
        await child.process.wait()
        await child.wait()
    assert child.how_it_ended() == "ended (0): out of memory"
