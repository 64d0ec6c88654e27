"""What operators hold back: a pool's dispatches, and what the autoscaler does."""

from __future__ import annotations

from scheduler_service.core import events as ev
from scheduler_service.core import explain, records
from scheduler_service.core.commands import RequestScale
from scheduler_service.core.outcomes import Outcome, RequestState
from scheduler_service.core.settings import AutoscaleSettings
from scheduler_service.core.types import NEVER, SECOND
from tests.builders import World, engine, seconds, settings


def test_a_paused_pool_queues_and_dispatches_again_when_it_is_resumed() -> None:
    w = World()
    w.agent("n0", engine(slots=4))
    running = w.submit()
    w.step(ev.PoolPaused("m", True, "a look"))
    waiting = w.submit()
    w.advance(3)
    assert waiting.state is RequestState.QUEUED
    assert running.live
    told = explain.waits(w.scheduler.state, waiting)
    assert told is not None
    assert told.code == "pool_paused"
    w.step(ev.PoolPaused("m", False))
    assert waiting.live
    kinds = [r.kind for r in w.records if r.kind.startswith("pool_")]
    assert kinds == [records.POOL_PAUSED, records.POOL_RESUMED]


def test_pausing_twice_and_pausing_nothing_changes_nothing() -> None:
    w = World()
    w.agent("n0", engine())
    w.step(ev.PoolPaused("m", True), ev.PoolPaused("m", True), ev.PoolPaused("nobody", True))
    assert [r.kind for r in w.records].count(records.POOL_PAUSED) == 1


def test_deadlines_pass_in_a_paused_pool_too() -> None:
    w = World()
    w.agent("n0", engine())
    w.step(ev.PoolPaused("m", True))
    request = w.submit(max_wait=seconds(2))
    w.advance(3)
    assert request.outcome in (Outcome.EXPIRED, Outcome.FAILED)


def test_a_frozen_autoscaler_shows_what_it_wants_and_does_nothing() -> None:
    w = World(settings(autoscale=AutoscaleSettings(enabled=True, max_nodes=4)))
    w.agent("n0", engine())
    w.advance(2)
    w.step(ev.AutoscaleFrozen("", NEVER, "a change window"))
    w.submit(9)
    w.advance(5)
    asked = [c for c in w.commands if isinstance(c, RequestScale)]
    scale = w.scheduler.state.pools["m"].scale
    assert not asked
    assert scale.planned > 1
    w.step(ev.AutoscaleFrozen("m", -NEVER))
    w.advance(2)
    assert [c for c in w.commands if isinstance(c, RequestScale)]
    assert scale.planned == 0


def test_a_freeze_for_a_while_ends_by_itself() -> None:
    w = World(settings(autoscale=AutoscaleSettings(enabled=True, max_nodes=4)))
    w.agent("n0", engine())
    w.advance(2)
    w.step(ev.AutoscaleFrozen("m", w.now + 10 * SECOND))
    w.submit(9)
    w.advance(8)
    assert not [c for c in w.commands if isinstance(c, RequestScale)]
    w.advance(5)
    assert [c for c in w.commands if isinstance(c, RequestScale)]


def test_a_longer_freeze_is_a_change_and_the_same_again_is_none() -> None:
    w = World(settings(autoscale=AutoscaleSettings(enabled=True)))
    w.agent("n0", engine())
    w.advance(2)
    until = w.now + 10 * SECOND
    for event in (
        ev.AutoscaleFrozen("m", until, "a"),
        ev.AutoscaleFrozen("m", until, "b"),
        ev.AutoscaleFrozen("m", NEVER, "c"),
        ev.AutoscaleFrozen("m", -NEVER, "d"),
        ev.AutoscaleFrozen("m", -NEVER, "e"),
    ):
        w.step(event)
    told = [(r.kind, (r.data or {})["reason"]) for r in w.records if "autoscale" in r.kind]
    frozen, unfrozen = "autoscale_frozen", "autoscale_unfrozen"
    assert told == [(frozen, "a"), (frozen, "c"), (unfrozen, "d")]
