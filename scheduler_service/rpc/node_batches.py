"""How do batches fit into messages?

A message takes up to 256 items and 64 KiB of them; a single larger item goes alone. An atomic batch
is in one message, however large, for its agent runs what comes together; any other batch is cut
where a message is full.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.types import Attempt, Batch, Instant
from scheduler_service.rpc.node_items import Bake, ItemWriter
from scheduler_service.rpc.ports import Tracer

log = logging.getLogger(__name__)

_Write = Callable[[Attempt, Instant], bytes]

MAX_ITEMS: Final = 256
MAX_ITEM_BYTES: Final = 64 * 1024
RESERVED_BYTES: Final = 64 * 1024  # of the largest message, for what is not items


class BatchQueue:
    """Batches on their way out, numbered from 1."""

    def __init__(self, tracer: Tracer, max_message_bytes: int, bake: Bake | None = None) -> None:
        self._tracer = tracer
        self._write = ItemWriter(tracer, bake).write
        self._most = max_message_bytes - RESERVED_BYTES
        self._waiting: deque[_Work] = deque()
        self.queued = 0  # number of the last batch that came
        self.sent = 0  # number of the last one that has left whole
        self.items_sent = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, batch: Batch) -> None:
        """Queue it."""
        self.queued += 1
        self._waiting.append(_Work(self.queued, batch))

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()

    def pack(self, message: wire_pb2.PackedConnectResponse, last: int, now: Instant) -> None:
        """Fill the message with items; none of batches above number `last`."""
        room = _Room()
        while self._waiting and self._waiting[0].number <= last:
            work = self._waiting[0]
            items = work.take(room, self._write, now, self._most)
            if items:
                self._add(message, work.batch, items)
            if not work.done:
                return
            self._waiting.popleft()
            self.sent = work.number

    def _add(
        self, message: wire_pb2.PackedConnectResponse, batch: Batch, items: Sequence[bytes]
    ) -> None:
        packed = message.batches.add()
        packed.batch_id = batch.batch_id
        packed.engine_id = batch.engine.engine_id
        packed.model = batch.model
        packed.atomic = batch.atomic
        packed.items.extend(items)
        self.items_sent += len(items)
        trace = self._tracer.batch_context(batch, items)
        if trace is not None:
            packed.trace.CopyFrom(trace)


class _Room:
    """What is left of a message."""

    __slots__ = ("bytes", "empty", "items")

    def __init__(self) -> None:
        self.items = MAX_ITEMS
        self.bytes = MAX_ITEM_BYTES
        self.empty = True

    def fits(self, items: int, size: int) -> bool:
        """Whether so much more may go in; into an empty message, anything may."""
        return self.empty or (items <= self.items and size <= self.bytes)

    def take(self, items: int, size: int) -> None:
        """Fill it."""
        self.items -= items
        self.bytes -= size
        self.empty = False


class _Work:
    """A batch on its way out: `ready` items are built, those from `position` on are not."""

    __slots__ = ("batch", "number", "position", "ready")

    def __init__(self, number: int, batch: Batch) -> None:
        self.number = number
        self.batch = batch
        self.position = 0
        self.ready: deque[bytes] = deque()

    @property
    def done(self) -> bool:
        """Whether all of it has left."""
        return not self.ready and self.position == len(self.batch.attempts)

    def take(self, room: _Room, write: _Write, now: Instant, most: int) -> list[bytes]:
        """The items that go into this message; `most`: bytes that no message may exceed."""
        if self.batch.atomic:
            whole = self._take_whole(room, write, now, most)
            if whole is not None:
                return whole
        taken: list[bytes] = []
        attempts, ready = self.batch.attempts, self.ready
        while ready or self.position < len(attempts):
            if ready:
                item = ready.popleft()
            else:
                item = write(attempts[self.position], now)
                self.position += 1
            if not room.fits(1, len(item)):
                ready.appendleft(item)
                break
            room.take(1, len(item))
            taken.append(item)
        return taken

    def _take_whole(
        self, room: _Room, write: _Write, now: Instant, most: int
    ) -> list[bytes] | None:
        """All items or none; None: they fit into no message and must be cut after all."""
        attempts = self.batch.attempts
        self.ready.extend(write(attempt, now) for attempt in attempts[self.position :])
        self.position = len(attempts)
        count, size = len(self.ready), sum(map(len, self.ready))
        if size > most:
            log.warning(
                "batch %s is cut: %d bytes",
                self.batch.batch_id,
                size,
                extra={"event": "batch_cut", "batch_id": self.batch.batch_id},
            )
            return None
        if not room.fits(count, size):
            return []
        room.take(count, size)
        taken = list(self.ready)
        self.ready.clear()
        return taken
