"""What are the events in these bytes? An incremental decoder of `text/event-stream`.

Bytes are cut at line ends only, and a line end is never a part of a UTF-8 sequence: so no code
point is split, wherever the network split the bytes. Where the server itself split one, its bytes
stay what they are ("surrogateescape"), for `code_points.py` to join.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp

from batchyard.v1 import types_pb2
from node_agent.engines.faults import ItemFailed, stalled
from node_agent.engines.interface import EngineError

MAX_EVENT_BYTES = 8 * 1024 * 1024  # no sound server sends a larger one; memory is not for sale


class EventDecoder:
    """Feed bytes as they come, get the data of the events that they complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of each event that ends in `chunk`."""
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if len(rest) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        events: list[str] = []
        for line in lines:
            text = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
            if text.startswith("data:"):
                self._data.append(text[5:].removeprefix(" "))
            elif not text and self._data:
                events.append("\n".join(self._data))
                self._data.clear()
        return events


async def read_events(
    response: aiohttp.ClientResponse, *, first_s: float, idle_s: float
) -> AsyncIterator[str]:
    """Yield the data of each event of a stream.

    Raises:
        ItemFailed: no first event within `first_s` of now, or none within `idle_s` of the last one
            (ENGINE_STALLED), or one that is endless (ENGINE_ERROR). 0 s: no limit.
    """
    loop = asyncio.get_running_loop()
    decoder = EventDecoder()
    limit_s, which = first_s, "first_token_timeout"
    due = loop.time() + limit_s if limit_s else None
    while True:
        try:
            async with asyncio.timeout_at(due):
                chunk = await response.content.readany()
        except TimeoutError as error:
            raise ItemFailed(stalled(which, limit_s)) from error
        if not chunk:
            return
        try:
            events = decoder.feed(chunk)
        except ValueError as error:
            reason = types_pb2.ERROR_REASON_ENGINE_ERROR
            text = f"the engine sent {error}"
            raise ItemFailed(
                EngineError(reason=reason, message=text, metadata={"engineStatus": "malformed"})
            ) from error
        if events:
            limit_s, which = idle_s, "idle_timeout"
            due = loop.time() + limit_s if limit_s else None
        for data in events:
            yield data
