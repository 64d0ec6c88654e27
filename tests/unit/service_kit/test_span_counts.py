"""What an exporter in trouble costs: nothing but spans, and those are counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from service_kit import tracing
from service_kit.tracing import SpanCounts

WAIT_S = 10.0


class Collector(SpanExporter):
    """Hangs until it is let go, then answers as it is told."""

    def __init__(self, answer: SpanExportResult | Exception, *, hangs: bool = False) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self._answer = answer
        if not hangs:
            self.go.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        assert self.go.wait(WAIT_S)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def shutdown(self) -> None:
        self.go.set()


def emit(collector: Collector, many: int, queue: int) -> SpanCounts:
    counts = SpanCounts()
    provider = tracing.make_provider(
        "test", collector, instance_id="i", counts=counts, sample_all=True,
        environ={"OTEL_BSP_MAX_QUEUE_SIZE": str(queue), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"},
    )  # fmt: skip
    tracer = provider.get_tracer("t")
    for number in range(many):
        tracer.start_span("s").end()
        if number == 3:
            assert collector.asked.wait(WAIT_S)  # a batch is full: the thread is at it
    collector.go.set()
    provider.shutdown()
    return counts


def test_a_collector_that_hangs_drops_what_has_no_room_and_counts_it() -> None:
    counts = emit(Collector(SpanExportResult.SUCCESS, hangs=True), many=100, queue=10)
    assert counts.exported == 4 + 10  # the batch that hung, and a full queue
    assert counts.dropped == 100 - counts.exported
    assert (counts.failed, counts.lost) == (0, counts.dropped)


def test_a_collector_that_refuses_is_counted() -> None:
    counts = emit(Collector(SpanExportResult.FAILURE), many=20, queue=100)
    assert (counts.exported, counts.failed, counts.dropped) == (0, 20, 0)


def test_an_exporter_that_raises_is_a_failure_and_no_traceback() -> None:
    counts = emit(Collector(ValueError("wrong protocol")), many=8, queue=100)
    assert (counts.failed, counts.lost) == (8, 8)


def test_what_arrives_is_counted_as_exported() -> None:
    counts = emit(Collector(SpanExportResult.SUCCESS), many=20, queue=100)
    assert (counts.ended, counts.exported, counts.lost) == (20, 20, 0)
