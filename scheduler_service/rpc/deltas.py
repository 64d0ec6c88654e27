"""What output waits for a client's stream to take it?

Adjacent deltas of one call and channel merge, for offsets join, so what a slow reader costs is
bounded by its text. A message takes whole calls, oldest first, until it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from batchyard.v1 import types_pb2

MAX_ITEMS: Final = 256
MAX_BYTES: Final = 64 << 10
MAX_EXTRAS: Final = 1024  # the protocol's limit for one message

_DELTA_COST: Final = 16  # beside its text, while it waits
_EXTRA_COST: Final = 64


class _Row:
    """Merged output of one (choice, channel)."""

    __slots__ = ("offset", "parts", "token_ids", "tokens")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.parts: list[str] = []
        self.tokens = 0
        self.token_ids: list[int] = []


class _Call:
    """What waits of one call."""

    __slots__ = ("extras", "rows", "waiting")

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], _Row] = {}
        self.extras: list[types_pb2.DeltaExtra] = []
        self.waiting = 0  # about as many bytes, counting a character as one


class Deltas:
    """Unwritten output of many calls."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}  # oldest first

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __contains__(self, call_id: int) -> bool:
        return call_id in self._calls

    def add(
        self,
        call_id: int,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> int:
        """Add a delta; returns how much waited before it."""
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = _Call()
        row = call.rows.get((choice, channel))
        if row is None:
            row = call.rows[choice, channel] = _Row(offset)
        row.parts.append(text)
        row.tokens += tokens
        if token_ids:
            row.token_ids.extend(token_ids)
        before = call.waiting
        call.waiting = before + len(text) + 4 * len(token_ids) + _DELTA_COST
        return before

    def add_extra(self, call_id: int, extra: types_pb2.DeltaExtra) -> int:
        """Add a rare row; returns how much waited before it."""
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = _Call()
        call.extras.append(extra)
        before = call.waiting
        call.waiting = before + extra.ByteSize() + _EXTRA_COST
        return before

    def drop(self, call_id: int) -> None:
        """Forget what waits for this call: its output was voided, or nobody reads it."""
        self._calls.pop(call_id, None)

    def take(self, into: types_pb2.TokenDeltas, *, with_ids: bool = True) -> None:
        """Move as much into the message as it takes."""
        rows: list[tuple[int, int, int, _Row]] = []
        extras: list[types_pb2.DeltaExtra] = []
        whole: list[int] = []
        size = 0
        for call_id, call in self._calls.items():
            if call.extras:
                room = MAX_EXTRAS - len(extras)
                extras.extend(call.extras[:room])
                del call.extras[:room]
                if call.extras:
                    break  # its deltas come after them
            rows.extend((call_id, *key, row) for key, row in call.rows.items())
            size += call.waiting
            whole.append(call_id)
            if len(rows) >= MAX_ITEMS or size > MAX_BYTES:
                break
        for call_id in whole:
            del self._calls[call_id]
        into.extras.extend(extras)
        _fill(into, rows, with_ids)


def _fill(
    columns: types_pb2.TokenDeltas, rows: list[tuple[int, int, int, _Row]], with_ids: bool
) -> None:
    """Write the rows; a column that says nothing is left out."""
    if with_ids:
        columns.ids.extend([call_id for call_id, _, _, _ in rows])
    columns.offsets.extend([row.offset for _, _, _, row in rows])
    texts = ["".join(row.parts) for _, _, _, row in rows]
    if any(texts):
        columns.texts.extend(texts)
    counts = [row.tokens for _, _, _, row in rows]
    if any(counts):
        columns.token_counts.extend(counts)
    choices = [choice for _, choice, _, _ in rows]
    if any(choices):
        columns.choice_indexes.extend(choices)
    channels = [channel for _, _, channel, _ in rows]
    if any(channels):
        columns.channels.extend(channels)
    id_counts = [len(row.token_ids) for _, _, _, row in rows]
    if any(id_counts):
        columns.token_id_counts.extend(id_counts)
        for _, _, _, row in rows:
            columns.token_ids.extend(row.token_ids)
