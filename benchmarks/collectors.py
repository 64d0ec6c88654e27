"""Collectors of spans to measure against: one that answers at once, one that never does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[str]:
    """Takes every export and throws it away; its endpoint."""
    async with _served(_take) as endpoint:
        yield endpoint


@contextlib.asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """Takes connections and what is sent, and never answers; its endpoint."""
    async with _served(_swallow) as endpoint:
        yield endpoint


async def _take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        await reader.readexactly(length)
        writer.write(_ANSWER)
        await writer.drain()


async def _swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del writer
    while await reader.read(65536):
        pass


@contextlib.asynccontextmanager
async def _served(handle: Handle) -> AsyncIterator[str]:
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await handle(reader, writer)
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
