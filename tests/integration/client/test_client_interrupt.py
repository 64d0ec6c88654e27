"""Ctrl-C in a real process cancels on the server before the process ends."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from tests.integration.client.scripted_scheduler import ScriptedScheduler

SYNC_GENERATE = """
from batchyard import Client
Client({address!r}, detach_grace="1h").generate("p")
"""

SYNC_STREAM = """
from batchyard import Client
with Client({address!r}, detach_grace="1h") as client:
    for event in client.stream("p"):
        print(event.text)
"""

SYNC_STREAM_BODY = """
import threading
from batchyard import Client
client = Client({address!r}, detach_grace="1h")
for event in client.stream("p"):
    print(event.text, flush=True)
    threading.Event().wait()
"""

ASYNC_GENERATE = """
import asyncio
from batchyard import AsyncClient
async def main():
    async with AsyncClient({address!r}, detach_grace="1h") as client:
        await client.generate("p")
asyncio.run(main())
"""

ASYNC_STREAM = """
import asyncio
from batchyard import AsyncClient
async def main():
    async with AsyncClient({address!r}, detach_grace="1h") as client:
        async for event in client.stream("p"):
            pass
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "script", [SYNC_GENERATE, SYNC_STREAM, SYNC_STREAM_BODY, ASYNC_GENERATE, ASYNC_STREAM]
)
async def test_ctrl_c_cancels_on_the_server(scheduler: ScriptedScheduler, script: str) -> None:
    """Behaviour 38: at once, although the call had asked to survive its connection."""
    scheduler.on_call = lambda stream, call: stream.delta(call, 0, "one")
    code = script.format(address=scheduler.address)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await scheduler.until(lambda: scheduler.calls)
    if "flush" in script:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"one\n"
    process.send_signal(signal.SIGINT)
    (stream,) = scheduler.streams
    await scheduler.until(lambda: stream.cancelled == [stream.calls[0].call_id])
    _, stderr = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode != 0
    assert stderr.decode().rstrip().endswith("KeyboardInterrupt")


async def test_killed_client_ends_its_stream(scheduler: ScriptedScheduler) -> None:
    """Behaviour 38: the server sees the disconnect; the default grace is below its second."""
    scheduler.on_call = lambda *_: None
    code = f"from batchyard import Client; Client({scheduler.address!r}).generate('p')"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await scheduler.until(lambda: scheduler.calls)
    process.kill()
    await process.wait()
    await scheduler.until(lambda: scheduler.streams[0].ended)
    grace = scheduler.calls[0].detach_grace
    assert grace.seconds + grace.nanos / 1e9 < 1
