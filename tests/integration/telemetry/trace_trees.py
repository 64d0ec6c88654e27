"""What is a whole trace? Reads received spans as trees, and says what is wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.integration.otlp_receiver import Receiver, SeenSpan

MS = 1_000_000
SCHEDULER = "batchyard-scheduler"


@contextlib.asynccontextmanager
async def client_spans(seen: Receiver) -> AsyncIterator[None]:
    """Trace this process as its user would. The exporter runs in a thread, so that the receiver's
    loop stays free for it; the global provider, which can be set once only, is reset at the end.
    """
    provider = TracerProvider(resource=Resource.create({"service.name": "batchyard-client"}))
    exporter = OTLPSpanExporter(endpoint=f"{seen.endpoint}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        await asyncio.to_thread(provider.shutdown)
        trace._TRACER_PROVIDER = None
        trace._TRACER_PROVIDER_SET_ONCE._done = False


class Tree:
    """The spans of one trace."""

    def __init__(self, seen: Receiver, trace_id: str) -> None:
        self.spans = sorted(
            (s for s in seen.spans if s.trace_id == trace_id),
            key=lambda s: (s.start // MS, s.end),
        )
        self.by_id = {span.span_id: span for span in self.spans}
        self.seen = seen

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The tree as text: one span a line, children indented below their parent."""
        return [line for root in self.roots() for line in self._lines(root, 0)]

    def _lines(self, span: SeenSpan, depth: int) -> Iterator[str]:
        name = span.name.removeprefix("batchyard.v1.SchedulerService/")
        words = [name, span.kind, span.service.removeprefix("batchyard-")]
        if span.failed:
            words.append(f"!{span.attributes.get('error.type')}")
        if events := [e for e in span.events if e != "progress"]:
            words.append(f"({', '.join(events)})")
        yield "  " * depth + " ".join(words)
        for child in self.under(span):
            yield from self._lines(child, depth + 1)

    def roots(self) -> list[SeenSpan]:
        """Those whose parent has not come."""
        return [span for span in self.spans if span.parent_id not in self.by_id]

    def under(self, parent: SeenSpan, name: str = "") -> list[SeenSpan]:
        """Its children whose names begin so."""
        return [s for s in self.spans if s.parent_id == parent.span_id and s.name.startswith(name)]

    def named(self, name: str) -> list[SeenSpan]:
        """All whose names begin so, oldest first."""
        return [span for span in self.spans if span.name.startswith(name)]

    @property
    def schedule(self) -> SeenSpan:
        """There is one."""
        (found,) = self.named("schedule")
        return found

    # What must hold of any trace.

    def faults(self) -> list[str]:
        """What is wrong with it, in words."""
        return [*self._broken_links(), *self._out_of_time(), *self._batches(), *self._gaps()]

    def _broken_links(self) -> Iterator[str]:
        """A link leads to a span that has come."""
        known = {span.span_id for span in self.seen.spans}
        for span in self.spans:
            for link in span.links:
                if link not in known:
                    yield f"{span.name} links to {link}, which never came"
        if double := [i for i, n in Counter(s.span_id for s in self.spans).items() if n > 1]:
            yield f"came twice: {double}"

    def _out_of_time(self) -> Iterator[str]:
        """What the scheduler tells of a request lies within it; only delivery may end later."""
        for span in self.spans:
            if span.start > span.end:
                yield f"{span.name} ends before it starts"
            parent = self.by_id.get(span.parent_id)
            if parent is None or not span.service == parent.service == SCHEDULER:
                continue
            late = span.end - parent.end
            if span.start < parent.start - MS or (late > MS and span.name != "deliver"):
                yield f"{span.name} lies outside of {parent.name} (by {late / MS} ms)"

    def _batches(self) -> Iterator[str]:
        """Each attempt's batch links back, and its node's span links to the batch."""
        if any(span.attributes.get("batchyard.trace.partial") for span in self.spans):
            return
        for attempt in self.named("attempt"):
            batches = [
                s for s in self.seen.spans
                if s.name.startswith("send batch") and attempt.span_id in s.links
            ]  # fmt: skip
            if len(batches) != 1:
                yield f"{attempt.name} is in {len(batches)} batches"
                continue
            (batch,) = batches
            if batch.span_id not in attempt.links:
                yield f"{attempt.name} does not link to its batch"
            if batch.attributes["batchyard.batch.id"] != attempt.attributes["batchyard.batch.id"]:
                yield f"{attempt.name} names another batch"
            for process in self.under(attempt, "process"):
                if process.links != [batch.span_id]:
                    yield f"{process.name} does not link to its batch"

    def _gaps(self) -> Iterator[str]:
        """Queue waits, attempts and delivery tell where the time went: within 5 % or 5 ms."""
        for schedule in self.named("schedule"):
            whole = schedule.end - schedule.start
            told = _covered(self.under(schedule), schedule.start, schedule.end)
            if self.under(schedule) and whole - told > max(0.05 * whole, 5 * MS):
                yield f"{(whole - told) / MS} of {whole / MS} ms of {schedule.name} are not told"


def _covered(spans: Sequence[SeenSpan], start: int, end: int) -> int:
    """The time of which at least one of them tells."""
    told, at = 0, start
    for span in sorted(spans, key=lambda s: s.start):
        first, last = max(span.start, at), min(span.end, end)
        if last > first:
            told += last - first
            at = last
    return told
