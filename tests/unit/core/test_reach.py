"""A request that cannot meet its deadline any more takes no slot from one that can."""

from __future__ import annotations

import pytest

from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import Request
from scheduler_service.policies import build
from tests.builders import World, engine, settings


def world(*, admission: str = "guarded", models: tuple[str, ...] = ("m",)) -> World:
    """One busy slot; work takes 4 s, and the pool knows it."""
    w = World(settings(), build({"admission": admission}))
    agent = w.agent("a", engine(models=models))
    teacher = w.submit()
    w.advance(4)
    agent.finish(teacher)
    w.submit()  # holds the slot
    return w


def late(w: World, **fields: object) -> Request:
    """Admitted, for the slot is expected to be free in time; but it is not."""
    request: Request = w.submit(timeout=9, priority=9, **fields)
    assert w.outcome(request) is None
    return request


def test_who_cannot_make_it_is_ended_before_it_takes_a_slot() -> None:
    """Four fifths of the 4 s must fit: at 5.8 s of 9 it is over."""
    w = world()
    hopeless, other = late(w), w.submit(priority=1)
    w.advance(5.7)
    assert w.outcome(hopeless) is None
    w.advance(0.2)
    assert w.outcome(hopeless) is Outcome.EXPIRED
    assert w.result(hopeless).reason is Reason.DEADLINE_EXCEEDED
    assert "needs 3200 ms" in w.result(hopeless).message
    (agent,) = w.agents.values()
    agent.finish(*agent.running())
    assert agent.running() == [other]


def test_without_the_rule_it_waits_until_its_deadline() -> None:
    w = world(admission="bounded")
    hopeless = late(w)
    w.advance(8.9)
    assert w.outcome(hopeless) is None
    w.advance(0.2)
    assert w.outcome(hopeless) is Outcome.EXPIRED


def test_an_estimate_that_fell_meanwhile_is_the_one_that_counts() -> None:
    w = world()
    request = late(w)
    w.scheduler.state.pools["m"].estimate.mean //= 4
    w.advance(8.0)
    assert w.outcome(request) is None
    w.advance(0.3)
    assert w.outcome(request) is Outcome.EXPIRED


def test_a_smaller_model_that_can_make_it_stands_in() -> None:
    w = world(models=("m", "s"))
    request = late(w, degrade=("s",))
    w.advance(6)
    assert w.outcome(request) is None
    assert request.degraded
    (agent,) = w.agents.values()
    agent.finish(*agent.running())
    assert agent.running() == [request]


def test_who_runs_is_left_alone_until_its_deadline() -> None:
    w = World(settings(), build({"admission": "guarded"}))
    agent = w.agent("a", engine())
    teacher = w.submit()
    w.advance(4)
    agent.finish(teacher)
    running = w.submit(timeout=5)
    w.advance(4.9)
    assert w.outcome(running) is None
    w.advance(0.2)
    assert w.outcome(running) is Outcome.EXPIRED


def test_who_came_back_to_the_queue_too_late_is_ended() -> None:
    """It ran when its time to begin passed, and is looked at again in half of what is left: at
    6.4 and 7.2 s, while its broken session may still answer, and at 7.6 s, when that is lost.
    """
    w = World(settings(), build({"admission": "guarded"}))
    agent = w.agent("a", engine())
    teacher = w.submit()
    w.advance(4)
    agent.finish(teacher)
    moved = w.submit(timeout=8)
    w.agent("b", engine())
    w.submit()  # keeps the other node busy
    w.advance(5.5)
    agent.die()
    w.advance(2)
    assert w.outcome(moved) is None
    w.advance(0.2)
    assert w.outcome(moved) is Outcome.EXPIRED


@pytest.mark.parametrize("admission", ["bounded", "guarded", "open"])
def test_nothing_is_ended_early_while_nothing_is_known(admission: str) -> None:
    w = World(settings(), build({"admission": admission}))
    w.agent("a", engine())
    w.submit()
    waiting = w.submit(timeout=5)
    w.advance(4.9)
    assert w.outcome(waiting) is None
    w.advance(0.2)
    assert w.outcome(waiting) is Outcome.EXPIRED
