"""Load for the echo server: the traffic of a measure without its work."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc

from benchmarks import echo_server
from benchmarks.loads import closed_loop
from benchmarks.processes import Child

PACKED = 64


@contextlib.asynccontextmanager
async def channel(process: Child) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a child's client port."""
    async with grpc.aio.insecure_channel(process.addresses["client"]) as opened:
        yield opened


async def echo_unary(opened: grpc.aio.Channel, body: bytes, *, width: int, seconds: float) -> int:
    """So many unary calls at a time; returns their number."""
    method: Any = opened.unary_unary(echo_server.UNARY)
    return await closed_loop(lambda: method(body), width=width, seconds=seconds)


async def echo_messages(
    opened: grpc.aio.Channel, message: bytes, *, width: int, seconds: float
) -> int:
    """One bidirectional stream, so many messages at a time; returns their number."""
    call: Any = opened.stream_stream(echo_server.BIDI)()
    room = asyncio.Semaphore(width)
    end = time.perf_counter() + seconds

    async def write() -> None:
        while time.perf_counter() < end:
            await room.acquire()
            await call.write(message)
        await call.done_writing()

    writer = asyncio.create_task(write())
    count = 0
    async for _ in call:
        count += 1
        room.release()
    await writer
    return count


async def echo_streams(
    opened: grpc.aio.Channel, message: bytes, *, streams: int, count: int
) -> int:
    """Read `count` messages from each of so many server streams; returns their number."""
    method: Any = opened.unary_stream(echo_server.STREAM)
    body = count.to_bytes(echo_server.COUNT_BYTES, "big") + message

    async def one() -> int:
        read = 0
        async for _ in method(body):
            read += 1
        return read

    return sum(await asyncio.gather(*(one() for _ in range(streams))))


class PackedEcho:
    """Single requests over one stream, gathered while a write is awaited: as the client does it."""

    def __init__(self, opened: grpc.aio.Channel, body: bytes) -> None:
        self._call: Any = opened.stream_stream(echo_server.BIDI)()
        self._body = body
        self._backlog: list[asyncio.Future[None]] = []
        self._sent: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks = [self._loop.create_task(self._write()), self._loop.create_task(self._read())]

    def send(self) -> asyncio.Future[None]:
        """One request; done when its bytes are back."""
        answer = self._loop.create_future()
        self._backlog.append(answer)
        self._wake.set()
        return answer

    async def close(self) -> None:
        """End the stream."""
        self._tasks[0].cancel()
        await self._call.done_writing()
        await asyncio.wait(self._tasks)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._backlog:
                taken, self._backlog = self._backlog[:PACKED], self._backlog[PACKED:]
                self._sent.extend(taken)
                await self._call.write(self._body * len(taken))

    async def _read(self) -> None:
        async for message in self._call:
            for _ in range(len(message) // len(self._body)):
                self._sent.popleft().set_result(None)
