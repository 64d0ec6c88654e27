"""Who goes next? Priorities, arrival, ageing with its cap, and the floor with its bound."""

from __future__ import annotations

import random

import pytest

from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import Request
from scheduler_service.policies import build
from tests.builders import Agent, World, engine, queue, static


def one_slot(order: str = "aged", floor_every: int = 8) -> tuple[World, Agent, Request]:
    """A node with one slot, and the request that keeps it busy."""
    world = World(policies=build({"order": order}), queue=queue(floor_every=floor_every))
    agent = world.agent()
    return world, agent, world.submit()


def drain(agent: Agent, seen: list[Request] | None = None) -> list[Request]:
    """Finish whatever runs until nothing does; the requests in order of their start."""
    order = [] if seen is None else seen
    while agent.running():
        request = agent.running()[0]
        order.append(request)
        agent.finish(request)
    return order


@pytest.mark.parametrize("order", ["aged", "strict"])
def test_ten_waiting_requests_of_ten_priorities_run_10_first(order: str) -> None:
    """Behaviour 2: with one busy slot the next free slot goes to the most urgent, 10 first."""
    world, agent, busy = one_slot(order, floor_every=0)
    waiting = [world.submit(priority=p) for p in (3, 7, 1, 10, 5, 2, 9, 4, 8, 6)]
    agent.finish(busy)
    assert [r.priority for r in drain(agent)] == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert len(waiting) == 10


def test_with_the_floor_the_eighth_dispatch_goes_to_the_oldest() -> None:
    """As configured by default: 10 first, and one of eight to whoever waits longest."""
    world, agent, busy = one_slot()
    for priority in range(1, 11):
        world.submit(priority=priority)
    agent.finish(busy)
    started = [r.priority for r in drain(agent)]
    assert started == [10, 9, 8, 7, 6, 5, 1, 4, 3, 2]


def test_equal_priority_runs_in_order_of_arrival() -> None:
    world, agent, busy = one_slot()
    requests = world.submit(20)
    agent.finish(busy)
    assert drain(agent) == requests


def test_urgent_newcomer_overtakes_a_deep_queue() -> None:
    """Behaviour 2: the agent holds no backlog, so the urgent one is second overall."""
    world, agent, busy = one_slot()
    world.submit(10, priority=1)
    urgent = world.submit(priority=10)
    assert agent.running() == [busy]
    agent.finish(busy)
    assert agent.running() == [urgent]


def test_waiting_raises_a_request_by_at_most_two_levels() -> None:
    world, agent, busy = one_slot(floor_every=0)
    old = world.submit(priority=5)
    world.advance(15)
    six = world.submit(priority=6)
    world.advance(1_000)
    seven = world.submit(priority=7)
    eight = world.submit(priority=8)
    agent.finish(busy)
    assert drain(agent) == [eight, six, seven, old], "at 8 and at 7 the more urgent goes first"


def test_equal_effective_priority_goes_to_the_more_urgent() -> None:
    world, agent, busy = one_slot(floor_every=0)
    aged = world.submit(priority=5)
    world.advance(60)
    fresh = world.submit(priority=7)
    agent.finish(busy)
    assert drain(agent) == [fresh, aged]


def test_fifo_ignores_priority() -> None:
    world, agent, busy = one_slot("fifo")
    requests = [world.submit(priority=p) for p in (1, 10, 5)]
    agent.finish(busy)
    assert drain(agent) == requests


def test_job_items_go_below_every_band_and_never_age_into_them() -> None:
    world, agent, busy = one_slot(floor_every=0)
    job = world.submit(priority=10, request_class=RequestClass.JOB)
    world.advance(10_000)
    low = world.submit(priority=1)
    agent.finish(busy)
    assert drain(agent) == [low, job]


def test_job_items_order_by_priority_then_age() -> None:
    world, agent, busy = one_slot(floor_every=0)
    jobs = [world.submit(priority=p, request_class=RequestClass.JOB) for p in (2, 9, 9, 5)]
    agent.finish(busy)
    assert drain(agent) == [jobs[1], jobs[2], jobs[3], jobs[0]]


@pytest.mark.parametrize("order", ["aged", "strict"])
@pytest.mark.parametrize("older", [0, 1, 5])
def test_request_with_m_older_ones_starts_within_the_floors_bound(order: str, older: int) -> None:
    """Behaviour 1: a flood of priority 10 that never ends, and one request of priority 1."""
    world, agent, _ = one_slot(order)
    world.submit(older, priority=1) if older else None
    low = world.submit(priority=1)
    world.submit(20, priority=10)
    dispatches = 0
    while agent.running() != [low]:
        agent.finish(*agent.running())
        world.submit(priority=10)
        dispatches += 1
        assert dispatches <= 8 * (older + 1)
    assert low.attempts[0].chosen_by == "floor"


def test_without_the_floor_a_flood_starves_the_lowest() -> None:
    """Behaviour 1: with the floor off it waits until its own deadline, never later."""
    world, agent, _ = one_slot("strict", floor_every=0)
    low = world.submit(priority=1, timeout=20)
    world.submit(5, priority=10)
    for _ in range(200):
        agent.finish(*agent.running())
        world.submit(priority=10)
        world.advance(0.1)
        assert agent.running() != [low]
    world.advance(0.01)
    assert low.outcome == "expired"
    assert low.finished_at - low.received_at < 20.5 * 1e9


def test_floor_alternates_between_the_classes_while_both_wait() -> None:
    world, agent, busy = one_slot("strict", floor_every=4)
    jobs = [world.submit(request_class=RequestClass.JOB) for _ in range(3)]
    old = [world.submit(priority=1) for _ in range(3)]
    world.submit(40, priority=10)
    agent.finish(busy)
    floored = [r for r in drain(agent) if r.attempts[0].chosen_by == "floor"]
    assert floored[:6] == [old[0], jobs[0], old[1], jobs[1], old[2], jobs[2]]


def test_bound_is_twice_as_long_while_job_items_wait_too() -> None:
    world, _, _ = one_slot()
    pool = world.scheduler.state.pools["m"]
    world.submit(3)
    assert pool.queue.start_bound() == 8 * 3
    world.submit(2, request_class=RequestClass.JOB)
    assert pool.queue.start_bound() == 16 * 5


def test_floor_off_has_no_bound() -> None:
    world, _, _ = one_slot(floor_every=0)
    world.submit(3)
    assert world.scheduler.state.pools["m"].queue.start_bound() == 0


def test_floors_turn_passes_to_the_next_oldest_that_can_be_placed() -> None:
    world = World(queue=queue(floor_every=2), policies=build({"order": "strict"}))
    chat = world.agent("a", engine(slots=1), task_types=("chat",))
    stuck = world.submit(priority=1, task_type="code")
    first = world.submit(priority=1, task_type="chat")
    second = world.submit(priority=1, task_type="chat")
    world.submit(4, priority=10, task_type="chat")
    started = drain(chat)
    assert started[0] is first, "the slot was free when it came"
    assert started[1].priority == 1 or started[2].priority == 1
    assert second in started[:3]
    assert stuck.attempts == ()


def test_every_dispatch_and_every_floor_dispatch_is_counted() -> None:
    world, agent, busy = one_slot()
    world.submit(31)
    agent.finish(busy)
    drain(agent)
    pool = world.scheduler.state.pools["m"]
    assert (pool.dispatches, pool.floor_dispatches) == (32, 4)


def test_static_batch_ends_early_when_the_floors_request_does_not_fit_in() -> None:
    """So that the next batch begins with it: the bound holds for static engines, too."""
    world = World(policies=build({"order": "strict"}))
    agent = world.agent("a", static(slots=8))
    busy = world.submit(8, priority=10)
    wide = world.submit(priority=1, inputs=8)
    world.submit(30, priority=10)
    agent.finish(*busy)
    assert agent.sizes() == [8, 7]
    assert agent.batches[1].close_reason == "floor"
    agent.finish(*agent.running())
    assert agent.running() == [wide]


def test_request_that_comes_back_keeps_its_place() -> None:
    world = World()
    a = world.agent("a")
    first = world.submit()
    second, third = world.submit(2)
    b = world.agent("b", engine(slots=1))
    assert b.running() == [second]
    world.submit(3)
    a.die()
    b.finish(second)
    assert b.running() == [first]
    b.finish(first)
    assert b.running() == [third]


def test_most_urgent_head_over_all_models_gets_the_shared_slot() -> None:
    world = World()
    agent = world.agent("a", engine(models=["x", "y"]))
    busy = world.submit(model="x")
    low = world.submit(model="x", priority=2)
    high = world.submit(model="y", priority=9)
    agent.finish(busy)
    assert drain(agent) == [high, low]


@pytest.mark.parametrize("seed", range(5))
def test_any_eight_dispatches_hold_one_of_the_oldest(seed: int) -> None:
    """The contract over a random history: mixed priorities, arrivals and ends."""
    draw = random.Random(seed)
    world, agent, _ = one_slot("strict")
    oldest_at: list[bool] = []
    waiting: dict[int, Request] = {}
    for _ in range(400):
        for _ in range(draw.randrange(3)):
            request = world.submit(priority=draw.randint(1, 10))
            if not request.attempts:
                waiting[request.rid] = request
        agent.finish(*agent.running())
        if agent.running():
            (started,) = agent.running()
            if started.rid in waiting:
                oldest = min(waiting.values(), key=lambda r: r.place)
                oldest_at.append(started is oldest)
                del waiting[started.rid]
    for window in range(len(oldest_at) - 7):
        assert any(oldest_at[window : window + 8])
