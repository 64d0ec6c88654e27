"""A process like an agent: on its loop, with a gRPC stream that is busy, it starts 200 others.

Prints how many ended well, and how often the stream was answered meanwhile. Run by
`test_many_starts.py`.
"""

from __future__ import annotations

import service_kit.before_grpc  # noqa: F401 # first, for what it sets

# isort: split
import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc

from service_kit.event_loop import loop_factory

STARTS, AT_ONCE = 200, 4


class Echo(grpc.GenericRpcHandler):
    """Says back what it hears."""

    def service(self, _details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._echo)

    async def _echo(self, said: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for message in said:
            yield message


async def start_some(count: int) -> int:
    """Start so many, one after the other; how many ended as they should."""
    well = 0
    for _ in range(count):
        process = await asyncio.create_subprocess_exec(
            "true", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        await process.communicate()
        well += process.returncode == 0
    return well


async def talk(call: Any, over: asyncio.Event) -> int:
    """Keep the stream busy; how often it was answered."""
    answers = 0
    while not over.is_set():
        await call.write(b"ping")
        assert await call.read() == b"ping"
        answers += 1
    return answers


async def main() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.stream_stream("/a.B/C")()
        over = asyncio.Event()
        talking = asyncio.create_task(talk(call, over))
        well = await asyncio.gather(*(start_some(STARTS // AT_ONCE) for _ in range(AT_ONCE)))
        over.set()
        print(sum(well), await talking)
        await call.done_writing()
    await server.stop(None)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(asyncio.wait_for(main(), 100))
    sys.exit(0)
