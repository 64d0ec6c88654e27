"""A TCP proxy whose connections can be cut, left without a word, slowed, split and falsified.

It stands between an agent, or a client, and the scheduler, or between an agent and a real engine,
and outlives both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

_DOCUMENT = 4096  # bytes in one read: no event of a stream


class Link:
    """While `up` is clear, nothing passes and no connection is closed: a black hole.

    `delay_s`: each piece of up to 64 KiB is held so long, both ways.
    `split`: answers that are small, as the events of a stream, come byte by byte.
    `false_words`: bytes of answers, and what is put in their place: of the same length, for lengths
    are told before. `falsified` counts them.
    """

    def __init__(self, target: str) -> None:
        self.host, _, port = target.rpartition(":")
        self.port = int(port)
        self.up = asyncio.Event()
        self.up.set()
        self.delay_s = 0.0
        self.split = False
        self.false_words: dict[bytes, bytes] = {}
        self.falsified = 0
        self.address = ""
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def come(self) -> None:
        """Listen, at the same address as before."""
        port = int(self.address.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def go(self) -> None:
        """Be gone, as a server that was killed: all is reset, and whoever comes is refused."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> int:
        """Reset every connection; new ones may come at once. Returns how many there were."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.host, self.port)
        except OSError:  # the target is away: so is the link
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink, answers in ((reader, back, False), (there, writer, True)):
            pump = asyncio.create_task(self._pump(source, sink, answers))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            try:
                while data := await source.read(65536):
                    await self.up.wait()
                    if self.delay_s:
                        await asyncio.sleep(self.delay_s)
                    for piece in self._distort(data) if answers else (data,):
                        sink.write(piece)
                        await sink.drain()
                        await asyncio.sleep(0)  # the reader takes it before the next one comes
                await self.up.wait()
            finally:
                self._writers.discard(sink)
                sink.close()
                await sink.wait_closed()

    def _distort(self, data: bytes) -> Iterable[bytes]:
        """Falsify and split a piece of an answer. Servers send each event by one write."""
        for true, false in self.false_words.items():
            assert len(true) == len(false)
            self.falsified += data.count(true)
            data = data.replace(true, false)
        split = self.split and len(data) < _DOCUMENT
        return (bytes([byte]) for byte in data) if split else (data,)

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, target: str) -> AsyncIterator[Link]:
        """Serve on a free port of loopback until the block ends."""
        link = cls(target)
        await link.come()
        try:
            yield link
        finally:
            if link._server is not None:
                link._server.close()
            pumps = list(link._pumps)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
