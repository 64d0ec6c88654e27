"""What does a request's trace show? Spans of the scheduler, made from the core's records.

An observer of the driver, and the source of the contexts that travel to the agents. Only sampled
requests cost anything here. Start and end times are given explicitly, from the core's instants; no
span is held in a context variable. The tree is in `docs/tracing.md`:

    schedule MODEL
      queue wait            one per stay in the queue
      attempt N             one per dispatch; links to its batch and to the attempt that it replaces
      deliver               first to last output
    send batch MODEL        its own trace; links to each member's attempt
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from batchyard.v1 import types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.hedging import RIVAL
from scheduler_service.core.outcomes import AttemptState, Outcome
from scheduler_service.core.records import Record
from scheduler_service.core.types import NEVER, Attempt, Batch, Request
from scheduler_service.rpc import status
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening
from scheduler_service.telemetry.late_keep import LateKeeper
from scheduler_service.telemetry.sampling import RootSampler
from service_kit import span_names as names

MAX_LINKS: Final = 128  # the SDK drops more, silently
_SERVICE: Final = "batchyard.v1.SchedulerService"


class RequestSpans:
    """The open spans of one sampled request."""

    __slots__ = ("attempts", "entry", "last_attempt", "rpc", "schedule")

    def __init__(self, entry: Entry, rpc: Span | None, schedule: Span) -> None:
        self.entry = entry
        self.rpc = rpc
        self.schedule = schedule
        self.attempts: dict[int, Span] = {}  # by dispatch id
        self.last_attempt: SpanContext | None = None


class RequestTracer:
    """Makes the spans."""

    def __init__(self, provider: Any, clock: Clock, sampler: RootSampler | None = None) -> None:
        self._tracer = provider.get_tracer("batchyard.scheduler")
        self._clock = clock
        self._sampler = sampler or RootSampler()
        self._open: dict[int, RequestSpans] = {}  # by rid
        self._batches: dict[str, Span] = {}  # sampled ones, until their record came
        self._late = None if self._sampler.is_off else LateKeeper(self._tracer, clock)
        self._callers: dict[int, SpanContext] = {}  # of unsampled ones that named one, by rid
        self._on: dict[str, Callable[[Record], None]] = {
            records.SUBMIT: self._submitted,
            records.DISPATCH_BATCH: self._dispatched,
            records.ATTEMPT_RUNNING: self._running,
            records.FIRST_OUTPUT: self._first_output,
            records.ATTEMPT_ENDED: self._attempt_ended,
            records.FAILOVER: self._failover,
            records.HEDGED: self._hedged,
            records.DEGRADED: self._degraded,
            records.CANCELLED: self._cancelled,
            records.NODE_SUSPECT: self._node_event,
            records.NODE_LOST: self._node_event,
            records.FINISHED: self._finished,
        }

    def on_entry(self, entry: Entry, opening: Opening) -> None:
        """Decide whether the request is traced; open its spans if so."""
        parent = _parse(entry.traceparent)
        if parent is not None:
            entry.sampled = bool(parent.trace_flags & TraceFlags.SAMPLED)
            entry.trace_id = f"{parent.trace_id:032x}"
        else:
            trace_id = int.from_bytes(os.urandom(16), "big")
            entry.sampled = self._sampler.sample(trace_id, entry.request.received_at)
        if not entry.sampled:
            if parent is not None and self._late is not None:
                self._callers[entry.request.rid] = parent
            return
        request = entry.request
        start = self._clock.wall_ns(request.received_at)
        rpc = self._rpc_span(opening, parent, start) if opening.method else None
        inner = rpc.get_span_context() if rpc is not None else parent
        same_trace = parent is None or (inner is not None and inner.trace_id == parent.trace_id)
        schedule = self._tracer.start_span(
            f"schedule {request.model}",
            context=_under(inner if same_trace else parent),
            kind=SpanKind.INTERNAL if rpc is not None else SpanKind.SERVER,
            start_time=start,
            attributes=_request_attributes(request),
            links=_links(opening.link),
        )
        request.trace_id = entry.trace_id = f"{schedule.get_span_context().trace_id:032x}"
        self._open[request.rid] = RequestSpans(entry, rpc, schedule)

    def _rpc_span(self, opening: Opening, parent: SpanContext | None, start: int) -> Span:
        span: Span = self._tracer.start_span(
            f"{_SERVICE}/{opening.method}",
            context=_under(_parse(opening.tracing[0]) or parent),
            kind=SpanKind.SERVER,
            start_time=start,
            attributes={
                names.RPC_SYSTEM: "grpc",
                names.RPC_METHOD: f"{_SERVICE}/{opening.method}",
            },
        )
        return span

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
            traceparent=_format(context), tracestate=spans.entry.tracestate
        )

    def batch_context(self, batch: Batch) -> types_pb2.TraceContext | None:
        """Context of the batch's span; None where no member is sampled."""
        span = self._batch_span(batch)
        if span is None:
            return None
        return types_pb2.TraceContext(traceparent=_format(span.get_span_context()))

    def __call__(self, taken: Sequence[Record]) -> None:
        """Observe what the core recorded in a step."""
        late = self._late
        if self._open:
            for record in taken:
                handler = self._on.get(record.kind)
                if handler is not None:
                    handler(record)
        elif late is not None:
            for record in taken:
                if record.kind is records.FINISHED:
                    self._end_unsampled(late, record)

    def _end_unsampled(self, late: LateKeeper, record: Record) -> None:
        request = record.request
        assert request is not None
        callers = self._callers
        late.finished(request, callers.pop(request.rid, None) if callers else None)

    def _attempt_span(self, spans: RequestSpans, attempt: Attempt) -> Span:
        """Made when it is first asked for: by the sender or by the record."""
        span = spans.attempts.get(attempt.dispatch_id)
        if span is None:
            span = self._start_attempt(spans, attempt)
            spans.attempts[attempt.dispatch_id] = span
            spans.last_attempt = span.get_span_context()
        return span

    def _start_attempt(self, spans: RequestSpans, attempt: Attempt) -> Span:
        under = trace.set_span_in_context(spans.schedule)
        start = self._clock.wall_ns(attempt.started_at)
        replaced = [Link(spans.last_attempt)] if spans.last_attempt is not None else []
        request, batch = attempt.request, attempt.batch
        is_rival = attempt.chosen_by == RIVAL  # it did not wait: its request was out already
        if not is_rival:
            wait = self._tracer.start_span(
                "queue wait",
                context=under,
                start_time=start - attempt.queue_wait,
                links=replaced,
                attributes={
                    names.QUEUE_NAME: attempt.model,
                    names.PRIORITY: request.priority,
                    names.CHOSEN_BY: attempt.chosen_by,
                    names.QUEUE_OUTCOME: "dispatched",
                    names.QUEUE_REASON: "failover" if replaced else "submit",
                },
            )
            wait.end(start)
        attributes: dict[str, Any] = {
            names.ATTEMPT: attempt.number,
            names.REQUEST_ID: request.request_id,
            names.NODE_ID: attempt.node.node_id,
            names.DISPATCH_ID: str(attempt.dispatch_id),
            names.BATCH_ID: batch.batch_id,
            names.BATCH_SIZE: len(batch.attempts),
            names.BATCH_POSITION: batch.attempts.index(attempt),
        }
        if is_rival:
            attributes[names.HEDGE] = True
        if request.continuing and request.output is not None:
            attributes[names.RESUME_MODE] = "continue"
            attributes[names.RESUME_BYTES] = sum(request.output.offsets.values())
        span: Span = self._tracer.start_span(
            f"attempt {attempt.number}",
            context=under,
            kind=SpanKind.CLIENT,
            start_time=start,
            links=replaced,
            attributes=attributes,
        )
        return span

    def _batch_span(self, batch: Batch) -> Span | None:
        """A trace of its own; linked with each member both ways."""
        known = self._batches.get(batch.batch_id)
        if known is not None:
            return known
        members = [
            self._attempt_span(spans, attempt)
            for attempt in batch.attempts
            if (spans := self._open.get(attempt.request.rid)) is not None
        ]
        if not members:
            return None
        span: Span = self._tracer.start_span(
            f"send batch {batch.model}",
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=SpanKind.PRODUCER,
            start_time=self._clock.wall_ns(batch.created_at),
            links=[Link(m.get_span_context()) for m in members[:MAX_LINKS]],
            attributes={
                names.BATCH_ID: batch.batch_id,
                names.BATCH_SIZE: len(batch.attempts),
                names.BATCH_CLOSE_REASON: batch.close_reason,
                names.BATCH_OLDEST_WAIT_MS: batch.oldest_wait // 1_000_000,
                names.NODE_ID: batch.engine.node.node_id,
            },
        )
        for member in members:
            member.add_link(span.get_span_context())
        self._batches[batch.batch_id] = span
        return span

    def _spans(self, record: Record) -> RequestSpans | None:
        return self._open.get(record.request.rid) if record.request is not None else None

    def _submitted(self, record: Record) -> None:
        spans = self._spans(record)
        if spans is not None:
            spans.schedule.add_event("admitted", timestamp=self._clock.wall_ns(record.at))

    def _dispatched(self, record: Record) -> None:
        assert record.batch is not None
        span = self._batch_span(record.batch)
        if span is not None:
            span.end(self._clock.wall_ns(record.at))
            del self._batches[record.batch.batch_id]

    def _attempt_event(self, record: Record, name: str) -> None:
        spans = self._spans(record)
        if spans is not None and record.attempt is not None:
            span = spans.attempts.get(record.attempt.dispatch_id)
            if span is not None:
                span.add_event(name, timestamp=self._clock.wall_ns(record.at))

    def _running(self, record: Record) -> None:
        self._attempt_event(record, "running")

    def _first_output(self, record: Record) -> None:
        self._attempt_event(record, "first_token")

    def _node_event(self, record: Record) -> None:
        """On every open attempt of the node: what its trace later ends with has a cause."""
        at = self._clock.wall_ns(record.at)
        for spans in self._open.values():
            for attempt in spans.entry.request.attempts:
                span = spans.attempts.get(attempt.dispatch_id)
                if span is not None and attempt.node.node_id == record.node_id:
                    span.add_event(record.kind, _text(record.data), timestamp=at)

    def _attempt_ended(self, record: Record) -> None:
        spans, attempt = self._spans(record), record.attempt
        if spans is None or attempt is None:
            return
        span = spans.attempts.pop(attempt.dispatch_id, None)
        if span is None:
            return
        span.set_attribute(names.OUTPUT_TOKENS, attempt.output_tokens)
        if attempt.state in (AttemptState.LOST, AttemptState.FAILED):
            span.set_attribute(names.ERROR_TYPE, attempt.reason.name)
            span.set_status(Status(StatusCode.ERROR, attempt.message))
        span.end(self._clock.wall_ns(record.at))

    def _schedule_event(self, record: Record, name: str) -> None:
        spans = self._spans(record)
        if spans is not None:
            attributes = _text(record.data)
            if record.node_id:
                attributes["from"] = record.node_id
            spans.schedule.add_event(name, attributes, timestamp=self._clock.wall_ns(record.at))

    def _failover(self, record: Record) -> None:
        self._schedule_event(record, "failover")

    def _hedged(self, record: Record) -> None:
        self._schedule_event(record, "hedged")

    def _degraded(self, record: Record) -> None:
        self._schedule_event(record, "degraded")

    def _cancelled(self, record: Record) -> None:
        self._schedule_event(record, "cancel_requested")

    def _finished(self, record: Record) -> None:
        """Close whatever is open of the request."""
        assert record.request is not None
        spans = self._open.pop(record.request.rid, None)
        if spans is None:
            if self._late is not None:
                self._end_unsampled(self._late, record)
            return
        request, entry = record.request, spans.entry
        end = self._clock.wall_ns(record.at)
        for span in spans.attempts.values():
            span.end(end)
        if entry.first_output_at:
            self._deliver(spans, end)
        spans.schedule.set_attributes(_end_attributes(request))
        if request.outcome not in (Outcome.SUCCEEDED, Outcome.CANCELLED):
            spans.schedule.set_attribute(names.ERROR_TYPE, request.reason.name)
            spans.schedule.set_status(Status(StatusCode.ERROR, request.reason.name))
        spans.schedule.end(end)
        if spans.rpc is not None:
            code = status.CODES.get(request.reason)
            spans.rpc.set_attribute(names.RPC_STATUS, code.name if code else "OK")
            spans.rpc.end(end)

    def _deliver(self, spans: RequestSpans, end: int) -> None:
        output = spans.entry.request.output
        deliver = self._tracer.start_span(
            "deliver",
            context=trace.set_span_in_context(spans.schedule),
            start_time=self._clock.wall_ns(spans.entry.first_output_at),
            attributes={
                names.DELTAS: spans.entry.deltas,
                names.BYTES: sum(output.offsets.values()) if output is not None else 0,
            },
        )
        deliver.end(end)


def _request_attributes(request: Request) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        names.REQUEST_ID: request.request_id,
        names.PRIORITY: request.priority,
        names.TASK_TYPE: request.task_type,
        names.MODEL: request.model,
        names.COST_TOKENS: request.prompt_tokens + request.output_tokens,
    }
    if request.tenant:
        attributes[names.TENANT] = request.tenant
    if request.deadline < NEVER:
        left = (request.deadline - request.received_at) // 1_000_000
        attributes[names.DEADLINE_REMAINING_MS] = left
    return attributes


def _end_attributes(request: Request) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        names.FINISH_REASON: str(request.outcome),
        names.ATTEMPTS: len(request.attempts),
        names.DEGRADED: request.degraded,
        names.QUEUE_MS: request.queue_time // 1_000_000,
    }
    if request.degraded:
        attributes[names.DEGRADE_REASON] = request.degrade_reason
    return attributes


def _text(data: dict[str, Any] | None) -> dict[str, Any]:
    plain = (str, int, float, bool)
    return {k: v if isinstance(v, plain) else str(v) for k, v in (data or {}).items()}


def _links(traceparent: str) -> list[Link]:
    """To what a traceparent names; none where it names nothing."""
    context = _parse(traceparent)
    return [] if context is None else [Link(context)]


def _parse(traceparent: str) -> SpanContext | None:
    """The context that a traceparent names; None where it is none."""
    parts = traceparent.split("-")
    if len(parts) < 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        context = SpanContext(
            int(parts[1], 16), int(parts[2], 16), True, TraceFlags(int(parts[3], 16))
        )
    except ValueError:
        return None
    return context if context.is_valid else None


def _format(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _under(parent: SpanContext | None) -> Any:
    """A context whose current span is `parent`, or nobody."""
    span = NonRecordingSpan(parent) if parent is not None else trace.INVALID_SPAN
    return trace.set_span_in_context(span)
