"""What have the callers of a request been sent, and what does one lack who joins late?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from batchyard.v1 import types_pb2
from scheduler_service.rpc.validate import Refused

Row = tuple[int, int, int, str, int, Sequence[int]]  # as `Caller.delta` takes it


class Delivered:
    """Output of one (choice, channel), in the order it was sent."""

    __slots__ = ("ids", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ids: list[tuple[int, Sequence[int]]] = []  # where token ids were asked for: by offset

    def all_ids(self) -> list[int]:
        """The token ids."""
        return [token for _, tokens in self.ids for token in tokens]


def missing(
    delivered: Mapping[tuple[int, int], Delivered], have: Iterable[types_pb2.StreamOffset]
) -> list[Row]:
    """What lies behind the offsets that a caller has; a channel that is not named, from 0.

    Raises:
        Refused: an offset is beyond what was sent, or inside of a code point.
    """
    starts = {}
    for index, point in enumerate(have):
        key = (point.choice_index, point.channel)
        if key not in delivered and point.offset:
            raise _unknown(index)
        starts[key] = (point.offset, index)
    rows: list[Row] = []
    for (choice, channel), sent in delivered.items():
        start, index = starts.get((choice, channel), (0, 0))
        for offset, text, ids in _behind(sent, start, index):
            rows.append((choice, channel, offset, text, 0, ids))
    return rows


def _behind(sent: Delivered, start: int, index: int) -> list[tuple[int, str, Sequence[int]]]:
    text = "".join(sent.texts).encode()
    if not text:  # ids without text: offsets count ids
        ids = sent.all_ids()
        if start > len(ids):
            raise _unknown(index)
        return [(start, "", ids[start:])] if ids[start:] else []
    try:
        rest = text[start:].decode()
    except UnicodeDecodeError:
        raise _unknown(index) from None
    if start > len(text):
        raise _unknown(index)
    # Ids belong to the delta that they came with; such a delta was sent whole or not at all.
    ids = [token for offset, tokens in sent.ids if offset >= start for token in tokens]
    return [(start, rest, ids)] if rest else []


def _unknown(index: int) -> Refused:
    where = f"attach.offsets[{index}].offset"
    return Refused(f"{where} is no point of what was sent", field=where)
