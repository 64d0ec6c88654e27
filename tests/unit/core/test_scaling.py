"""The threshold rule in the core: pressure, cool-down, bounds, and who leaves first."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import NodeAvailability, Outcome, Reason, RequestClass
from scheduler_service.core.scaling import leaving
from scheduler_service.core.settings import AutoscaleSettings, QueueSettings
from scheduler_service.core.types import SECOND
from scheduler_service.policies import build
from tests.builders import Agent, World, engine


def scaled(options: dict[str, Any] | None = None, **fields: Any) -> World:
    """A world with scaling on."""
    policies = build(options={"autoscale": options or {}})
    autoscale = AutoscaleSettings(**{"enabled": True, **fields})
    return World(policies=policies, autoscale=autoscale)


def asked(world: World) -> list[int]:
    """The counts asked for, in turn."""
    return [c.desired for c in world.of(cmd.RequestScale)]


def managed(world: World, node_id: str, **fields: Any) -> Agent:
    """A node that the autoscaler started."""
    return world.agent(node_id, engine(**fields), managed=True)


def test_five_waiting_requests_ask_for_one_more_node() -> None:
    """Behaviour 102: what waits counts; within two ticks."""
    world = scaled()
    world.agent()
    world.submit(5)
    world.advance(2)
    assert asked(world) == []
    world.submit()
    world.advance(1)
    (scale,) = world.of(cmd.RequestScale)
    assert (scale.desired, scale.ready, scale.starting) == (2, 1, 0)
    assert "5 requests wait" in scale.reason
    assert len(world.noted("scale_out")) == 1


def test_reason_goes_when_what_was_wanted_is_there_and_nobody_waits() -> None:
    world = scaled()
    first = world.agent()
    requests = [world.submit(), *world.submit(5)]
    world.advance(1)
    scale = world.scheduler.state.pools["m"].scale
    assert "5 requests wait" in scale.reason
    second = managed(world, "n1")
    world.advance(1)
    assert scale.reason, "they still wait"
    while world.scheduler.state.requests:
        for agent in (first, second):
            agent.finish_ids(list(agent.held))
    world.advance(1)
    assert scale.reason == ""
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)


def test_request_that_waits_longer_than_three_seconds_asks_for_one_more() -> None:
    world = scaled()
    world.agent()
    world.submit(2)
    world.advance(3)
    assert asked(world) == []
    world.advance(1.1)
    assert asked(world) == [2]


def test_cool_down_of_ten_seconds_between_two_steps_out() -> None:
    world = scaled(max_nodes=10)
    world.agent()
    world.submit(50)
    world.advance(10)
    assert asked(world) == [2]
    world.advance(1.1)
    assert asked(world) == [2, 3]
    world.advance(10)
    assert asked(world) == [2, 3, 4]


def test_starting_nodes_count_so_one_lack_does_not_ask_again_and_again() -> None:
    """Behaviour 101: nodes take 60 s to start, one tick a second; never above the maximum."""
    world = scaled(max_nodes=4)
    world.agent()
    world.submit(50)
    world.advance(60)
    assert asked(world) == [2, 3, 4]
    assert max(asked(world)) == 4


def test_zero_load_stays_at_the_minimum() -> None:
    """Behaviour 101: with no traffic nothing is asked for."""
    world = scaled()
    world.agent()
    world.advance(300)
    assert asked(world) == []


def test_below_the_minimum_it_fills_up_at_once_and_once() -> None:
    world = scaled(min_nodes=3)
    world.agent("a")
    world.advance(30)
    assert asked(world) == [3]
    for node_id in ("b", "c"):
        world.agent(node_id)
    world.advance(30)
    assert asked(world) == [3]


def test_model_that_is_only_known_gets_its_first_node() -> None:
    policies = build()
    world = World(
        policies=policies,
        known_models=frozenset({"m"}),
        autoscale=AutoscaleSettings(enabled=True),
    )
    world.step()
    world.advance(1.1)
    assert asked(world) == [1]


def test_node_that_never_starts_counts_no_more_after_its_time() -> None:
    world = scaled(start_timeout=20 * SECOND)
    world.agent()
    world.submit(50)
    world.advance(10.5)
    assert asked(world) == [2]
    world.advance(31)
    assert asked(world)[:3] == [2, 3, 4], "while it may still come it counts"
    world.submit()
    world = scaled({"cooldown_out": 30 * SECOND}, start_timeout=20 * SECOND)
    world.agent()
    world.submit(50)
    world.advance(33)
    assert asked(world) == [2, 2], "it never came, so it is asked for again"


def test_nobody_waits_for_ever_for_nodes_that_are_asked_for_and_never_come() -> None:
    """One asked for within the grace gets its time to start; those asked for later do not count."""
    world = World(
        policies=build(),
        known_models=frozenset({"m"}),
        queue=QueueSettings(no_node_grace=30 * SECOND),
        autoscale=AutoscaleSettings(enabled=True, max_nodes=1, start_timeout=20 * SECOND),
    )
    request = world.submit()
    world.advance(35)
    assert world.outcome(request) is None
    world.advance(16)
    assert len(asked(world)) >= 3
    assert world.result(request).reason is Reason.NO_CAPACITY


def test_failed_start_is_not_awaited() -> None:
    world = scaled()
    world.agent()
    world.submit(50)
    world.advance(1.1)
    assert asked(world) == [2]
    world.step(ev.ScaleFailed("m", "no more machines"))
    world.step(ev.ScaleFailed("unknown", "no such pool"))
    assert len(world.noted("scale_failed")) == 1
    world.advance(10.1)
    assert asked(world) == [2, 2]


def test_idle_pool_gives_one_node_back_after_a_minute() -> None:
    world = scaled()
    managed(world, "a")
    world.advance(1)
    b = managed(world, "b")
    world.advance(59)
    assert asked(world) == []
    world.advance(3)
    assert asked(world) == [1]
    (scale,) = world.of(cmd.RequestScale)
    assert scale.drained == ["b"], "of two idle ones the younger"
    assert (b.drains[0].terminate, b.drains[0].grace) == (True, 60 * SECOND)
    assert len(world.noted("scale_in")) == 1
    world.advance(300)
    assert asked(world) == [1], "never below the minimum"


def test_node_that_an_operator_started_is_never_drained() -> None:
    world = scaled()
    world.agent("a")
    world.agent("b")
    world.advance(200)
    assert asked(world) == []


def test_scale_in_takes_starting_ones_first_and_drains_no_running_one() -> None:
    """Behaviour 106: two run, one is starting, and the need falls."""
    world = scaled({"idle": 1 * SECOND})
    a, b = managed(world, "a"), managed(world, "b")
    world.submit(7)
    world.advance(1.1)
    assert asked(world) == [3], "one is starting"
    while a.running() or b.running():
        for agent in (a, b):
            agent.finish(*agent.running())
    world.advance(13)
    assert asked(world)[:2] == [3, 2]
    assert world.of(cmd.RequestScale)[1].drained == []
    nodes = world.scheduler.state.nodes.values()
    assert all(n.availability is NodeAvailability.ACTIVE for n in nodes)


def test_scale_in_picks_the_least_loaded_then_the_youngest() -> None:
    """Behaviour 106: starting, then idle, then least loaded, the youngest first."""
    world = scaled()
    for node_id, requests in (("first", 1), ("second", 2), ("third", 1)):
        agent = managed(world, node_id, slots=2)
        for other in world.scheduler.state.nodes:
            world.step(ev.NodeCordoned(other, other != node_id))
        world.submit(requests)
        assert len(agent.running()) == requests
        world.advance(0.2)
    for node_id in ("first", "second", "third"):
        world.step(ev.NodeCordoned(node_id, False))
    pool = world.scheduler.state.pools["m"]
    assert [n.node_id for n in leaving(pool, 3)] == ["third", "first", "second"]
    assert [n.node_id for n in leaving(pool, 1)] == ["third"]
    assert leaving(pool, -1) == []


def test_scaled_in_node_finishes_its_stream() -> None:
    """Behaviour 107: it is drained, not cut, and gets no new work from then on."""
    world = World()
    agent = managed(world, "a", slots=4)
    request = world.submit(stream=True)
    agent.speak(request, 5)
    world.step(ev.DrainRequested("a", 60 * SECOND, True, "scale-in"))
    late = world.submit()
    world.advance(20)
    agent.speak(request, 5)
    agent.finish(request)
    assert world.caller(request).text == "a" * 10
    assert late.attempts == ()


def test_constant_load_just_above_one_node_turns_at_most_twice() -> None:
    """Behaviour 104: ten minutes of 1.1 Erlangs; hysteresis and cool-down."""
    world = scaled()
    agents = [managed(world, "n0")]
    turns: list[int] = []
    for tick in range(6_000):
        if tick % 9 == 0:
            world.submit()
        world.advance(0.1)
        for agent in agents:
            done = [r for r in agent.running() if world.now - r.attempts[-1].started_at >= SECOND]
            if done and agent.connected:
                agent.finish(*done)
        for scale in world.of(cmd.RequestScale)[len(turns) :]:
            turns.append(scale.desired - scale.ready - scale.starting)
            if turns[-1] > 0:
                agents.append(managed(world, f"n{len(agents)}"))
    changes = [1 for a, b in itertools.pairwise(turns) if (a > 0) != (b > 0)]
    assert len(changes) <= 2


def test_job_backlog_alone_asks_for_nothing() -> None:
    world = scaled()
    world.agent()
    world.submit(50, request_class=RequestClass.JOB)
    world.advance(30)
    assert asked(world) == []


@pytest.mark.parametrize("policy", ["fixed"])
def test_fixed_never_asks(policy: str) -> None:
    world = World(policies=build({"autoscale": policy}), autoscale=AutoscaleSettings(enabled=True))
    world.agent()
    world.submit(50)
    world.advance(60)
    assert asked(world) == []


def test_scaling_is_off_unless_enabled() -> None:
    world = World()
    world.agent()
    world.submit(50)
    world.advance(60)
    assert asked(world) == []


def test_lost_node_is_not_taken_for_one_that_starts() -> None:
    """The pool is back at its minimum within two ticks, not when the start would have timed out."""
    world = scaled(min_nodes=2, max_nodes=4)
    world.advance(1)
    first = managed(world, "a")
    managed(world, "b")
    world.advance(2)
    before = asked(world)
    first.die()
    world.advance(5)
    assert asked(world)[len(before) :] == [2], "one more is asked for, once"
    pool = world.scheduler.state.pools["m"]
    assert pool.scale.desired == 2
