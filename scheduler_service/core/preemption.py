"""Which running job items make room for interactive requests, and how do they go on?

Theory of operation. Job items fill idle slots. When interactive requests of a pool wait for room,
items on engines that could take them are stopped: those that the policy lets go (by default, that
have run for 2 s since their last start), the latest started first, never more than requests wait.
A static batch ends as a whole, so its items are left alone.

    job item running --preempted_for = pool, cancel to the node--> still live, still speaking
        its result says that it was stopped --> PREEMPTED, uncharged, queued again at its old place
        it was done before that             --> its answer counts

So no output is lost in between: the request goes on from what has been delivered (`continuing`)
where the model can, else it begins anew. What is stopped holds its slot until its node says so;
until then it counts as room that is coming.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler_service.core import ledger, records, requests, resumption
from scheduler_service.core.events import ItemEnd
from scheduler_service.core.outcomes import (
    AttemptState,
    EngineMode,
    Reason,
    RequestClass,
    RequestState,
)
from scheduler_service.core.placement import Placement
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import NEVER, Attempt, Engine, Instant

_STOPPED: Final = frozenset({Reason.PREEMPTED, Reason.CANCELLED_BY_CLIENT})


def make_room(state: State, pool: Pool, engines: Placement) -> None:
    """Interactive requests of the pool wait for room: stop as many job items, where that is due."""
    wanted = pool.queue.interactive - state.making_room.get(pool.model, 0)
    if wanted <= 0:
        return
    items, due_at = _candidates(state, engines.usable)
    for request in pool.queue:
        if wanted <= 0 or not items or request.request_class is RequestClass.JOB:
            break
        takers = engines.waits_for(request)
        item = next((i for i in items if i.engine in takers), None)
        if item is not None:
            items.remove(item)
            _stop(state, item, pool)
            wanted -= 1
    if wanted > 0 and due_at < NEVER:
        state.timers.set(("preempt", pool.model), due_at)


def _candidates(state: State, engines: Iterable[Engine]) -> tuple[list[Attempt], Instant]:
    """Items that may be stopped now, the latest started first, and when the next may."""
    allowed_from, now = state.policies.preemption.allowed_from, state.now
    items: list[Attempt] = []
    due_at = NEVER
    for engine in engines:
        if not engine.job_items or engine.spec.mode is EngineMode.STATIC:
            continue
        for item in engine.job_items.values():
            if item.preempted_for or item.dispatch_id not in item.request.live:
                continue
            at = allowed_from(item)
            if at <= now:
                items.append(item)
            else:
                due_at = min(due_at, at)
    items.sort(key=lambda i: (i.started_at, i.dispatch_id), reverse=True)
    return items, due_at


def _stop(state: State, item: Attempt, pool: Pool) -> None:
    """Ask its node to stop it; it lives on until the node says that it did."""
    item.preempted_for = pool.model
    state.making_room[pool.model] = state.making_room.get(pool.model, 0) + 1
    node = item.node
    key = (node.node_id, node.epoch, Reason.PREEMPTED)
    state.cancels.setdefault(key, []).append(item.dispatch_id)


def on_due(state: State, model: str) -> None:
    """An item has run long enough to make room for those who wait."""
    state.touch(model)


def gave_way(item: ItemEnd) -> bool:
    """Whether a stopped item's result says no more than that."""
    return item.refused or item.reason in _STOPPED


def take_back(state: State, attempt: Attempt) -> None:
    """Its node stopped the item: queue it again, uncharged, with the output that it has."""
    request = attempt.request
    request.charged -= 1
    request.preemptions += 1
    state.totals.preemptions += 1
    ledger.end(state, attempt, AttemptState.PREEMPTED, Reason.PREEMPTED, "it made room")
    ledger.note_moved(attempt)
    waits = request.live or request.state is RequestState.QUEUED
    if not waits:
        output = request.output
        request.continuing = (
            output is not None and output.begun and resumption.can_continue(state, request)
        )
        if not request.continuing:
            resumption.restart(state, request)
            state.totals.preempted_work += state.now - attempt.started_at
            state.totals.wasted_output_tokens += attempt.output_tokens
    state.record(
        records.PREEMPTED,
        request,
        attempt=attempt,
        node_id=attempt.node.node_id,
        pool=attempt.model,
        made_room_for=attempt.preempted_for,
        ran_ms=(state.now - attempt.started_at) // 1_000_000,
        continued=request.continuing,
    )
    if not waits:
        requests.queue_again(state, request, state.now)
