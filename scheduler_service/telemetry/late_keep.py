"""Which unsampled requests get a trace after all? Those that went wrong, made when they have ended.

Nothing is kept for it: the core's books have the times of each attempt anyway. A request that
failed, expired, was refused, was degraded, was tried more than once or took long is told in a fresh
trace that links to its caller's. What its nodes did is not in it (`batchyard.trace.partial`). The
rate is limited, refusals by themselves, so that a storm of errors costs no more than a quiet day.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import SpanContext, SpanKind

from scheduler_service.core.hedging import RIVAL
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import SECOND, Attempt, Duration, Instant, Request
from scheduler_service.telemetry import span_attributes as said
from scheduler_service.telemetry.request_spans import SpanMaker
from scheduler_service.telemetry.span_contexts import parse
from service_kit import span_names as names

KEPT_PER_S: Final = 2.0
REFUSALS_PER_S: Final = 0.5
SLOW: Final = 30 * SECOND  # from receipt to end
ATTEMPTS_MAX: Final = 16  # spans of one trace, the latest


_SUCCEEDED: Final = Outcome.SUCCEEDED  # a look-up costs 70 ns each


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

    def __init__(self, maker: SpanMaker, *, slow: Duration = SLOW) -> None:
        self.kept = 0
        self._maker = maker
        self._slow = slow
        self._others = Bucket(KEPT_PER_S)
        self._refusals = Bucket(REFUSALS_PER_S)

    def finished(self, request: Request, caller: str) -> None:
        """Keep it, if it is worth a trace and the rate allows. `caller`: its traceparent."""
        if (  # as nearly all end
            request.outcome is _SUCCEEDED
            and len(request.attempts) < 2
            and not request.degrade_reason
            and request.finished_at - request.received_at <= self._slow
        ):
            return
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
        rivals = sum(attempt.chosen_by == RIVAL for attempt in request.attempts)
        if len(request.attempts) > 1 + request.preemptions + rivals:
            return "failed_over"
        return "slow" if request.finished_at - request.received_at > self._slow else ""

    def _tell(self, request: Request, why: str, caller: str) -> None:
        maker = self._maker
        schedule = maker.start(
            f"schedule {request.model}",
            request.received_at,
            said.of_request(request) | {names.PARTIAL: True, names.KEPT_FOR: why},
            parent=None,
            kind=SpanKind.SERVER,
            links=[parse(caller)],
        )
        context = schedule.get_span_context()
        before: SpanContext | None = None
        for attempt in request.attempts[-ATTEMPTS_MAX:]:
            before = self._attempt(context, attempt, before)
        maker.last_wait(request, context, before)
        last = request.attempts[-1] if request.attempts else None
        maker.end_schedule(schedule, request, last)
        request.trace_id = f"{context.trace_id:032x}"

    def _attempt(
        self, parent: SpanContext, attempt: Attempt, before: SpanContext | None
    ) -> SpanContext:
        maker = self._maker
        maker.wait(attempt, parent, before)
        # INTERNAL: no span of a node will ever answer it.
        span = maker.start(
            f"attempt {attempt.number}",
            attempt.started_at,
            said.of_attempt(attempt, maker.state(), None),
            parent=parent,
            links=[before],
        )
        maker.end_attempt(span, attempt, attempt.ended_at or attempt.request.finished_at)
        return span.get_span_context()
