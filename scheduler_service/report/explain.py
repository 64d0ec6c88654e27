"""Why does this request wait, or what was decided for it? From the core's records, for people.

Nothing is kept for this beside what the core remembers anyway: the request with its attempts, the
bounded ring of placements, and the public events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from batchyard.v1 import admin_service_pb2 as pb
from scheduler_service.clock import Clock
from scheduler_service.core import explain, hedging, records
from scheduler_service.core.explain import Candidate, Placed, Waits
from scheduler_service.core.outcomes import AttemptState, Outcome, Reason, RequestClass
from scheduler_service.core.state import State
from scheduler_service.core.types import SECOND, Attempt, Instant, Request
from scheduler_service.eventlog import EventFilter, EventLog
from scheduler_service.report import explain_texts as texts
from scheduler_service.report.explain_texts import say
from scheduler_service.report.texts import Language
from scheduler_service.rpc import status

_PASSED_ON = (AttemptState.FAILED, AttemptState.LOST, AttemptState.REFUSED)


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision, before it is a message. Sorted by time, then by its place in a life."""

    at: Instant
    step: int
    kind: str
    outcome: str
    reason: str
    placed: Placed | None = None


class Explainer:
    """Explains requests of one scheduler."""

    def __init__(self, clock: Clock, eventlog: EventLog) -> None:
        self._clock = clock
        self._eventlog = eventlog

    def wait(self, state: State, request: Request, language: Language) -> pb.WaitReason | None:
        """What it waits for now; None: it does not wait."""
        waits = explain.waits(state, request)
        if waits is None:
            return None
        variables = {
            "pool": request.served_model,
            "ahead": waits.ahead,
            "words": ", ".join(sorted({c.filtered_by for c in waits.candidates if c.filtered_by})),
        }
        built = pb.WaitReason(
            code=waits.code,
            text=say(texts.WAITS, waits.code, language, variables),
            ahead=waits.ahead,
            nodes=[_candidate(each) for each in waits.candidates],
        )
        if waits.ahead:
            built.ahead_reason = _who_is_ahead(request, waits, language)
        if waits.start_bound:
            built.start_bound = waits.start_bound
        expected = _expected_start(state, request, waits)
        if expected is not None:
            built.estimated_start.CopyFrom(status.duration(expected))
        return built

    def decisions(self, state: State, request: Request, language: Language) -> list[Decided]:
        """What was decided for it so far, oldest first."""
        made = [
            *self._admitted(request, language),
            *self._degraded(request, language),
            *self._attempts(state, request, language),
            *self._finished(request, language),
        ]
        return sorted(made, key=lambda decided: (decided.at, decided.step))

    def write(self, decided: Decided) -> pb.Decision:
        """A decision as a message."""
        placed = decided.placed
        return pb.Decision(
            decide_time=self._clock.timestamp(decided.at),
            kind=decided.kind,
            outcome=decided.outcome,
            reason=decided.reason,
            candidates=[_candidate(each) for each in placed.candidates] if placed else [],
        )

    def _admitted(self, request: Request, language: Language) -> Iterator[Decided]:
        if request.outcome is Outcome.REJECTED:
            why = self._message(records.REJECTED, request)
            reason = f"{request.reason.name}: {why}" if why else request.reason.name
            yield Decided(request.received_at, 0, "admit", "rejected", reason)
            return
        variables = {"priority": request.priority, "task_type": request.task_type or "-"}
        text = say(texts.REASONS, "admit", language, variables)
        yield Decided(request.received_at, 0, "admit", "queued", text)

    def _degraded(self, request: Request, language: Language) -> Iterator[Decided]:
        """From the events, where they still tell of it."""
        if not request.degraded:
            return
        wanted = EventFilter(frozenset({records.DEGRADED}), request.request_id)
        for entry in self._eventlog.newest(wanted):
            if entry.tenant == request.tenant and entry.at >= request.received_at:
                data: Mapping[str, object] = entry.data or {}
                variables = {
                    "to": entry.pool,
                    "from": data.get("source", request.model),
                    "why": data.get("reason", ""),
                }
                text = say(texts.REASONS, "degrade", language, variables)
                yield Decided(entry.at, 1, "degrade", entry.pool, text)

    def _attempts(self, state: State, request: Request, language: Language) -> Iterator[Decided]:
        found = {placed.attempt.number: placed for placed in explain.placements_of(state, request)}
        for attempt in request.attempts:
            yield from _begun(state, attempt, found.get(attempt.number), language)
            yield from _ended(attempt, request, language)

    def _finished(self, request: Request, language: Language) -> Iterator[Decided]:
        if request.outcome is None:
            return
        error = "" if request.reason is Reason.NONE else request.reason.name
        kind = records.OF_OUTCOME.get(request.outcome)
        if kind == records.REJECTED:
            kind = None  # told already, by a line of its own
        if kind is not None and (why := self._message(kind, request)):
            error = f"{error}: {why}"
        text = say(texts.REASONS, "finish", language, {"error": error})
        yield Decided(request.finished_at, 6, "finish", request.outcome.value, text)

    def _message(self, kind: str, request: Request) -> str:
        """What the event of its end says; empty: it is no longer remembered."""
        wanted = EventFilter(frozenset({kind}), request.request_id)
        for entry in self._eventlog.newest(wanted):
            if entry.tenant == request.tenant and entry.at >= request.received_at:
                return str((entry.data or {}).get("message", ""))
        return ""


def is_incomplete(state: State, request: Request) -> bool:
    """Whether older placements of it may have left the ring."""
    ring = state.decisions
    full = len(ring) == ring.maxlen
    return bool(full and request.attempts and request.attempts[0].started_at < ring[0][0])


def _begun(
    state: State, attempt: Attempt, placed: Placed | None, language: Language
) -> Iterator[Decided]:
    at, batch = attempt.started_at, attempt.batch
    if attempt.chosen_by == hedging.RIVAL:
        yield Decided(at, 2, "hedge", "sent", say(texts.REASONS, "hedge", language, {}))
    else:
        chosen_by = "floor" if attempt.chosen_by == "floor" else "order"
        waited = {"wait": f"{attempt.queue_wait / SECOND:.3f}"}
        order = say(texts.REASONS, chosen_by, language, waited)
        yield Decided(at, 2, "order", attempt.chosen_by, order)
    if batch.atomic or len(batch.attempts) > 1:
        variables = {"size": len(batch.attempts), "close_reason": batch.close_reason}
        text = say(texts.REASONS, "batch", language, variables)
        yield Decided(at, 3, "batch", batch.batch_id, text)
    node = f"{attempt.node.node_id}/{attempt.engine.engine_id}"
    yield Decided(at, 4, "place", node, _why_there(state, attempt, placed, language), placed)


def _why_there(state: State, attempt: Attempt, placed: Placed | None, language: Language) -> str:
    if attempt.chosen_by == hedging.RIVAL:
        return say(texts.REASONS, "rival", language, {})
    if placed is not None:
        eligible = sum(c.score is not None for c in placed.candidates) + placed.others
        return say(texts.REASONS, "place", language, {"eligible": eligible})
    ring = state.decisions
    remembered = not ring or attempt.started_at >= ring[0][0]
    joined = remembered and len(attempt.batch.attempts) > 1
    return say(texts.REASONS, "joined" if joined else "forgotten", language, {})


def _ended(attempt: Attempt, request: Request, language: Language) -> Iterator[Decided]:
    if attempt.state is AttemptState.REVOKED:
        text = say(texts.REASONS, "revoke", language, {})
        yield Decided(attempt.ended_at, 5, "revoke", "cancelled", text)
    elif attempt.state is AttemptState.PREEMPTED:
        text = say(texts.REASONS, "preempt", language, {})
        yield Decided(attempt.ended_at, 5, "preempt", "requeued", text)
    elif attempt.state in _PASSED_ON:
        variables = {
            "number": attempt.number,
            "node": attempt.node.node_id,
            "error": attempt.reason.name,
        }
        again = attempt is not request.attempts[-1] or request.outcome is None
        text = say(texts.REASONS, "fail_over", language, variables)
        yield Decided(attempt.ended_at, 5, "fail_over", "retried" if again else "given_up", text)


def _who_is_ahead(request: Request, waits: Waits, language: Language) -> str:
    """How many of which kind, and why they go first."""
    parts = []
    if waits.calls:
        parts.append(say(texts.AHEAD, "calls", language, {"count": waits.calls}))
    parts += [
        say(texts.AHEAD, "urgent", language, {"count": count, "priority": priority})
        for priority, count in waits.urgent
    ]
    older = waits.ahead - waits.calls - sum(count for _, count in waits.urgent)
    if older:
        variables = {"count": older, "priority": request.priority}
        parts.append(say(texts.AHEAD, "older", language, variables))
    jobs_last = request.request_class is RequestClass.JOB
    why = say(texts.AHEAD, "jobs_last" if jobs_last else "priority", language, {})
    return texts.JOIN[language].join(parts) + f" ({why})"


def _expected_start(state: State, request: Request, waits: Waits) -> int | None:
    """By the admission policy's own estimate; None: nothing is known yet."""
    pool = state.pools[request.served_model]
    if (
        not pool.usable
        or not pool.estimate.mean
        or waits.code in ("no_fit", "retry_later", "pool_paused")
    ):
        return None
    load = state.load_of(pool, request)
    load.ahead = waits.ahead
    return state.policies.admission.estimated_wait(load)


def _candidate(candidate: Candidate) -> pb.Candidate:
    built = pb.Candidate(
        node_id=candidate.node_id,
        engine_id=candidate.engine_id,
        filtered_by=candidate.filtered_by,
        chosen=candidate.chosen,
    )
    if candidate.score is not None:
        built.score = candidate.score / SECOND
    return built
