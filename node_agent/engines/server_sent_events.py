"""What are the events in these bytes? An incremental decoder of `text/event-stream`.

Bytes are cut at line ends only, and a line end is never a part of a UTF-8 sequence: so no code
point is split, wherever the network split the bytes.
"""

from __future__ import annotations


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
        events: list[str] = []
        for line in lines:
            text = line.rstrip(b"\r").decode("utf-8", "replace")
            if text.startswith("data:"):
                self._data.append(text[5:].removeprefix(" "))
            elif not text and self._data:
                events.append("\n".join(self._data))
                self._data.clear()
        return events
