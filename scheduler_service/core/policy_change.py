"""How do other policies take over while requests wait and run?

Policies hold no state, so the new set is simply asked from now on. What the core keeps for them is
looked after here, and only where its policy or parameter differs: the order of those who wait, the
timers that a policy has set, what was measured for one. So a change to what is in force already
changes no decision. Nobody loses a place, and what runs goes on.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_service.core import degrading, patience, reach
from scheduler_service.core.events import PoliciesChanged
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.pressure import Overload
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.shedding import Cursor
from scheduler_service.core.state import Pool, State


def on_changed(state: State, event: PoliciesChanged) -> None:
    """Put them in force."""
    was, before = state.policies, state.settings
    state.policies = event.policies
    state.settings = replace(
        before,
        queue=event.queue,
        health=event.health,
        failover=event.failover,
        autoscale=event.autoscale,
    )
    state.learn_lengths()
    if was.former != event.policies.former:
        _forget_batch_sizes(state)
    if was.least_share != event.policies.least_share:
        reach.rewatch(state)
    for pool in state.pools.values():
        _reorder(state, pool)
        _shed(state, pool)
        _relieve(state, pool, was)
        _be_patient(state, pool)
        if before.queue.no_node_grace != event.queue.no_node_grace:
            pool.stranded_seen = False
    state.hedges = any(pool.hedging is not None for pool in state.pools.values())
    if _differs(state, was, before):
        for pool in state.pools.values():
            if len(pool.queue):
                state.touch(pool.model)


def _differs(state: State, was: PolicySet, before: CoreSettings) -> bool:
    return state.policies != was or state.settings != before


def _forget_batch_sizes(state: State) -> None:
    """They were the limits of another rule."""
    for node in state.nodes.values():
        for engine in node.engines.values():
            for known in engine.batch_times.values():
                known.size_limit = 0


def _reorder(state: State, pool: Pool) -> None:
    limits, ordering = state.settings.queue, state.policies.ordering_of(pool.model)
    pool.queue.floor_every = limits.floor_every
    pool.queue.reorder(ordering.discipline(), limits.weights)
    pool.load.max_requests, pool.load.max_bytes = limits.max_requests, limits.max_bytes


def _shed(state: State, pool: Pool) -> None:
    rule = state.policies.admission.shedding()
    if rule is None:
        pool.cursor = None
    elif pool.cursor is None or pool.cursor.rule != rule:
        pool.cursor = Cursor(rule, state.settings.seed)


def _relieve(state: State, pool: Pool, was: PolicySet) -> None:
    if was.degrade == state.policies.degrade:
        return
    pool.overload = Overload()
    state.timers.cancel(("pressure", pool.model))
    if state.policies.relieves and pool.queue.interactive:
        degrading.watch(state, pool)


def _be_patient(state: State, pool: Pool) -> None:
    """What runs is held to the limits of now, and slow attempts get rivals, or none, as now."""
    was, hedged = pool.patience, pool.hedging is not None
    state.watch_attempts(pool)
    limits = pool.patience
    if limits is None or (limits == was and hedged == (pool.hedging is not None)):
        return
    for request in state.requests.values():
        if request.served_model == pool.model:
            for attempt in request.live.values():
                patience.watch(state, attempt, limits)
