"""How much may a pool retry? Never so much that failure multiplies its load."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.budgets import RetryBudget
from scheduler_service.core.outcomes import Outcome, Reason, RequestClass
from scheduler_service.core.settings import FailoverSettings
from scheduler_service.core.types import SECOND
from scheduler_service.policies import build, failover
from tests.builders import Agent, World, engine


def limits(share: float = 0.2, floor: float = 10.0, burst: int = 100) -> FailoverSettings:
    """Limits of retries, without delays."""
    return FailoverSettings(
        retry_share=share, retry_floor=floor, retry_burst=burst, backoff_base=1, backoff_max=1
    )


def failing_world(settings: FailoverSettings, nodes: int = 2, slots: int = 50) -> World:
    """Nodes whose every attempt fails, and that no policy takes out."""
    policies = build({"health": "trusting"})
    policies.failover = failover.Backoff(settings)
    world = World(policies=policies, failover=settings)
    for number in range(nodes):
        world.agent(f"n{number}", engine(slots=slots))
    return world


def fail_all(world: World, reason: Reason = Reason.ENGINE_ERROR) -> None:
    """Every agent fails what it holds."""
    for agent in world.agents.values():
        if agent.running():
            agent.finish(*agent.running(), reason=reason)


def tick(world: World, duration_s: float = 0.1) -> None:
    """A short while passes, and all agents say that they live."""
    world.advance(duration_s)
    world.step(*(a.beat() for a in world.agents.values() if a.connected))


def attempts(world: World) -> int:
    """All attempts that nodes were sent."""
    return sum(agent.received for agent in world.agents.values())


@given(
    st.lists(
        st.tuples(st.integers(0, 2 * SECOND), st.integers(0, 50), st.integers(0, 100)), max_size=40
    ),
    st.floats(0, 2),
    st.floats(0, 50),
    st.integers(0, 200),
)
def test_no_stretch_of_time_has_more_retries_than_the_bound(
    moves: list[tuple[int, int, int]], share: float, floor: float, burst: int
) -> None:
    """For every stretch from a look to a later one, not only for the whole."""
    settings = limits(share, floor, burst)
    budget, now, firsts = RetryBudget(), 0, 0
    seen = []
    for passed, more, wanted in moves:
        now, firsts = now + passed, firsts + more
        paid = sum(budget.take(now, firsts, settings) for _ in range(wanted))
        seen.append((now, firsts, paid))
    for start in range(len(seen)):
        since, before, _ = seen[start]
        total = 0
        for at, count, paid in seen[start:]:
            total += paid
            bound = burst + share * (count - before) + floor * (at - since) / SECOND
            assert total <= bound + 1e-6


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_total_failure_costs_the_share_and_the_floor_and_no_storm(share: float) -> None:
    """Behaviour 66: 3,000 requests at 100/s, all of whose attempts fail."""
    world = failing_world(limits(share, burst=20))
    made = []
    for _ in range(300):
        made += world.submit(10)
        fail_all(world)
        tick(world)
        fail_all(world)
    while any(r.outcome is None for r in made):
        fail_all(world)
        tick(world)
    seconds = (world.now - made[0].received_at) / SECOND
    assert all(r.outcome is Outcome.FAILED for r in made)
    assert len(made) < attempts(world) <= (1 + share) * len(made) + 10 * seconds + 20
    assert {r.reason for r in made} == {Reason.ATTEMPTS_EXHAUSTED, Reason.RETRY_BUDGET_EXHAUSTED}
    world.assert_idle()


def test_with_an_empty_budget_the_cause_is_named_and_no_layer_may_repeat() -> None:
    world = failing_world(limits(0, 0, 0))
    request = world.submit()
    fail_all(world)
    result = world.result(request)
    assert result.reason is Reason.RETRY_BUDGET_EXHAUSTED
    assert "ENGINE_ERROR" in result.message
    assert result.retry_after is None
    assert result.metadata["lastReason"] == "ENGINE_ERROR"
    assert world.scheduler.state.pools["m"].errors.refused == 1


def test_success_earns_retries_and_silence_earns_the_floor_only() -> None:
    budget, settings = RetryBudget(tokens=0, filled_at=0), limits(0.5, 2, 10)
    assert not budget.take(0, 0, settings)
    assert [budget.take(0, 2, settings) for _ in range(2)] == [True, False]
    assert [budget.take(SECOND // 2, 2, settings) for _ in range(2)] == [True, False]
    later = 1_000 * SECOND
    assert sum(budget.take(later, 2, settings) for _ in range(50)) == 10, "no more are saved up"


def test_death_of_a_large_node_is_paid_for_though_errors_used_up_their_budget() -> None:
    """Behaviour 50: 300 requests die with their node and succeed on the other."""
    world = failing_world(limits(0, 0, 5), slots=300)
    for _ in range(3):
        world.submit(4)
        fail_all(world)
    tick(world, 1)
    fail_all(world)
    assert world.scheduler.state.pools["m"].errors.refused > 0
    requests = world.submit(300)
    first = max(world.agents.values(), key=lambda a: len(a.running()))
    other = next(a for a in world.agents.values() if a is not first)
    first.die()
    while any(r.outcome is None for r in requests):
        if other.running():
            other.finish(*other.running())
        tick(world, 0.5)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
    for _ in range(3):
        tick(world, 1)
    world.assert_idle()


def test_job_items_wait_for_their_turn_where_calls_fail() -> None:
    """Stored work is not given up for want of budget; it is tried again at the floor's pace."""
    world = failing_world(limits(0, 10, 0))
    items = world.submit(5, request_class=RequestClass.JOB, max_attempts=2)
    call = world.submit()
    fail_all(world)
    assert call.reason is Reason.RETRY_BUDGET_EXHAUSTED
    assert all(item.outcome is None for item in items)
    started = []
    for _ in range(100):
        tick(world, 0.02)
        started.append(sum(len(a.running()) for a in world.agents.values()))
    assert started[-1] == 5
    gaps = [started.index(n) for n in range(1, 6)]
    assert all(later - earlier >= 4 for earlier, later in pairwise(gaps))
    for agent in world.agents.values():
        if agent.running():
            agent.finish(*agent.running())
    assert all(item.outcome is Outcome.SUCCEEDED for item in items)
    world.assert_idle()


def test_broken_stream_without_budget_keeps_its_work_for_the_resume_window() -> None:
    world = failing_world(limits(0, 0, 0), slots=1)
    state = world.scheduler.state
    request = world.submit()
    holder = next(a for a in world.agents.values() if a.running())
    state.pools["m"].deaths.tokens, state.pools["m"].deaths.filled_at = 0, world.now
    state.pools["m"].most_inputs = 0
    holder.lose_stream()
    assert len(request.attempts) == 1, "nothing pays for a second attempt"
    holder.join()
    holder.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_delay_of_a_paid_retry_is_the_policys() -> None:
    world = failing_world(limits())
    request = world.submit()
    fail_all(world, Reason.ENGINE_UNAVAILABLE)
    tick(world, 0.01)
    fail_all(world)
    assert len(request.attempts) >= 2


def busy(agent: Agent) -> None:
    """Its engine is full, as it says after it took the work."""
    agent.finish(*agent.running(), reason=Reason.ENGINE_BUSY)


def test_full_engine_is_left_alone_for_a_moment_and_neither_charged_nor_blamed() -> None:
    """Behaviour 60: "I am full" for three seconds, then idle; nothing fails and nobody is out."""
    world = World()
    agent = world.agent()
    requests = world.submit(3)
    for _ in range(30):
        if agent.running():
            busy(agent)
        tick(world)
    node = world.scheduler.state.nodes["n0"]
    assert (node.trust.errors_in_row, node.failed) == (0, 0)
    while any(r.outcome is None for r in requests):
        if agent.running():
            agent.finish(*agent.running())
        tick(world)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
    assert all(r.charged == 1 for r in requests)
    world.assert_idle()
