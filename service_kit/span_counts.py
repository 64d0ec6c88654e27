"""How many spans left, and how many were lost? Nothing about an exporter's trouble is hidden.

The SDK's batch processor keeps a bounded queue and drops beyond it without a number. Here the bound
is in front of it: what has no room is counted and let go, so memory does not grow with a collector
that is away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from service_kit.tracing import SpanCounts


class CountingExporter(SpanExporter):
    """Counts what another exporter did. Works in the processor's thread."""

    def __init__(self, exporter: SpanExporter, counts: SpanCounts) -> None:
        self._exporter = exporter
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Pass them on; a fault counts as a failure."""
        self._counts.taken += len(spans)
        try:
            result = self._exporter.export(spans)
        except Exception:  # an exporter's own; the SDK would log each with a traceback
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._counts.exported += len(spans)
        else:
            self._counts.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Let go."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Whether all has left."""
        return self._exporter.force_flush(timeout_millis)


class CountingProcessor(BatchSpanProcessor):
    """Lets in what the queue has room for."""

    def __init__(
        self, exporter: SpanExporter, counts: SpanCounts, queue_max: int, batch_max: int
    ) -> None:
        super().__init__(
            CountingExporter(exporter, counts),
            max_queue_size=queue_max + 1,  # never full: see `on_end`
            max_export_batch_size=min(batch_max, queue_max),
        )
        self._counts = counts
        self._queue_max = queue_max

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it, or count it as dropped."""
        counts = self._counts
        if counts.ended - counts.taken >= self._queue_max:
            counts.dropped += 1
            return
        counts.ended += 1
        super().on_end(span)
