"""A TCP proxy whose connections can be cut, left without a word, and slowed.

It stands between an agent, or a client, and the scheduler, and outlives both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Link:
    """While `up` is clear, nothing passes and no connection is closed: a black hole.

    `delay_s`: each piece of up to 64 KiB is held so long, both ways.
    """

    def __init__(self, target: str) -> None:
        self.host, _, port = target.rpartition(":")
        self.port = int(port)
        self.up = asyncio.Event()
        self.up.set()
        self.delay_s = 0.0
        self.address = ""
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> int:
        """Reset every connection; new ones may come at once. Returns how many there were."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.host, self.port)
        except OSError:  # the scheduler is away: so is the link
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                while data := await source.read(65536):
                    await self.up.wait()
                    if self.delay_s:
                        await asyncio.sleep(self.delay_s)
                    sink.write(data)
                    await sink.drain()
                await self.up.wait()
            finally:
                self._writers.discard(sink)
                sink.close()
                await sink.wait_closed()

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, target: str) -> AsyncIterator[Link]:
        """Serve on a free port of loopback until the block ends."""
        link = cls(target)
        server = await asyncio.start_server(link._serve, "127.0.0.1", 0)
        link.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield link
        finally:
            server.close()
            pumps = list(link._pumps)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
