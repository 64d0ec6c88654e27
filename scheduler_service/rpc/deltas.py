"""What output waits for a client's stream to take it?

Adjacent deltas of one call and channel merge, for offsets join, so what a slow reader costs is
bounded by its text. A message takes whole calls, oldest first, until it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from batchyard.v1 import types_pb2
from scheduler_service.rpc.status import UINT32_MAX, uint32

MAX_ITEMS: Final = 256
MAX_BYTES: Final = 64 << 10
MAX_EXTRAS: Final = 1024  # the protocol's limit for one message

_Fresh = tuple[int, int, int, int, str, int]  # as `Deltas.add` is given it, without token ids

_DELTA_COST: Final = 16  # beside its text, while it waits
_EXTRA_COST: Final = 64


class _Row:
    """Merged output of one (choice, channel) of a call. The first of a call stands for the call, so
    that one which speaks in one channel, as most do, is one object.
    """

    __slots__ = (
        "call_id", "channel", "choice", "extras", "offset", "others", "parts", "token_ids",
        "tokens", "waiting",
    )  # fmt: skip

    def __init__(self, call_id: int, choice: int, channel: int, offset: int) -> None:
        self.call_id = call_id
        self.choice = choice
        self.channel = channel
        self.offset = offset
        self.parts: list[str] = []
        self.tokens = 0
        self.token_ids: list[int] | None = None  # few are asked for any
        # Of the call, in its first row alone.
        self.others: dict[tuple[int, int], _Row] | None = None
        self.extras: list[types_pb2.DeltaExtra] | None = None
        self.waiting = 0  # about as many bytes, counting a character as one

    def other(self, choice: int, channel: int, offset: int) -> _Row:
        """The call's row of another (choice, channel)."""
        if self.others is None:
            self.others = {}
        row = self.others.get((choice, channel))
        if row is None:
            row = self.others[choice, channel] = _Row(self.call_id, choice, channel, offset)
        return row

    def rows(self) -> list[_Row]:
        """Of the call, all that say anything."""
        mine = [self] if self.parts else []
        return mine if self.others is None else [*mine, *self.others.values()]

    def add_ids(self, token_ids: Sequence[int]) -> None:
        """Ids of the text that came last."""
        if self.token_ids is None:
            self.token_ids = []
        self.token_ids.extend(token_ids)


class Deltas:
    """Unwritten output of many calls.

    Where a reader keeps up, what one message brought leaves with the next: such deltas stay as they
    came, and only when more gathers are they sorted by call.
    """

    __slots__ = ("_calls", "_fresh", "_fresh_bytes", "_fresh_most")

    def __init__(self, most: int = MAX_BYTES) -> None:
        """`most`: bytes up to which it is enough to know how much waits of all calls together."""
        self._calls: dict[int, _Row] = {}  # oldest first; there are none while any are fresh
        self._fresh: list[_Fresh] = []
        self._fresh_bytes = 0
        self._fresh_most = min(most, MAX_BYTES)

    def __bool__(self) -> bool:
        return bool(self._fresh or self._calls)

    def __contains__(self, call_id: int) -> bool:
        self._sort()
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
        """Add a delta; returns how much waited before it, of its call or of all."""
        if token_ids or self._calls or self._fresh_bytes > self._fresh_most:
            self._sort()
            return self._merge(call_id, choice, channel, offset, text, tokens, token_ids)
        self._fresh.append((call_id, choice, channel, offset, text, tokens))
        before = self._fresh_bytes
        self._fresh_bytes = before + len(text) + _DELTA_COST
        return before

    def _sort(self) -> None:
        fresh, self._fresh, self._fresh_bytes = self._fresh, [], 0
        for delta in fresh:
            self._merge(*delta, ())

    def _merge(
        self,
        call_id: int,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> int:
        """Add it to its call; returns how much waited of that."""
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = _Row(call_id, choice, channel, offset)
        row = call
        if call.channel != channel or call.choice != choice:
            row = call.other(choice, channel, offset)
        elif not call.parts:  # it had only extras
            call.offset = offset
        row.parts.append(text)
        row.tokens += tokens
        before = call.waiting
        call.waiting = before + len(text) + _DELTA_COST
        if token_ids:
            row.add_ids(token_ids)
            call.waiting += 4 * len(token_ids)
        return before

    def add_extra(self, call_id: int, extra: types_pb2.DeltaExtra) -> int:
        """Add a rare row; returns how much waited before it."""
        self._sort()
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = _Row(call_id, extra.choice_index, extra.channel, 0)
        if call.extras is None:
            call.extras = []
        call.extras.append(extra)
        before = call.waiting
        call.waiting = before + extra.ByteSize() + _EXTRA_COST
        return before

    def drop(self, call_id: int) -> None:
        """Forget what waits for this call: its output was voided, or nobody reads it."""
        self._sort()
        self._calls.pop(call_id, None)

    def take(self, into: types_pb2.TokenDeltas, *, with_ids: bool = True) -> None:
        """Move as much into the message as it takes."""
        fresh = self._fresh
        if len({delta[0] for delta in fresh}) < len(fresh) or len(fresh) > MAX_ITEMS:
            self._sort()  # they merge, or do not fit
        elif fresh:
            self._fresh, self._fresh_bytes = [], 0
            _fill_fresh(into, fresh, with_ids)
            return
        rows: list[_Row] = []
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
            if call.parts and call.others is None:
                rows.append(call)
            else:
                rows += call.rows()
            size += call.waiting
            whole.append(call_id)
            if len(rows) >= MAX_ITEMS or size > MAX_BYTES:
                break
        for call_id in whole:
            del self._calls[call_id]
        into.extras.extend(extras)
        _fill(into, rows, with_ids)


def _fill_fresh(columns: types_pb2.TokenDeltas, fresh: list[_Fresh], with_ids: bool) -> None:
    """Write them as they are; a column that says nothing is left out."""
    call_ids, choices, channels, offsets, texts, tokens = zip(*fresh, strict=True)
    if with_ids:
        columns.ids.extend(call_ids)
    columns.offsets.extend(offsets)
    for column, values in (
        (columns.texts, texts),
        (columns.token_counts, tokens),
        (columns.choice_indexes, choices),
        (columns.channels, channels),
    ):
        if any(values):
            column.extend(values)


def _fill(columns: types_pb2.TokenDeltas, rows: list[_Row], with_ids: bool) -> None:
    """Write the rows; a column that says nothing is left out."""
    if with_ids:
        columns.ids.extend([row.call_id for row in rows])
    columns.offsets.extend([row.offset for row in rows])
    texts = ["".join(row.parts) for row in rows]
    if any(texts):
        columns.texts.extend(texts)
    counts = [row.tokens for row in rows]
    most = max(counts, default=0)
    if most:
        columns.token_counts.extend(counts if most <= UINT32_MAX else map(uint32, counts))
    choices = [row.choice for row in rows]
    if any(choices):
        columns.choice_indexes.extend(choices)
    channels = [row.channel for row in rows]
    if any(channels):
        columns.channels.extend(channels)
    ids = [row.token_ids for row in rows]
    if any(ids):
        columns.token_id_counts.extend([len(each or ()) for each in ids])
        for each in ids:
            columns.token_ids.extend(each or ())
