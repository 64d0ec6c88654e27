"""Who goes next, with whom, and where?

For each pool that changed: walk its queue in order, choose an engine for each request (filter ->
backup rule -> score -> pick), and fill batches. What cannot be placed now is skipped and keeps its
turn. With several pools, one batch at a time goes to the pool with the best head, so that models
that share an engine share its slots by priority.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import (
    apart,
    attempts,
    batching,
    explain,
    health,
    patience,
    placement,
    preemption,
    requests,
)
from scheduler_service.core.interfaces import WaitUntil
from scheduler_service.core.outcomes import EngineMode, RequestClass, RequestState
from scheduler_service.core.queues import Walk
from scheduler_service.core.state import Pool, State
from scheduler_service.core.transitions import move_request
from scheduler_service.core.types import Attempt, Batch, Engine, Request

# Members of enumerations on the path of every request: a look-up costs 70 ns each.
_DISPATCHED: Final = RequestState.DISPATCHED
_JOB: Final = RequestClass.JOB
_STATIC: Final = EngineMode.STATIC
# Requests that cannot be placed, looked at per pool and decision: any, and those that only a backup
# out of turn could take.
MAX_SKIPS = 64
MAX_BARRED = 8

_Outbox = dict[tuple[Engine, str], Batch]  # of this step; by engine and model


def decide(state: State) -> None:
    """Dispatch all that can go now."""
    if state.hold_until > state.now:
        return
    for model in [m for m in state.dirty if state.pools[m].paused]:
        del state.dirty[model]
    for model in [m for m in state.apart if m in state.dirty]:
        _dispatch_apart(state, state.pools[model])
    open_pools = {m: state.pools[m] for m in state.dirty if len(state.pools[m].queue)}
    state.dirty.clear()
    outbox: _Outbox = {}
    wanted: dict[Engine, None] = {}
    while open_pools:
        alone = len(open_pools) == 1
        pool = next(iter(open_pools.values())) if alone else _best_pool(state, open_pools)
        if not _dispatch(state, pool, outbox, wanted, one_batch=not alone):
            del open_pools[pool.model]
    for batch in outbox.values():
        attempts.send(state, batch)


def _dispatch_apart(state: State, pool: Pool) -> None:
    """Send what must not run with others."""
    while (run := apart.next_run(state, pool)) is not None:
        atomic = run.engine.spec.mode is EngineMode.STATIC
        batch = batching.new_batch(state, run.engine, pool.model, run.why, atomic=atomic)
        begun = [_assign(state, r, None, batch) for r in run.members]
        for attempt in begun:
            attempt.chosen_by = "apart"  # it took nobody's turn
        apart.begun(pool, run, begun)
        attempts.send(state, batch)


def _best_pool(state: State, pools: dict[str, Pool]) -> Pool:
    """The pool whose next request is the most urgent by the order."""
    ordering, now = state.policies.ordering, state.now
    return min(pools.values(), key=lambda pool: pool.queue.first(ordering, now))


def _dispatch(
    state: State,
    pool: Pool,
    outbox: _Outbox,
    wanted: dict[Engine, None],
    *,
    one_batch: bool,
) -> bool:
    """Dispatch from one pool; whether it stopped with more that may go now.

    `wanted`: engines that interactive requests wait for in vain in this step; job items stay out.
    """
    engines = placement.Placement(state, pool)
    if not engines.usable and health.relent(state, pool):
        engines = placement.Placement(state, pool)
    if not engines.usable:
        if not pool.live:
            requests.note_no_node(state, pool)
        return False
    walk = pool.queue.walk(state.policies.ordering_of(pool.model), state.now)
    more = short = False
    skips = barred = 0
    while skips < MAX_SKIPS and barred < MAX_BARRED:
        request = walk.peek()
        if request is None:
            break
        choice = engines.choose(request)
        if choice.engine is None:
            if choice.unfit:
                requests.note_unfit(state, request)
            short = short or choice.blocked_by_credit
            if choice.hold(walk.floor):
                break
            if state.jobs_running or pool.queue.jobs:
                _want(request, engines, wanted)
            walk.skip(request)
            skips += 1
            barred += choice.barred
            continue
        if request.request_class is _JOB and not walk.floor:
            headroom = state.settings.queue.headroom
            if headroom and engines.room() - choice.engine.charge_of(request) < headroom:
                break
            if choice.engine in wanted:
                walk.skip(request)
                skips += 1
                continue
        if choice.engine.spec.mode is _STATIC:
            if _send_static(state, pool, choice, walk):
                engines.took(choice.engine)
                more = one_batch or engines.may_have_room
                if not more:
                    continue  # who is next waits, and what follows from that is seen now
            break
        batch = _open_batch(state, choice.engine, pool.model, outbox)
        explain.note(state, _assign(state, request, walk, batch), choice, pool)
        engines.took(choice.engine)
        if one_batch:
            more = True
            break
    walk.finish()
    for request in walk.expired:
        requests.expire(state, request)
    if short and not more and state.jobs_running and pool.queue.interactive:
        preemption.make_room(state, pool, engines)
    return more and len(pool.queue) > 0


def _want(request: Request, engines: placement.Placement, wanted: dict[Engine, None]) -> None:
    if request.request_class is RequestClass.INTERACTIVE:
        wanted.update(dict.fromkeys(engines.waits_for(request)))


def _open_batch(state: State, engine: Engine, model: str, outbox: _Outbox) -> Batch:
    """The message that gathers this step's requests for a continuous engine."""
    key = (engine, model)
    batch = outbox.get(key)
    if batch is None:
        batch = outbox[key] = batching.new_batch(state, engine, model, "credit", atomic=False)
    return batch


def _send_static(state: State, pool: Pool, choice: placement.Choice, walk: Walk) -> bool:
    """Send the head and all that may share its batch, unless others are waited for."""
    assert choice.engine is not None
    batch = batching.form(state, pool, choice.engine)
    if isinstance(batch, WaitUntil):
        state.timers.set(("batch", pool.model), batch.at)
        return False
    for request in batching.members(state, batch, walk):
        _assign(state, request, walk, batch)
    if batch.attempts:
        explain.note(state, batch.attempts[0], choice, pool)
    attempts.send(state, batch)
    return True


def _assign(state: State, request: Request, walk: Walk | None, batch: Batch) -> Attempt:
    """Make an attempt of the request on the batch's engine, and let it speak. `walk`: where it is
    taken from; None: it does not wait in the queue.
    """
    pool = state.pools[batch.model]
    floor = walk is not None and walk.floor
    if walk is not None:
        walk.take(request)
    pool.dispatches += 1
    pool.floor_dispatches += floor
    stay = state.now - request.queued_at
    requests.leave_queue(state, request, taken=walk is not None)
    attempt = attempts.begin(state, request, batch)
    attempt.queue_wait = stay
    if floor:
        attempt.chosen_by = "floor"
    age = state.now - request.received_at
    if age > batch.oldest_wait:
        batch.oldest_wait = age
    if not request.first_dispatch_at:
        request.first_dispatch_at = state.now
        pool.firsts += 1
    move_request(request, _DISPATCHED)
    if pool.cursor is not None and request.request_class is not _JOB:
        pool.cursor.dispatched(stay)
    if pool.patience is not None:
        patience.watch(state, attempt, pool.patience)
    return attempt


def on_batch_due(state: State, model: str) -> None:
    """An open batch has waited long enough."""
    state.touch(model)
