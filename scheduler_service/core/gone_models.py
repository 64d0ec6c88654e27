"""How many models that no node has any more are remembered? So many that none is missed.

A model's pool outlives its nodes, for work of it may wait for them: they may come back tomorrow.
But names need not come back (an adapter may have another each day), and a scheduler runs for
months. So beyond a bound those go that were without a node for longest. Nothing hangs on them: no
open request, no attempt, no node that is still shown, no word of an operator or the configuration.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core.state import Pool, State

GONE_MAX: Final = 1_000  # pools without a node


def forget(state: State) -> None:
    """Forget the models of pools beyond the bound, those without a node for longest first."""
    if len(state.pools) <= GONE_MAX:
        return
    gone = [pool for pool in state.pools.values() if not pool.engines]
    if len(gone) <= GONE_MAX:
        return
    named = _named(state)
    free = [pool for pool in gone if pool.model not in named and _is_idle(state, pool)]
    free.sort(key=lambda pool: (pool.dead_since, pool.model))
    for pool in free[: len(gone) - GONE_MAX]:
        for timer in ("batch", "preempt", "pressure"):
            state.timers.cancel((timer, pool.model))
        state.dirty.pop(pool.model, None)
        state.making_room.pop(pool.model, None)
        del state.pools[pool.model]


def _named(state: State) -> set[str]:
    """Models that somebody may still ask about. Membership only."""
    named = set(state.settings.known_models)
    for request in state.requests.values():
        named.update((request.model, request.served_model))
    for node in state.nodes.values():
        named.update(model for engine in node.engines.values() for model in engine.models)
        for attempt in node.in_flight.values():
            named.update((attempt.model, attempt.preempted_for))
    return named


def _is_idle(state: State, pool: Pool) -> bool:
    scale = pool.scale
    asked = scale.desired or scale.orders or scale.frozen_until > state.now
    return not (asked or pool.paused or pool.apart is not None or len(pool.queue))
