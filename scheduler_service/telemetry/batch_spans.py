"""What does a batch's own trace show? One span, linked with each member's attempt both ways.

It begins when the batch is formed and ends when the last of it has been packed into a message, or
when all members have ended before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opentelemetry.trace import Span, SpanContext, SpanKind

from scheduler_service.core.types import Batch
from scheduler_service.telemetry import span_attributes as said
from scheduler_service.telemetry.request_spans import SpanMaker
from service_kit import span_names as names

MAX_LINKS: Final = 128  # the SDK drops more, silently


class _Open:
    """A batch on its way."""

    __slots__ = ("bytes", "items", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.items = 0  # that have been packed
        self.bytes = 0


class BatchSpans:
    """Of batches with a sampled member, until they have left."""

    def __init__(self, maker: SpanMaker) -> None:
        self._maker = maker
        self._open: dict[str, _Open] = {}

    def start(self, batch: Batch, members: Sequence[Span]) -> None:
        """Some of its members are sampled: these are their attempts' spans."""
        span = self._maker.start(
            f"send batch {batch.model}",
            batch.created_at,
            said.of_batch(batch),
            parent=None,
            kind=SpanKind.PRODUCER,
            links=[member.get_span_context() for member in members[:MAX_LINKS]],
        )
        for member in members:
            member.add_link(span.get_span_context())
        self._open[batch.batch_id] = _Open(span)

    def packed(self, batch: Batch, items: Sequence[bytes]) -> SpanContext | None:
        """These items of it go into a message; the span's context, None: no member is sampled."""
        found = self._open.get(batch.batch_id)
        if found is None:
            return None
        found.items += len(items)
        found.bytes += sum(map(len, items))
        if found.items >= len(batch.attempts):
            self.end(batch)
        return found.span.get_span_context()

    def end(self, batch: Batch) -> None:
        """It has left, or never will."""
        found = self._open.pop(batch.batch_id, None)
        if found is not None:
            self._end(found)

    def close(self) -> None:
        """End all."""
        for found in self._open.values():
            self._end(found)
        self._open.clear()

    def _end(self, found: _Open) -> None:
        found.span.set_attribute(names.BATCH_BYTES, found.bytes)
        found.span.end(self._maker.wall_ns(self._maker.clock.now()))
