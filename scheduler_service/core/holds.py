"""What may operators hold back? A pool's dispatches, and what the autoscaler does.

A paused pool queues and does not dispatch; what runs goes on, deadlines and longest waits pass as
ever. A frozen autoscaler plans at each tick and shows it, and does nothing.
"""

from __future__ import annotations

from scheduler_service.core import records
from scheduler_service.core.events import AutoscaleFrozen, PoolPaused
from scheduler_service.core.state import Pool, State


def on_paused(state: State, event: PoolPaused) -> None:
    """Pause or resume."""
    pool = state.pools.get(event.pool)
    if pool is None or pool.paused == event.paused:
        return
    pool.paused = event.paused
    kind = records.POOL_PAUSED if event.paused else records.POOL_RESUMED
    state.record(kind, pool=pool.model, reason=event.reason, waiting=len(pool.queue))
    state.touch(pool.model)


def on_frozen(state: State, event: AutoscaleFrozen) -> None:
    """Freeze or unfreeze one pool, or all."""
    for pool in [*state.pools.values()] if not event.pool else _known(state, event.pool):
        was = pool.scale.frozen_until
        pool.scale.frozen_until, pool.scale.planned = event.until, 0
        frozen = event.until > state.now
        if frozen != (was > state.now) or (frozen and was != event.until):
            kind = records.AUTOSCALE_FROZEN if frozen else records.AUTOSCALE_UNFROZEN
            state.record(kind, pool=pool.model, reason=event.reason)


def _known(state: State, model: str) -> list[Pool]:
    pool = state.pools.get(model)
    return [] if pool is None else [pool]
