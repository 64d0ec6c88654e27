"""What does a request's trace show? Spans of the scheduler, made from the core's records.

An observer of the driver, and the source of the contexts that travel to the agents. Only sampled
requests cost anything here. Start and end times are given explicitly, from the core's instants; no
span is held in a context variable. The tree is in `docs/tracing.md`; `request_spans.py` makes a
request's spans, `batch_spans.py` those of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from batchyard.v1 import types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.records import Record
from scheduler_service.core.state import State
from scheduler_service.core.types import Attempt, Batch
from scheduler_service.rpc import status
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening, StreamOpening
from scheduler_service.telemetry import span_attributes as said
from scheduler_service.telemetry.batch_spans import BatchSpans
from scheduler_service.telemetry.late_keep import LateKeeper
from scheduler_service.telemetry.request_spans import RequestSpans, SpanMaker
from scheduler_service.telemetry.sampling import RootSampler
from scheduler_service.telemetry.span_contexts import parse, says_sampled, written
from service_kit import span_names as names

_SERVICE: Final = "batchyard.v1.SchedulerService"
# Of a server's calls, only these are its own faults.
_SERVER_FAULTS: Final = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
Facts = Callable[[str, int], said.NodeFacts | None]  # by node id and epoch


class RequestTracer:
    """Makes the spans."""

    def __init__(
        self,
        provider: Any,
        clock: Clock,
        state: Callable[[], State],
        sampler: RootSampler | None = None,
    ) -> None:
        self.facts: Facts = _nothing_known  # of nodes; set by the composition root
        self._maker = SpanMaker(provider.get_tracer("batchyard.scheduler"), clock, state)
        self._clock = clock
        self._sampler = sampler or RootSampler()
        self._open: dict[int, RequestSpans] = {}  # by rid
        self._batches = BatchSpans(self._maker)
        self._late = None if self._sampler.is_off else LateKeeper(self._maker)
        self._callers: dict[int, str] = {}  # traceparents of unsampled ones that had one, by rid
        self._on: dict[str, Callable[[RequestSpans, Record], None]] = {
            records.SUBMIT: self._submitted,
            records.ATTEMPT_RUNNING: partial(self._attempt_event, "running"),
            records.FIRST_OUTPUT: partial(self._attempt_event, "first_token"),
            records.ATTEMPT_ENDED: self._attempt_ended,
            records.FAILOVER: self._failover,
            records.PREEMPTED: self._preempted,
            records.HEDGED: self._hedged,
            records.DEGRADED: self._degraded,
            records.CANCELLED: self._cancelled,
        }

    def on_entry(self, entry: Entry, opening: Opening) -> None:
        """Decide whether the request is traced; open its spans if so."""
        request, traceparent = entry.request, entry.traceparent
        if not traceparent:
            if self._sampler.sample(request.received_at):
                self._begin(entry, opening, None)
            return
        parent = parse(traceparent) if says_sampled(traceparent) else None
        if parent is None:
            entry.trace_id = traceparent[3:35]
            if self._late is not None:
                self._callers[request.rid] = traceparent
            return
        self._begin(entry, opening, parent)

    def _begin(self, entry: Entry, opening: Opening, parent: SpanContext | None) -> None:
        request, state = entry.request, self._maker.state()
        entered = said.at_entry(state, request)
        rpc = self._rpc_span(opening, parent, request.received_at) if opening.method else None
        inner = rpc.get_span_context() if rpc is not None else parent
        # The message wins over the metadata: a gateway may have put requests together anew.
        same = parent is None or (inner is not None and inner.trace_id == parent.trace_id)
        schedule = self._maker.start(
            f"schedule {request.model}",
            request.received_at,
            said.of_request(request) | {names.QUEUE_DEPTH: entered[names.QUEUE_DEPTH]},
            parent=inner if same else parent,
            kind=SpanKind.INTERNAL if rpc is not None else SpanKind.SERVER,
            links=[parse(opening.link), self._stream_context(opening.stream)],
        )
        entry.sampled = True
        request.trace_id = entry.trace_id = f"{schedule.get_span_context().trace_id:032x}"
        entry.span = self._open[request.rid] = RequestSpans(entry, rpc, schedule, entered)

    def _rpc_span(self, opening: Opening, parent: SpanContext | None, at: int) -> Span:
        method = f"{_SERVICE}/{opening.method}"
        return self._maker.start(
            method,
            at,
            said.of_rpc(method, opening.peer() if opening.peer is not None else ""),
            parent=parse(opening.tracing[0]) or parent,
            kind=SpanKind.SERVER,
        )

    def _stream_context(self, stream: StreamOpening | None) -> SpanContext | None:
        """Of the span of a Multiplex stream, made when its first sampled call comes."""
        if stream is None:
            return None
        if stream.span is None:
            method = f"{_SERVICE}/Multiplex"
            span = self._maker.start(
                method,
                stream.opened_at,
                said.of_rpc(method, stream.peer),
                parent=parse(stream.tracing[0]),
                kind=SpanKind.SERVER,
            )
            stream.span, stream.on_end = span, span.end
        found: SpanContext = stream.span.get_span_context()
        return found

    def begin_call(self, method: str, tracing: tuple[str, str], peer: str) -> CallSpan | None:
        """Of a call that becomes no request. None: its caller is not traced."""
        parent = parse(tracing[0]) if says_sampled(tracing[0]) else None
        if parent is None:
            return None
        name = f"{_SERVICE}/{method}"
        attributes = said.of_rpc(name, peer)
        kind, now = SpanKind.SERVER, self._clock.now()
        return CallSpan(self._maker.start(name, now, attributes, parent=parent, kind=kind))

    # What travels to the agents.

    def attempt_context(self, attempt: Attempt) -> types_pb2.TraceContext | None:
        """Context of the attempt's span; of an unsampled request the caller's own."""
        spans = self._open.get(attempt.request.rid)
        if spans is None:
            entry: Entry | None = attempt.request.context
            if entry is None or not entry.traceparent:
                return None
            return types_pb2.TraceContext(
                traceparent=entry.traceparent, tracestate=entry.tracestate
            )
        context = self._attempt_span(spans, attempt).get_span_context()
        return types_pb2.TraceContext(
            traceparent=written(context), tracestate=spans.entry.tracestate
        )

    def batch_context(self, batch: Batch, items: Sequence[bytes]) -> types_pb2.TraceContext | None:
        """Context of the span of a batch of which these items leave now; None: none is sampled."""
        context = self._batches.packed(batch, items)
        return None if context is None else types_pb2.TraceContext(traceparent=written(context))

    # What the core recorded.

    def __call__(self, taken: Sequence[Record]) -> None:
        """Observe what the core recorded in a step."""
        late = self._late
        if self._open:
            for record in taken:
                self._observe(record)
        elif late is not None:
            finished, callers = records.FINISHED, self._callers
            for record in taken:
                if record.kind is finished and (request := record.request) is not None:
                    late.finished(request, callers.pop(request.rid, "") if callers else "")

    def _observe(self, record: Record) -> None:
        kind = record.kind
        if kind is records.DISPATCH_BATCH:
            self._dispatched(record)
        elif kind is records.FINISHED:
            self._finished(record)
        elif kind is records.NODE_SUSPECT or kind is records.NODE_LOST:
            self._node_event(record)
        else:
            handler = self._on.get(kind)
            if handler is not None and record.request is not None:
                spans = self._open.get(record.request.rid)
                if spans is not None:
                    handler(spans, record)

    def _attempt_span(self, spans: RequestSpans, attempt: Attempt) -> Span:
        """Made when it is first asked for: by the sender or by the record."""
        span = spans.attempts.get(attempt.dispatch_id)
        if span is None:
            node = attempt.node
            span = spans.start_attempt(self._maker, attempt, self.facts(node.node_id, node.epoch))
        return span

    def _dispatched(self, record: Record) -> None:
        batch = record.batch
        assert batch is not None
        members = [
            self._attempt_span(spans, attempt)
            for attempt in batch.attempts
            if (spans := self._open.get(attempt.request.rid)) is not None
        ]
        if members:
            self._batches.start(batch, members)

    def _submitted(self, spans: RequestSpans, record: Record) -> None:
        spans.event("admitted", self._maker.wall_ns(record.at))

    def _attempt_event(self, name: str, spans: RequestSpans, record: Record) -> None:
        if record.attempt is not None:
            span = spans.attempts.get(record.attempt.dispatch_id)
            if span is not None:
                span.add_event(name, timestamp=self._maker.wall_ns(record.at))

    def _node_event(self, record: Record) -> None:
        """On every open attempt of the node: what its trace later ends with has a cause."""
        at = self._maker.wall_ns(record.at)
        for spans in self._open.values():
            for attempt in spans.entry.request.attempts:
                span = spans.attempts.get(attempt.dispatch_id)
                if span is not None and attempt.node.node_id == record.node_id:
                    span.add_event(record.kind, said.plain(record.data), timestamp=at)

    def _attempt_ended(self, spans: RequestSpans, record: Record) -> None:
        attempt = record.attempt
        assert attempt is not None
        span = spans.attempts.pop(attempt.dispatch_id, None)
        if span is not None:
            self._maker.end_attempt(span, attempt, record.at)
        if attempt.batch.open_items == 0:
            self._batches.end(attempt.batch)

    def _failover(self, spans: RequestSpans, record: Record) -> None:
        about = said.plain(record.data)
        about["emitted_bytes"] = about.pop("emitted", 0)
        spans.left(self._maker.wall_ns(record.at), {"from": record.node_id, **about})

    def _preempted(self, spans: RequestSpans, record: Record) -> None:
        about = {"from": record.node_id, **said.plain(record.data)}
        spans.event(record.kind, self._maker.wall_ns(record.at), about)

    def _hedged(self, spans: RequestSpans, record: Record) -> None:
        about = said.plain(record.data)
        about = {"from": about.pop("slow_node", ""), "to": record.node_id, **about}
        spans.event(record.kind, self._maker.wall_ns(record.at), about)

    def _degraded(self, spans: RequestSpans, record: Record) -> None:
        about = said.plain(record.data)
        about = {"from": about.pop("source", ""), "to": record.pool, **about}
        spans.event(record.kind, self._maker.wall_ns(record.at), about)

    def _cancelled(self, spans: RequestSpans, record: Record) -> None:
        spans.event("cancel_requested", self._maker.wall_ns(record.at), said.plain(record.data))

    def _finished(self, record: Record) -> None:
        request = record.request
        assert request is not None
        spans = self._open.pop(request.rid, None)
        if spans is None:
            if self._late is not None:
                self._late.finished(request, self._callers.pop(request.rid, ""))
            return
        code = status.CODES.get(request.reason)
        if spans.rpc is not None:
            _end_rpc(spans.rpc, code.name if code else "OK")
        spans.finish(self._maker, record.attempt)

    def close(self, why: str) -> None:
        """The scheduler stops, or has lost its state: nobody will say how these ended."""
        now = self._maker.wall_ns(self._clock.now())
        for spans in self._open.values():
            spans.abandon(now, why)
        self._open.clear()
        self._callers.clear()
        self._batches.close()


class CallSpan:
    """See `rpc.traced_calls.CallTrace`."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.traceparent = written(span.get_span_context())

    def end(self, error: types_pb2.Error | None) -> None:
        """It is over."""
        if error is not None:
            reason = types_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
            self._span.set_attribute(names.ERROR_REASON, reason)
        _end_rpc(self._span, "OK" if error is None else status.code_name(error))
        self._span.end()


def _nothing_known(node_id: str, epoch: int) -> None:
    del node_id, epoch


def _end_rpc(span: Span, code: str) -> None:
    span.set_attribute(names.RPC_STATUS, code)
    if code in _SERVER_FAULTS:
        span.set_attribute(names.ERROR_TYPE, code)
        span.set_status(Status(StatusCode.ERROR))
