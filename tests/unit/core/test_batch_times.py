"""Learned batch times, and batches that make nobody late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.batch_times import BatchTime, Rate
from scheduler_service.core.interfaces import BatchView, Close, WaitUntil
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Request, Traits
from scheduler_service.policies import build
from scheduler_service.policies.batching import Feasible
from tests.builders import Agent, World, model, static

NOW = 1_000 * SECOND
LINE = ((1, 30 * MILLISECOND), (8, 100 * MILLISECOND))  # 20 ms + 10 ms per input


def test_line_goes_through_two_sizes() -> None:
    time = BatchTime()
    for size, took in LINE:
        time.learn(size, took)
    for size in (1, 4, 8, 16):
        expected = (20 + 10 * size) * MILLISECOND
        assert time.expect(size) == pytest.approx(expected, rel=0.02)


def test_line_follows_a_node_that_turned_three_times_slower() -> None:
    time = BatchTime()
    for turn in range(300):
        size = 1 + turn % 8
        time.learn(size, (3 if turn >= 100 else 1) * (20 + 10 * size) * MILLISECOND)
    assert time.expect(8) == pytest.approx(300 * MILLISECOND, rel=0.05)
    assert time.expect(1) == pytest.approx(90 * MILLISECOND, rel=0.05)


def test_one_size_for_long_does_not_unsettle_the_line() -> None:
    time = BatchTime()
    for _ in range(5_000):
        time.learn(4, 60 * MILLISECOND)
    time.learn(5, 75 * MILLISECOND)  # 5 ms more than its line
    for size in (1, 4, 8):
        assert 0 < time.expect(size) < 400 * MILLISECOND


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**12)), max_size=60))
def test_expectation_is_never_negative_and_never_falls_with_size(
    seen: list[tuple[int, int]],
) -> None:
    time = BatchTime()
    for size, took in seen:
        time.learn(size, took)
    expected = [time.expect(size) for size in range(1, 65)]
    assert expected == sorted(expected)
    assert min(expected) >= 0


def test_rate_is_that_of_the_last_tenths() -> None:
    rate = Rate()
    for tick in range(200):
        rate.add(NOW + tick * 10 * MILLISECOND, 2)
    assert rate.per_second == pytest.approx(200, rel=0.1)
    rate.add(NOW + 60 * SECOND, 1)
    assert rate.per_second < 5


def view(**fields: object) -> BatchView:
    """Two of at most eight have come just now; a batch of one takes 30 ms, of two 40."""
    fields = {
        "waiting": 2, "inputs_max": 8, "oldest_at": NOW, "earliest_deadline": NEVER,
        "expected_service": 0, "single": 30 * MILLISECOND, "whole": 40 * MILLISECOND,
        "arrivals": 1_000.0, **fields,
    }  # fmt: skip
    return BatchView(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        # A quarter of 30 ms; 7.5 more would come by then.
        ({}, WaitUntil(NOW + 7_500_000)),
        # 0.9 more would come: not worth it.
        ({"arrivals": 120.0}, Close("idle_node", 8, 1.1, 2.0)),
        ({"waiting": 8}, Close("size", 8, 1.1, 2.0)),
        ({"waiting": 4, "size_limit": 4}, Close("size", 4, 1.1, 2.0)),
        ({"oldest_at": NOW - 8 * MILLISECOND}, Close("timeout", 8, 1.1, 2.0)),
        # 1.1 * 40 ms + 5 ms before the deadline.
        ({"earliest_deadline": NOW + 52 * MILLISECOND}, WaitUntil(NOW + 3 * MILLISECOND)),
        ({"earliest_deadline": NOW + 48 * MILLISECOND}, Close("deadline", 8, 1.1, 2.0)),
        ({"single": 0, "whole": 0}, WaitUntil(NOW + 10 * MILLISECOND)),
    ],
)
def test_feasible(fields: dict[str, object], verdict: Close | WaitUntil) -> None:
    assert Feasible().decide(view(**fields), NOW) == verdict


@pytest.mark.parametrize("target_ms", [35, 55, 95, 125])
def test_size_settles_within_a_tenth_of_what_the_target_allows(target_ms: int) -> None:
    """T(B) = 20 + 5 B ms: at most (target - 20) / 5 inputs."""
    former, limit, seen = Feasible(target=target_ms * MILLISECOND), 32, []
    for _ in range(200):
        limit = former.resize(limit, 32, limit, (20 + 5 * limit) * MILLISECOND)
        seen.append(limit)
    best = (target_ms - 20) // 5
    assert max(seen[50:]) <= best + 1
    assert sum(seen[50:]) / len(seen[50:]) >= 0.9 * best - 0.5


def world(order: str = "aged", **options: object) -> tuple[World, Agent]:
    """One static engine of eight, 20 + 10 ms per input by its profile."""
    w = World(policies=build({"batch": "feasible", "order": order}, {"batch": options}))
    agent = w.agent("a", static(slots=8, models=[model(batch_times=LINE)]))
    return w, agent


def end(w: World, agent: Agent, blocker: Request) -> None:
    """A batch of one is over after the 30 ms that it is said to take."""
    w.now += 30 * MILLISECOND
    agent.finish(blocker)


def test_batch_is_the_largest_prefix_that_makes_nobody_late() -> None:
    """1.1 * T(4) = 66 ms is within 70 ms, 1.1 * T(5) = 77 ms is not."""
    w, agent = world()
    blocker = w.submit()
    first = w.submit(timeout=0.1)
    others = w.submit(7)
    end(w, agent, blocker)
    assert agent.running() == [first, *others[:3]]


def test_joiner_with_a_tight_deadline_ends_the_batch_and_leads_the_next() -> None:
    """Where the order is age alone: else the deadline goes first anyway."""
    w, agent = world("fifo")
    blocker = w.submit()
    first = w.submit(3)
    tight = w.submit(timeout=0.08)
    w.submit(2)
    end(w, agent, blocker)  # tight could make it alone within 33 ms, not as the fourth in 66
    assert agent.running() == first
    agent.finish(*first)
    assert agent.running()[:1] == [tight]


def test_deadline_that_cannot_be_met_alone_costs_nobody_anything() -> None:
    w, agent = world()
    blocker = w.submit()
    late = w.submit(timeout=0.05)
    others = w.submit(7)
    end(w, agent, blocker)
    assert agent.running() == [late, *others]


def test_inputs_of_unlike_length_do_not_share_a_batch() -> None:
    """At most twice the shortest; unknown and very short ones are alike."""
    w, agent = world()
    blocker = w.submit()
    lengths = [100, 201, 150, 60, 0, 190]
    requests = [w.submit(traits=Traits(length=length)) for length in lengths]
    end(w, agent, blocker)
    held = [r.traits.length for r in agent.running() if r.traits]
    assert held == [100, 150, 0, 190]
    agent.finish(*agent.running())
    assert requests[1] in agent.running()


def test_lone_request_does_not_wait_for_company_that_will_not_come() -> None:
    w, agent = world()
    request = w.submit()
    assert agent.running() == [request]


def test_size_limit_follows_measured_latency() -> None:
    """Target 50 ms: three inputs of 10 ms on 20."""
    w, agent = world(target=50 * MILLISECOND)
    w.submit(600)
    sizes = []
    for _ in range(60):
        size = len(agent.held)
        sizes.append(size)
        w.now += (20 + 10 * size) * MILLISECOND
        w.step(agent.beat())
        agent.finish(*agent.running())
    assert sizes[0] == 8
    assert set(sizes[20:]) <= {2, 3, 4}
