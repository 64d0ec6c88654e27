"""How does output get onto a client's stream? One writer per stream, self-clocking.

Whatever gathers while a write is awaited leaves in the next message: nothing waits when idle, and
messages grow under load. Adjacent deltas of one call and channel merge, for offsets join, so what a
slow reader costs is bounded by its text; beyond `max_buffer` bytes for one call it is cut off with
CLIENT_TOO_SLOW, and its neighbours go on. Parts of a message go in the protocol's order: accepted,
started, deltas, results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2

MAX_ITEMS: Final = 256
MAX_BYTES: Final = 64 << 10


class Pending:
    """Merged output of one (choice, channel) of a call that has not been written yet."""

    __slots__ = ("offset", "parts", "token_ids", "tokens")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.parts: list[str] = []
        self.tokens = 0
        self.token_ids: list[int] = []


class Deltas:
    """Unwritten output of many calls, merged per (call, choice, channel)."""

    __slots__ = ("_buffered", "_extras", "_pending")

    def __init__(self) -> None:
        self._pending: dict[tuple[int, int, int], Pending] = {}
        self._extras: list[types_pb2.DeltaExtra] = []
        self._buffered: dict[int, int] = {}  # characters by call

    def __bool__(self) -> bool:
        return bool(self._pending or self._extras)

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
        """Add a delta; returns how much the call has waiting."""
        key = (call_id, choice, channel)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = Pending(offset)
        pending.parts.append(text)
        pending.tokens += tokens
        if token_ids:
            pending.token_ids.extend(token_ids)
        waiting = self._buffered.get(call_id, 0) + len(text) + 4 * len(token_ids) + 16
        self._buffered[call_id] = waiting
        return waiting

    def add_extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Add a rare row."""
        self._extras.append(extra)

    def drop(self, call_id: int) -> None:
        """Forget what waits for this call: its output was voided, or nobody reads it."""
        for key in [k for k in self._pending if k[0] == call_id]:
            del self._pending[key]
        self._extras = [e for e in self._extras if e.id != call_id]
        self._buffered.pop(call_id, None)

    def take(self, *, with_ids: bool = True) -> types_pb2.TokenDeltas:
        """Up to MAX_ITEMS deltas, in columns, oldest first."""
        columns = types_pb2.TokenDeltas()
        keys = list(self._pending)[:MAX_ITEMS]
        rows = [(key, self._pending.pop(key)) for key in keys]
        size = 0
        for count, ((call_id, choice, channel), row) in enumerate(rows):
            text = "".join(row.parts)
            size += len(text)
            if with_ids:
                columns.ids.append(call_id)
            columns.offsets.append(row.offset)
            columns.texts.append(text)
            columns.token_counts.append(row.tokens)
            columns.choice_indexes.append(choice)
            columns.channels.append(channel)
            columns.token_id_counts.append(len(row.token_ids))
            columns.token_ids.extend(row.token_ids)
            self._buffered.pop(call_id, None)
            if size > MAX_BYTES:
                for key, unwritten in reversed(rows[count + 1 :]):
                    self._pending = {key: unwritten, **self._pending}
                break
        _drop_plain(columns)
        columns.extras.extend(self._extras)
        self._extras.clear()
        return columns


def _drop_plain(columns: types_pb2.TokenDeltas) -> None:
    """Leave out the columns that say nothing."""
    for name in ("token_counts", "choice_indexes", "channels", "token_id_counts"):
        if not any(getattr(columns, name)):
            columns.ClearField(name)
    if not any(columns.texts):
        columns.ClearField("texts")


class MultiplexWriter:
    """Gathers what a Multiplex stream has to say, and writes it."""

    def __init__(self, max_buffer: int) -> None:
        self.written = 0  # messages
        self._max_buffer = max_buffer
        self._opened: scheduler_service_pb2.MultiplexOpened | None = None
        self._going_away = False
        self._max_outstanding = 0
        self._accepted: list[scheduler_service_pb2.Accepted] = []
        self._started: list[scheduler_service_pb2.Started] = []
        self._deltas = Deltas()
        self._results: list[wire_pb2.PackedCallResult] = []
        self._wake = asyncio.Event()
        self._closing = False

    def opened(self, message: scheduler_service_pb2.MultiplexOpened, max_outstanding: int) -> None:
        """Answer the stream's open."""
        self._opened = message
        self._max_outstanding = max_outstanding
        self._wake.set()

    def going_away(self) -> None:
        """Ask for a new stream for new calls."""
        self._going_away = True
        self._wake.set()

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Add one."""
        self._accepted.append(message)
        self._wake.set()

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Add one; what waits of an output that it voids is dropped."""
        if message.restarted:
            self._deltas.drop(message.call_id)
        self._started.append(message)
        self._wake.set()

    def delta(
        self,
        call_id: int,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> bool:
        """Add output; False: the reader is too slow for this call."""
        waiting = self._deltas.add(call_id, choice, channel, offset, text, tokens, token_ids)
        self._wake.set()
        return waiting <= self._max_buffer

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Add a rare row."""
        self._deltas.add_extra(extra)
        self._wake.set()

    def result(self, call_id: int, result: bytes) -> None:
        """Add a call's end."""
        self._results.append(wire_pb2.PackedCallResult(call_id=call_id, result=result))
        self._wake.set()

    def drop(self, call_id: int) -> None:
        """Forget the output that waits for this call."""
        self._deltas.drop(call_id)

    def close(self) -> None:
        """Write what is there, then end."""
        self._closing = True
        self._wake.set()

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write messages until closed and empty. `write` is awaited, one at a time."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending():
                await write(self._message())
                self.written += 1
            if self._closing:
                return

    def _pending(self) -> bool:
        return bool(
            self._opened or self._going_away or self._accepted or self._started
            or self._deltas or self._results
        )  # fmt: skip

    def _message(self) -> bytes:
        """The next message; results only behind all deltas, so that none overtakes its text."""
        message = wire_pb2.PackedMultiplexResponse()
        if self._opened is not None:
            message.opened.CopyFrom(self._opened)
            message.max_outstanding = self._max_outstanding
            self._opened = None
        message.going_away, self._going_away = self._going_away, False
        message.accepted.extend(self._accepted[:MAX_ITEMS])
        del self._accepted[:MAX_ITEMS]
        message.started.extend(self._started[:MAX_ITEMS])
        del self._started[:MAX_ITEMS]
        if self._started:
            return message.SerializeToString()
        if self._deltas:
            message.deltas.CopyFrom(self._deltas.take())
        if not self._deltas:
            self._add_results(message)
        return message.SerializeToString()

    def _add_results(self, message: wire_pb2.PackedMultiplexResponse) -> None:
        size = count = 0
        for result in self._results[:MAX_ITEMS]:
            size += len(result.result)
            if size > MAX_BYTES and count:
                break
            count += 1
        message.results.extend(self._results[:count])
        del self._results[:count]


class SingleWriter:
    """Gathers what a GenerateStream has to say: one event per message, deltas merged."""

    streams = True

    def __init__(self, max_buffer: int, on_slow: Callable[[], None]) -> None:
        self.error: types_pb2.Error | None = None
        self.result: bytes = b""
        self._max_buffer = max_buffer
        self._on_slow = on_slow
        self._events: list[scheduler_service_pb2.GenerateStreamResponse] = []
        self._deltas = Deltas()
        self._wake = asyncio.Event()
        self._finished = False

    def accepted(self, message: scheduler_service_pb2.Accepted) -> None:
        """Add it."""
        self._events.append(scheduler_service_pb2.GenerateStreamResponse(accepted=message))
        self._wake.set()

    def started(self, message: scheduler_service_pb2.Started) -> None:
        """Add it, behind what came before it."""
        if message.restarted:
            self._deltas.drop(0)
        self._flush_deltas()
        self._events.append(scheduler_service_pb2.GenerateStreamResponse(started=message))
        self._wake.set()

    def delta(
        self,
        choice: int,
        channel: int,
        offset: int,
        text: str,
        tokens: int,
        token_ids: Sequence[int],
    ) -> None:
        """Add output."""
        waiting = self._deltas.add(0, choice, channel, offset, text, tokens, token_ids)
        self._wake.set()
        if waiting > self._max_buffer:
            self._on_slow()

    def extra(self, extra: types_pb2.DeltaExtra) -> None:
        """Add a rare row."""
        row = types_pb2.DeltaExtra()
        row.CopyFrom(extra)
        row.id = 0
        self._deltas.add_extra(row)
        self._wake.set()

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        """The end."""
        self.result, self.error = result, error
        self._finished = True
        self._wake.set()

    def _flush_deltas(self) -> None:
        while self._deltas:
            taken = self._deltas.take(with_ids=False)
            self._events.append(scheduler_service_pb2.GenerateStreamResponse(deltas=taken))

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write until the result is written."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._flush_deltas()
            events, self._events = self._events, []
            for event in events:
                await write(event.SerializeToString())
            if self._finished and not self._events and not self._deltas:
                await write(
                    scheduler_service_pb2.GenerateStreamResponse(
                        result=inference_pb2.InferenceResult.FromString(self.result)
                    ).SerializeToString()
                )
                return
