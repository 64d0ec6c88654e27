"""Models that no node has any more: remembered, but not without a bound."""

from __future__ import annotations

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core import gone_models
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import SECOND, NodeSpec
from tests.builders import World, engine, model, queue

BOUND = 20


def serve(world: World, name: str) -> None:
    """The node's one engine has this model now, and no other, as with adapters of each day."""
    spec = NodeSpec((engine(models=(model(name),)),))
    world.step(ev.NodeDescribed("n0", world.agents["n0"].epoch, spec))


def test_models_come_and_go_for_months_and_their_pools_stay_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gone_models, "GONE_MAX", BOUND)
    world = World(known_models=frozenset({"configured"}), queue=queue(no_node_grace=9_000 * SECOND))
    world.agent()
    serve(world, "awaited")
    serve(world, "paused")
    world.step(ev.PoolPaused("paused", True))
    serve(world, "day 0")
    waits = world.submit(model="awaited")
    for day in range(1, 100):
        world.advance(1)
        serve(world, f"day {day}")
    pools = world.scheduler.state.pools
    assert len(pools) == BOUND + 1, "and the one that is served"
    assert {"configured", "awaited", "paused", "day 99", "day 98"} <= set(pools)
    assert "day 0" not in pools
    assert waits.outcome is None
    forgotten = world.submit(model="day 0")
    assert (forgotten.outcome, forgotten.reason) == (Outcome.REJECTED, Reason.MODEL_NOT_FOUND)
    serve(world, "day 0")
    assert world.submit(model="day 0").outcome is None, "it is served again"
