"""Which unsampled requests get a trace after all? Those that went wrong, made when they have ended.

Nothing is kept for it: the core's books have the times of each attempt anyway. A request that
failed, expired, was refused, was degraded, was tried more than once or took long is told in a fresh
trace that links to its caller's. What its nodes did is not in it (`batchyard.trace.partial`). The
rate is limited, refusals by themselves, so that a storm of errors costs no more than a quiet day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from scheduler_service.clock import Clock
from scheduler_service.core.hedging import RIVAL
from scheduler_service.core.outcomes import AttemptState, Outcome
from scheduler_service.core.types import SECOND, Attempt, Duration, Instant, Request
from service_kit import span_names as names

KEPT_PER_S: Final = 2.0
REFUSALS_PER_S: Final = 0.5
SLOW: Final = 30 * SECOND  # from receipt to end
ATTEMPTS_MAX: Final = 16  # spans of one trace, the latest
_BAD: Final = (AttemptState.FAILED, AttemptState.LOST)


class Bucket:
    """Lets so many through a second, and as many at once as come in two seconds."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._most = max(1.0, 2 * per_s)
        self._tokens = self._most
        self._at: Instant = 0

    def take(self, now: Instant) -> bool:
        """Whether one more may pass."""
        gained = (now - self._at) / SECOND * self._per_s
        self._tokens, self._at = min(self._most, self._tokens + gained), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class LateKeeper:
    """Makes the traces."""

    def __init__(self, tracer: Any, clock: Clock, *, slow: Duration = SLOW) -> None:
        self.kept = 0
        self._tracer = tracer
        self._clock = clock
        self._slow = slow
        self._others = Bucket(KEPT_PER_S)
        self._refusals = Bucket(REFUSALS_PER_S)

    def finished(self, request: Request, caller: SpanContext | None) -> None:
        """Keep it, if it is worth a trace and the rate allows."""
        why = self._why(request)
        if not why:
            return
        bucket = self._refusals if why == "rejected" else self._others
        if bucket.take(request.finished_at):
            self.kept += 1
            self._tell(request, why, caller)

    def _why(self, request: Request) -> str:
        """In one word; empty: nothing special."""
        outcome = request.outcome
        if outcome is not Outcome.SUCCEEDED and outcome is not Outcome.CANCELLED:
            return str(outcome)
        if request.degraded:
            return "degraded"
        if len(request.attempts) > 1:
            return "failed_over"
        return "slow" if request.finished_at - request.received_at > self._slow else ""

    def _tell(self, request: Request, why: str, caller: SpanContext | None) -> None:
        schedule = self._start(
            f"schedule {request.model}",
            request.received_at,
            {
                names.REQUEST_ID: request.request_id,
                names.PRIORITY: request.priority,
                names.TASK_TYPE: request.task_type,
                names.MODEL: request.model,
                names.TENANT: request.tenant,
                names.FINISH_REASON: str(request.outcome),
                names.ATTEMPTS: len(request.attempts),
                names.DEGRADED: request.degraded,
                names.QUEUE_MS: request.queue_time // 1_000_000,
                names.PARTIAL: True,
                names.KEPT_FOR: why,
            },
            kind=SpanKind.SERVER,
            links=[caller] if caller is not None else [],
        )
        before: SpanContext | None = None
        for attempt in request.attempts[-ATTEMPTS_MAX:]:
            before = self._attempt(schedule, attempt, before)
        if request.outcome not in (Outcome.SUCCEEDED, Outcome.CANCELLED):
            schedule.set_attribute(names.ERROR_TYPE, request.reason.name)
            schedule.set_status(Status(StatusCode.ERROR, request.reason.name))
        schedule.end(self._clock.wall_ns(request.finished_at))
        request.trace_id = f"{schedule.get_span_context().trace_id:032x}"

    def _attempt(self, schedule: Span, attempt: Attempt, before: SpanContext | None) -> SpanContext:
        links = [before] if before is not None else []
        started, request = attempt.started_at, attempt.request
        is_rival = attempt.chosen_by == RIVAL
        if not is_rival:
            waited = {
                names.QUEUE_NAME: attempt.model,
                names.CHOSEN_BY: attempt.chosen_by,
                names.QUEUE_OUTCOME: "dispatched",
                names.QUEUE_REASON: "failover" if links else "submit",
            }
            since = started - attempt.queue_wait
            wait = self._start("queue wait", since, waited, under=schedule, links=links)
            wait.end(self._clock.wall_ns(started))
        about = {
            names.ATTEMPT: attempt.number,
            names.REQUEST_ID: request.request_id,
            names.NODE_ID: attempt.node.node_id,
            names.DISPATCH_ID: str(attempt.dispatch_id),
            names.BATCH_ID: attempt.batch.batch_id,
            names.BATCH_SIZE: len(attempt.batch.attempts),
            names.OUTPUT_TOKENS: attempt.output_tokens,
        }
        if is_rival:
            about[names.HEDGE] = True
        name = f"attempt {attempt.number}"
        # INTERNAL: no span of a node will ever answer it.
        span = self._start(name, started, about, under=schedule, links=links)
        if attempt.state in _BAD:
            span.set_attribute(names.ERROR_TYPE, attempt.reason.name)
            span.set_status(Status(StatusCode.ERROR, attempt.message))
        span.end(self._clock.wall_ns(attempt.ended_at or request.finished_at))
        return span.get_span_context()

    def _start(
        self,
        name: str,
        at: Instant,
        attributes: Mapping[str, Any],
        *,
        under: Span | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[SpanContext],
    ) -> Span:
        parent = under if under is not None else trace.INVALID_SPAN
        span: Span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(parent),
            kind=kind,
            start_time=self._clock.wall_ns(at),
            links=[Link(context) for context in links],
            attributes={key: value for key, value in attributes.items() if value != ""},
        )
        return span
