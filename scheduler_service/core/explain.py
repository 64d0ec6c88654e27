"""Why did it go there, and what does it wait for? Told afterwards, at nearly no cost before.

Each placement leaves one tuple of references in a bounded ring (`State.decisions`); what it refers
to is not changed afterwards. Only who asks pays for making sense of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler_service.core import condition
from scheduler_service.core.outcomes import RequestClass, RequestState
from scheduler_service.core.placement import Choice, Fit, objections, room_of
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import Attempt, Duration, Engine, Instant, Request

CANDIDATES_MAX = 32  # that an explanation names, the chosen one and the best first

# At, attempt, all that were compared, who else could not and why, engines out of service and why.
Noted = tuple[
    Instant,
    Attempt,
    Sequence[tuple[Duration, Engine]],
    Fit | None,
    tuple[tuple[Engine, str], ...],
]


@dataclass(slots=True)
class Candidate:
    """An engine that was considered."""

    node_id: str
    engine_id: str
    filtered_by: str = ""  # a filter's word, "no_credit", or what is wrong with its node
    score: Duration | None = None  # expected time to completion; None: not asked
    chosen: bool = False


@dataclass(slots=True)
class Placed:
    """One placement."""

    at: Instant
    attempt: Attempt
    candidates: list[Candidate] = field(default_factory=list)
    others: int = 0  # that are not named


@dataclass(slots=True)
class Waits:
    """What a request waits for, now."""

    # "pool_paused", "behind_others", "no_credit", "loading", "engines_unwell", "no_node", "no_fit",
    # "retry_later"
    code: str
    ahead: int = 0  # that would go first, about
    urgent: tuple[tuple[int, int], ...] = ()  # of them, those of higher priority: (priority, count)
    calls: int = 0  # of them, where it is an item of a job: interactive ones
    start_bound: int = 0  # dispatches of the pool until it starts, at most; 0: no bound
    candidates: list[Candidate] = field(default_factory=list)
    others: int = 0


def note(state: State, attempt: Attempt, choice: Choice, pool: Pool) -> None:
    """Remember a placement."""
    state.decisions.append((state.now, attempt, choice.scored, choice.fit, pool.unusable))


def placements_of(state: State, request: Request) -> list[Placed]:
    """Those of the request that are still remembered, oldest first.

    Of a batch only the first request was placed; the others joined it and have none.
    """
    return [_told(noted) for noted in state.decisions if noted[1].request is request]


def _told(noted: Noted) -> Placed:
    at, attempt, scored, fit, unusable = noted
    seen = {engine for _, engine in scored}  # membership only
    found = sorted(
        (Candidate(e.node.node_id, e.engine_id, "", est, e is attempt.engine) for est, e in scored),
        key=lambda c: (not c.chosen, c.score),
    )
    if fit is not None:
        for engine, words in fit.words.items():
            if engine not in seen:
                word = words[0] if words else "no_credit"
                found.append(Candidate(engine.node.node_id, engine.engine_id, word))
    found += [Candidate(e.node.node_id, e.engine_id, word) for e, word in unusable]
    return Placed(at, attempt, found[:CANDIDATES_MAX], max(0, len(found) - CANDIDATES_MAX))


def waits(state: State, request: Request) -> Waits | None:
    """What it waits for, looked at now; None: it does not wait."""
    if request.state is not RequestState.QUEUED:
        return None
    pool = state.pools[request.served_model]
    found = list(_now(state, pool, request))
    urgent, calls, older = pool.queue.who_is_ahead(request)
    named = Waits(
        _code(request, pool, found),
        calls + older + sum(count for _, count in urgent),
        urgent,
        calls,
        pool.queue.start_bound(),
        found[:CANDIDATES_MAX],
        max(0, len(found) - CANDIDATES_MAX),
    )
    jobs_last = request.request_class is RequestClass.JOB and pool.queue.interactive
    if jobs_last and not pool.paused:
        named.code = "behind_others"
    return named


def _now(state: State, pool: Pool, request: Request) -> Iterator[Candidate]:
    scorer = state.policies.scorer
    for engine in pool.usable:
        words = objections(state, request, engine)
        room = room_of(state, engine) >= min(request.inputs, engine.spec.slots)
        fits = room and engine.takes_tokens_of(request)
        word = words[0] if words else ("" if fits else "no_credit")
        score = None if words else scorer.estimate(request, engine, state.now)
        yield Candidate(engine.node.node_id, engine.engine_id, word, score)
    for engine, word in pool.unusable:
        yield Candidate(engine.node.node_id, engine.engine_id, word)


def _code(request: Request, pool: Pool, found: Sequence[Candidate]) -> str:
    if pool.paused:
        return "pool_paused"
    if not request.in_queue:
        return "retry_later"
    if not pool.usable:
        return _why_no_node({word for _, word in pool.unusable})
    words = [c.filtered_by for c in found[: len(pool.usable)]]
    if "" in words:
        return "behind_others"
    return "no_credit" if "no_credit" in words else "no_fit"


def _why_no_node(words: set[str]) -> str:
    """Of engines that have the model and get no work of it, by their words (membership only)."""
    if condition.LOADING in words or condition.STARTING in words:
        return "loading"
    return "engines_unwell" if words & {condition.STALLED, condition.DOWN} else "no_node"
