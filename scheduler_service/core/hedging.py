"""When does a slow attempt get a rival on another node, and who of the two counts?

Off unless it is configured. An interactive request of which nothing has reached its caller is sent
to a second node once its attempt is slower than nearly all: after

    max(least delay, p95, 3 * mean)

of what attempts of its pool take until they answer: until the first output if they stream, else
until the result. The first of the two to answer wins; the other is revoked in the same step and
cancelled on its node, whose slot is free as soon as the node says so. As long as the delay is at
least the p95, that cutting off of the slow ones does not move the p95.

A rival is a guest. It goes only where nobody waits in the pool and a node that has not failed the
request has a slot free; it makes room nowhere. It is the request's only one; it counts as one of
its attempts, so who allows a single attempt gets none. Rivals are at most `share` of the first
attempts, and each is paid for from the pool's retry budget, so that under failure they end first.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import apart, attempts, batching, explain, placement, records
from scheduler_service.core.answers import Hedging
from scheduler_service.core.outcomes import EngineMode, NodeHealth, RequestClass, RequestState
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import (
    ADOPTED,
    MILLISECOND,
    NEVER,
    Attempt,
    Engine,
    Instant,
    Request,
)

RIVAL: Final = "hedge"  # `Attempt.chosen_by`, and why its batch was closed
TIMES_MEAN: Final = 3
LOOK_AGAIN: Final = 50 * MILLISECOND  # at least, where there was no room


def learn(state: State, attempt: Attempt) -> None:
    """It was the first to answer, of one or of two."""
    hedging = state.pools[attempt.model].hedging
    if hedging is None or attempt.chosen_by == ADOPTED:
        return
    since = attempt.started_at
    if attempt.chosen_by == RIVAL:
        state.totals.hedges_won += 1
        tried = attempt.request.attempts
        since = tried[tried.index(attempt) - 1].started_at
    hedging.answers(attempt.request).add(state.now - since)


def due(state: State, hedging: Hedging, attempt: Attempt) -> Instant:
    """When the attempt, which begins now, is slow; NEVER: it gets no rival."""
    request = attempt.request
    if not _may_have_one(request) or apart.is_suspect(request):
        return NEVER
    known = hedging.answers(request)
    if known.samples < hedging.limits.fewest:
        return NEVER
    mean = int(known.mean)
    if not request.stream:
        mean = max(mean, state.pools[attempt.model].estimate.expect(request.output_tokens))
    usual = max(mean, attempt.expected_start)
    delay = max(hedging.limits.least_delay, known.late, TIMES_MEAN * usual)
    return attempt.started_at + delay


def _may_have_one(request: Request) -> bool:
    return (
        request.request_class is RequestClass.INTERACTIVE
        and not request.continuing
        and len(request.live) == 1
        and request.charged < request.max_attempts
        and all(a.chosen_by != RIVAL for a in request.attempts)
    )


def send_rival(state: State, request: Request) -> Instant:
    """It is slow: send it to a second node if that may be. When to look again; NEVER: never."""
    output = request.output
    begun = output is not None and (output.begun or output.lacks)
    if begun or request.state is RequestState.QUEUED or not _may_have_one(request):
        return NEVER
    (attempt,) = request.live.values()
    pool = state.pools[attempt.model]
    hedging = pool.hedging
    if hedging is None or attempt.spoke or attempt.batch.close_reason == apart.TRIAL:
        return NEVER
    engine = _spare_engine(state, pool, attempt)
    if engine is None or not _paid_for(state, pool, hedging):
        return state.now + max(LOOK_AGAIN, (state.now - attempt.started_at) // 4)
    _send(state, attempt, engine)
    return NEVER


def _spare_engine(state: State, pool: Pool, attempt: Attempt) -> Engine | None:
    """The one that would answer first, of those with a slot that nobody waits for."""
    if pool.queue.interactive or pool.paused or pool.apart is not None:
        return None
    request = attempt.request
    found = [
        (state.policies.scorer.estimate(request, e, state.now), e.node.node_id, e.engine_id, e)
        for e in pool.usable
        if e.node is not attempt.node
        and e.node.health is NodeHealth.HEALTHY
        and not e.node.backup
        and _has_slot(state, e, request)
        and not placement.objections(state, request, e)
    ]
    return min(found, key=lambda entry: entry[:3])[3] if found else None


def _has_slot(state: State, engine: Engine, request: Request) -> bool:
    """Without look-ahead: what it is sent begins at once."""
    charge = engine.charge_of(request)
    free = engine.spec.slots - engine.in_flight_inputs
    room = min(free, placement.room_of(state, engine))
    return room >= charge and engine.takes_tokens_of(request)


def _paid_for(state: State, pool: Pool, hedging: Hedging) -> bool:
    if not hedging.may_send(pool.firsts):
        return False
    if not pool.errors.take(state.now, pool.firsts, state.settings.failover):
        return False
    hedging.sent()
    return True


def _send(state: State, slow: Attempt, engine: Engine) -> None:
    request, pool = slow.request, state.pools[slow.model]
    atomic = engine.spec.mode is EngineMode.STATIC
    batch = batching.new_batch(state, engine, slow.model, RIVAL, atomic=atomic)
    rival = attempts.begin(state, request, batch)
    rival.chosen_by = RIVAL
    batch.oldest_wait = state.now - request.received_at
    state.totals.hedges += 1
    explain.note(state, rival, placement.Choice(engine), pool)
    state.record(
        records.HEDGED,
        request,
        attempt=rival,
        node_id=engine.node.node_id,
        pool=slow.model,
        slow_node=slow.node.node_id,
        after_ms=(state.now - slow.started_at) // MILLISECOND,
    )
    attempts.send(state, batch)
