"""Which spans does one request have? Made here, live or afterwards, from the core's books.

schedule MODEL
  queue wait            one per stay in the queue, also of the last one, which no attempt ended
  attempt N             one per dispatch; links to its batch and to the attempt that it replaces
  deliver               first output to the last that was written
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from scheduler_service.clock import Clock
from scheduler_service.core.hedging import RIVAL
from scheduler_service.core.outcomes import AttemptState, Outcome
from scheduler_service.core.state import State
from scheduler_service.core.types import ADOPTED, MILLISECOND, SECOND, Attempt, Instant, Request
from scheduler_service.rpc.entries import Entry
from scheduler_service.telemetry import span_attributes as said
from scheduler_service.telemetry.span_contexts import links_to, under
from service_kit import span_names as names

SHIFT_FOR: Final = SECOND
_BAD = (AttemptState.FAILED, AttemptState.LOST)
_NOT_QUEUED: Final = (RIVAL, ADOPTED)  # attempts whose requests did not wait for them
_WELL = (Outcome.SUCCEEDED, Outcome.CANCELLED)


class SpanMaker:
    """Starts spans at the core's instants."""

    def __init__(self, tracer: Any, clock: Clock, state: Callable[[], State]) -> None:
        self._tracer = tracer
        self.clock = clock
        self.state = state
        self._shift = 0  # wall clock minus the core's
        self._shifted_at: Instant = -SHIFT_FOR

    def wall_ns(self, at: Instant) -> int:
        """Wall time of an instant. Whoever is interrupted between the two clocks reads too little,
        so of a few readings the largest counts, for a while.
        """
        now = self.clock.now()
        if now - self._shifted_at >= SHIFT_FOR:
            self._shift = max(self.clock.wall_ns(0) for _ in range(3))
            self._shifted_at = now
        return at + self._shift

    def start(
        self,
        name: str,
        at: Instant,
        attributes: Mapping[str, Any],
        *,
        parent: SpanContext | None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[SpanContext | None] = (),
    ) -> Span:
        """A span that began at `at`. `parent`: None makes it a root."""
        span: Span = self._tracer.start_span(
            name,
            context=under(parent),
            kind=kind,
            start_time=self.wall_ns(at),
            links=links_to(*links),
            attributes=attributes,
        )
        return span

    def closed(
        self,
        name: str,
        begin: Instant,
        end: Instant,
        attributes: Mapping[str, Any],
        *,
        parent: SpanContext,
        links: Sequence[SpanContext | None] = (),
    ) -> None:
        """A span that has ended already."""
        span = self.start(name, begin, attributes, parent=parent, links=links)
        span.end(self.wall_ns(end))

    def wait(
        self, attempt: Attempt, parent: SpanContext, after: SpanContext | None, **more: int
    ) -> None:
        """The stay in the queue that an attempt ended, if it was one."""
        if attempt.chosen_by in _NOT_QUEUED:
            return
        end = attempt.started_at
        attributes = {**said.of_wait(attempt, self.state()), **more}
        # The first one has waited since it came, also for the core's next step.
        first = attempt.number == 1
        begin = attempt.request.received_at if first else end - attempt.queue_wait
        self.closed("queue wait", begin, end, attributes, parent=parent, links=[after])

    def last_wait(
        self, request: Request, parent: SpanContext, after: SpanContext | None, **more: int
    ) -> None:
        """The stay in the queue that the request's end ended, if it waited then."""
        if not ended_waiting(request):
            return
        attributes = {**said.of_last_wait(request, self.state()), **more}
        begin = request.queued_at if request.attempts else request.received_at
        end = request.finished_at
        self.closed("queue wait", begin, end, attributes, parent=parent, links=[after])

    def end_attempt(self, span: Span, attempt: Attempt, at: Instant) -> None:
        """Say how it went, and close it."""
        span.set_attributes(said.of_attempt_end(attempt))
        if attempt.state in _BAD:
            span.set_attribute(names.ERROR_TYPE, attempt.reason.name)
            span.set_status(Status(StatusCode.ERROR, attempt.message))
        span.end(self.wall_ns(at))

    def end_schedule(self, span: Span, request: Request, attempt: Attempt | None) -> None:
        """Say how the request went, and close it."""
        span.set_attributes(said.of_end(request, attempt))
        if request.outcome not in _WELL:
            span.set_attribute(names.ERROR_TYPE, request.reason.name)
            span.set_status(Status(StatusCode.ERROR, request.reason.name))
        span.end(self.wall_ns(request.finished_at))


def ended_waiting(request: Request) -> bool:
    """Whether it was in the queue when it ended. Its last stay is then in no attempt."""
    if request.outcome is Outcome.REJECTED or not request.queued_at:
        return False
    attempts = request.attempts
    if attempts and attempts[-1].started_at > request.queued_at:
        return False
    stay = request.finished_at - request.queued_at
    return 0 < stay <= request.queue_time - sum(a.queue_wait for a in attempts)


class RequestSpans:
    """The open spans of one sampled request, from its entry until the last is closed."""

    __slots__ = (
        "attempts", "deliver", "entered", "entry", "last_attempt", "moved", "rpc", "schedule",
        "writing",
    )  # fmt: skip

    def __init__(
        self, entry: Entry, rpc: Span | None, schedule: Span, entered: dict[str, int]
    ) -> None:
        self.entry = entry
        self.rpc: Span | None = rpc
        self.schedule = schedule
        self.entered = entered  # of the queue, when it joined it
        self.attempts: dict[int, Span] = {}  # by dispatch id
        self.last_attempt: SpanContext | None = None
        self.moved: tuple[int, dict[str, Any]] | None = None  # a failover whose end is not known
        self.writing = False  # a stream of its own is being written, and `delivered` will be called
        self.deliver: Span | None = None

    @property
    def context(self) -> SpanContext:
        """Of `schedule`, the parent of all others."""
        return self.schedule.get_span_context()

    def event(self, name: str, at_ns: int, attributes: Mapping[str, Any] | None = None) -> None:
        """On `schedule`."""
        self.schedule.add_event(name, attributes, timestamp=at_ns)

    def start_attempt(
        self, maker: SpanMaker, attempt: Attempt, facts: said.NodeFacts | None
    ) -> Span:
        """With the stay in the queue before it."""
        self._arrived(attempt)
        maker.wait(attempt, self.context, self.last_attempt, **self.entered)
        self.entered = {}
        span = maker.start(
            f"attempt {attempt.number}",
            attempt.started_at,
            said.of_attempt(attempt, maker.state(), facts),
            parent=self.context,
            kind=SpanKind.CLIENT,
            links=[self.last_attempt],
        )
        self.attempts[attempt.dispatch_id] = span
        self.last_attempt = span.get_span_context()
        return span

    def left(self, at_ns: int, attributes: dict[str, Any]) -> None:
        """It fails over: told when it is known where to."""
        self._arrived(None)
        self.moved = at_ns, attributes

    def _arrived(self, attempt: Attempt | None) -> None:
        if self.moved is not None:
            (at_ns, attributes), self.moved = self.moved, None
            if attempt is not None:
                attributes["to"] = attempt.node.node_id
            self.event("failover", at_ns, attributes)

    def finish(self, maker: SpanMaker, attempt: Attempt | None) -> None:
        """The core ended it, with this attempt: close all but what is still being written."""
        request = self.entry.request
        end = maker.wall_ns(request.finished_at)
        self._arrived(None)
        maker.last_wait(request, self.context, self.last_attempt, **self.entered)
        for span in self.attempts.values():
            span.end(end)
        if self.entry.first_output_at:
            self.deliver = self._start_deliver(maker)
        maker.end_schedule(self.schedule, request, attempt)
        if not self.writing:
            self._close(end)

    def _start_deliver(self, maker: SpanMaker) -> Span:
        entry = self.entry
        output = entry.request.output
        attributes = {
            names.DELTAS: entry.deltas,
            names.BYTES: sum(output.offsets.values()) if output is not None else 0,
        }
        span = maker.start("deliver", entry.first_output_at, attributes, parent=self.context)
        if entry.request.reason.name == "CLIENT_TOO_SLOW":
            span.add_event("client_slow", timestamp=maker.wall_ns(entry.request.finished_at))
        return span

    def delivered(self, clock: Clock, messages: int, stalled_ns: int) -> None:
        """Its stream is written, or its reader has gone. `messages`: with output; `stalled_ns`:
        that writing waited for the reader.
        """
        self.writing = False
        if self.deliver is not None:
            coalesced = max(0, self.entry.deltas - messages)
            self.deliver.set_attribute(names.COALESCED, coalesced)
            self.deliver.set_attribute(names.STALL_MS, stalled_ns // MILLISECOND)
        if self.entry.request.finished_at:
            self._close(clock.wall_ns(clock.now()))

    def _close(self, end_ns: int) -> None:
        if self.deliver is not None:
            self.deliver.end(end_ns)
        if self.rpc is not None:
            self.rpc.end(end_ns)

    def abandon(self, end_ns: int, why: str) -> None:
        """Nobody will say how it ended."""
        self._arrived(None)
        for span in (*self.attempts.values(), self.schedule, self.deliver, self.rpc):
            if span is not None and span.is_recording():
                span.set_attribute(names.ERROR_TYPE, why)
                span.set_status(Status(StatusCode.ERROR, why))
                span.end(end_ns)
