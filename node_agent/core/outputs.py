"""Which output has each item produced, and what of it must still leave?

Output is kept until its item's result is acknowledged, so a new session can go on wherever the
scheduler says. The kept text is the send queue, too: each channel has a cursor, and a delta is
what lies between the cursor and the end. So deltas that waited merge by themselves, and going
back is moving the cursor:

    start          cursor               end
      |--- sent ----->|---- to be sent --->|     offsets: UTF-8 bytes in this output

Deltas come here directly, beside `Agent.step`: it would cost more than the rest of their way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

Key = tuple[int, int]  # (choice, channel)


@dataclass(slots=True)
class Delta:
    """Output to send: whole code points from `offset` on."""

    dispatch_id: int
    choice: int
    channel: int
    offset: int
    text: str
    tokens: int  # 0: not known


@dataclass(slots=True)
class Extra:
    """What only a few deltas carry: the head of a tool call, log probabilities."""

    dispatch_id: int
    choice: int
    channel: int
    offset: int
    payload: object  # the engine's, unread


class Channel:
    """One choice's text, reasoning or tool arguments."""

    __slots__ = ("counts", "cursor", "ends", "start", "text", "tokens")

    def __init__(self, start: int) -> None:
        self.start = start
        self.cursor = start
        self.text = bytearray()
        self.tokens = 0  # of what lies beyond the cursor
        # Where each delta ended that was sent, and how many tokens there were in all by then.
        self.ends = array("Q")
        self.counts = array("Q")

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.start + len(self.text)

    def go_back(self, offset: int) -> None:
        """Send again from there on; it is where a delta ended, or the start."""
        forward = offset > self.cursor
        self.cursor = offset
        if forward:  # it has what was sent in an earlier session: how many tokens is not known
            self.tokens = 0
            return
        known = bisect_right(self.ends, offset)
        sent = self.counts[-1] if self.counts else 0
        kept = self.counts[known - 1] if known else 0
        self.tokens += sent - kept
        del self.ends[known:], self.counts[known:]


class OutputBook:
    """The output of every item that streams."""

    def __init__(self) -> None:
        self._starts: dict[int, Mapping[Key, int]] = {}
        self._channels: dict[int, dict[Key, Channel]] = {}
        self._unsent: dict[int, dict[Key, Channel]] = {}  # in the order it came
        self._extras: dict[int, list[Extra]] = {}  # of the few items that have any
        self._unsent_extras: dict[int, list[Extra]] = {}
        self.urgent = False  # an item's first output waits

    def __contains__(self, dispatch_id: int) -> bool:
        return dispatch_id in self._channels

    def __len__(self) -> int:
        return len(self._channels)

    def open(self, dispatch_id: int, starts: Mapping[Key, int]) -> None:
        """Begin an item's output; `starts` where it continues another attempt's."""
        self._starts[dispatch_id] = starts
        self._channels[dispatch_id] = {}

    def drop(self, dispatch_id: int) -> None:
        """Forget an item's output."""
        self._starts.pop(dispatch_id, None)
        self._channels.pop(dispatch_id, None)
        self._unsent.pop(dispatch_id, None)
        if dispatch_id in self._extras:
            del self._extras[dispatch_id]
            self._unsent_extras.pop(dispatch_id, None)

    def append(self, dispatch_id: int, key: Key, text: str, tokens: int) -> None:
        """Add output at the end of a channel."""
        channels = self._channels[dispatch_id]
        channel = channels.get(key)
        if channel is None:
            self.urgent = self.urgent or not channels
            channel = channels[key] = Channel(self._starts[dispatch_id].get(key, 0))
        channel.tokens += tokens
        if not text:
            return
        channel.text += text.encode()
        self._unsent.setdefault(dispatch_id, {})[key] = channel

    def append_extra(self, dispatch_id: int, key: Key, payload: object) -> None:
        """Add a rare row at the end of a channel; it leaves before the output that follows it."""
        channels = self._channels[dispatch_id]
        channel = channels.get(key)
        if channel is None:
            self.urgent = self.urgent or not channels
            channel = channels[key] = Channel(self._starts[dispatch_id].get(key, 0))
        extra = Extra(dispatch_id, key[0], key[1], channel.end, payload)
        self._extras.setdefault(dispatch_id, []).append(extra)
        self._unsent_extras.setdefault(dispatch_id, []).append(extra)

    def offsets(self, dispatch_id: int) -> dict[Key, int]:
        """The end of each channel."""
        return {key: channel.end for key, channel in self._channels.get(dispatch_id, {}).items()}

    def has_output(self, dispatch_id: int) -> bool:
        """Whether anything was produced."""
        return bool(self._channels.get(dispatch_id))

    def has_unsent(self, dispatch_id: int) -> bool:
        """Whether something must leave before the item's result."""
        return dispatch_id in self._unsent or dispatch_id in self._unsent_extras

    @property
    def any_unsent(self) -> bool:
        """Whether anything must leave."""
        return bool(self._unsent or self._unsent_extras)

    def rewind(self, dispatch_id: int, points: Mapping[Key, int]) -> None:
        """Go on from these offsets; a channel that is not named, from its start."""
        for key, channel in self._channels.get(dispatch_id, {}).items():
            wanted = points.get(key, channel.start)
            channel.go_back(_boundary(channel, min(max(wanted, channel.start), channel.end)))
            if channel.cursor < channel.end:
                self._unsent.setdefault(dispatch_id, {})[key] = channel
            else:
                self._mark_sent(dispatch_id, key)
        again = [
            extra
            for extra in self._extras.get(dispatch_id, ())
            if extra.offset >= points.get((extra.choice, extra.channel), 0)
        ]
        self._unsent_extras.pop(dispatch_id, None)
        if again:
            self._unsent_extras[dispatch_id] = again

    def take_extras(self, limit: int) -> list[Extra]:
        """Take at most `limit` rare rows. While some are left, no deltas may be taken."""
        taken: list[Extra] = []
        while self._unsent_extras and len(taken) < limit:
            dispatch_id, waiting = next(iter(self._unsent_extras.items()))
            room = limit - len(taken)
            taken += waiting[:room]
            del waiting[:room]
            if not waiting:
                del self._unsent_extras[dispatch_id]
        return taken

    @property
    def any_extras(self) -> bool:
        """Whether rare rows must leave."""
        return bool(self._unsent_extras)

    def take(self, max_deltas: int, max_bytes: int) -> list[Delta]:
        """Take what may leave now, oldest item first, and move the cursors."""
        deltas: list[Delta] = []
        self.urgent = False
        room = max_bytes
        while self._unsent and len(deltas) < max_deltas and room > 0:
            dispatch_id, channels = next(iter(self._unsent.items()))
            (choice, kind), channel = next(iter(channels.items()))
            delta = _cut(dispatch_id, (choice, kind), channel, room)
            if delta is None:
                break
            room -= channel.cursor - delta.offset
            deltas.append(delta)
            if channel.cursor == channel.end:
                self._mark_sent(dispatch_id, (choice, kind))
        return deltas

    def _mark_sent(self, dispatch_id: int, key: Key) -> None:
        channels = self._unsent.get(dispatch_id)
        if channels is not None:
            channels.pop(key, None)
            if not channels:
                del self._unsent[dispatch_id]


def _cut(dispatch_id: int, key: Key, channel: Channel, room: int) -> Delta | None:
    """At most `room` bytes from the cursor on, in whole code points. None: not even one fits."""
    offset = channel.cursor
    end = _boundary(channel, min(channel.end, offset + room))
    if end == offset and offset < channel.end:
        return None
    whole = end == channel.end
    tokens = channel.tokens if whole else 0
    if whole:
        channel.tokens = 0
    counts = channel.counts
    counts.append(counts[-1] + tokens if counts else tokens)
    channel.ends.append(end)
    channel.cursor = end
    text = channel.text[offset - channel.start : end - channel.start].decode()
    return Delta(dispatch_id, key[0], key[1], offset, text, tokens)


def _boundary(channel: Channel, offset: int) -> int:
    """The nearest start of a code point at or before `offset`."""
    index = offset - channel.start
    while 0 < index < len(channel.text) and channel.text[index] & 0xC0 == 0x80:
        index -= 1
    return channel.start + index
