"""Cordon and drain: no new work, what runs finishes or moves, and the proof of it."""

from __future__ import annotations

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import (
    AttemptState,
    NodeAvailability,
    Outcome,
    Reason,
    RequestState,
)
from scheduler_service.core.types import NEVER, SECOND, Drain
from tests.builders import Agent, World, engine, seconds


def drain_of(world: World, node_id: str = "a") -> Drain:
    """A node's drain."""
    drain = world.scheduler.state.nodes[node_id].drain
    assert drain is not None
    return drain


def availability(world: World, node_id: str = "a") -> NodeAvailability:
    """What operators want of it."""
    return world.scheduler.state.nodes[node_id].availability


def draining(grace_s: float = 60, slots: int = 2, **event: object) -> tuple[World, Agent, Agent]:
    """Node a with two requests, told to drain; node b is idle."""
    world = World()
    a = world.agent("a", engine(slots=slots))
    world.submit(2, stream=True)
    b = world.agent("b", engine(slots=4))
    event = {"terminate": False, "reason": "maintenance", **event}
    world.step(ev.DrainRequested("a", seconds(grace_s), **event))  # type: ignore[arg-type]
    return world, a, b


def test_draining_node_finishes_what_runs_and_gets_nothing_new() -> None:
    """Behaviour 107: cordon, finish, leave."""
    world, a, b = draining()
    first, second = a.running()
    (told,) = a.drains
    assert (told.grace, told.terminate, told.reason) == (60 * SECOND, False, "maintenance")
    new = world.submit(4)
    assert b.running() == new
    world.advance(20)
    a.speak(first, 20)
    a.finish(first)
    assert availability(world) is NodeAvailability.DRAINING
    a.finish(second)
    assert availability(world) is NodeAvailability.DRAINED
    drain = drain_of(world)
    assert drain.finished == [first.request_id, second.request_id]
    assert (drain.moved, drain.lost) == ([], [])
    assert drain.ended_at
    (proof,) = world.noted("node_drained")
    assert proof.data is not None
    assert (proof.data["finished"], proof.data["moved"], proof.data["lost"]) == (2, 0, 0)
    assert world.noted("failover") == []


def test_idle_node_is_drained_at_once() -> None:
    world = World()
    world.agent("a")
    world.step(ev.DrainRequested("a", SECOND, True))
    assert availability(world) is NodeAvailability.DRAINED
    assert len(world.noted("node_drained")) == 1


def test_what_the_agent_gives_back_moves_uncharged() -> None:
    world, a, b = draining()
    requests = a.running()
    a.finish(*requests, reason=Reason.NODE_DRAINING, refused=True)
    assert b.running() == requests
    assert [r.charged for r in requests] == [1, 1]
    assert sorted(drain_of(world).moved) == [r.request_id for r in requests]
    assert availability(world) is NodeAvailability.DRAINED


def test_drain_ends_at_its_limit_though_the_node_is_stuck() -> None:
    """Behaviour 108: the engine hangs; at the limit the work moves and the drain ends."""
    world, a, b = draining(grace_s=10)
    a.obeys = False
    requests = a.running()
    world.advance(9.9)
    assert b.running() == []
    world.advance(2.2)
    assert b.running() == requests
    assert availability(world) is NodeAvailability.DRAINED
    drain = drain_of(world)
    assert sorted(drain.moved) == [r.request_id for r in requests]
    assert drain.ended_at - drain.started_at <= 12.1 * SECOND
    for request in requests:
        b.finish(request)
    a.finish_ids(list(a.held))
    assert world.scheduler.state.totals.late_results == 2
    world.assert_idle()


def test_what_cannot_move_is_listed_as_lost_once() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True, continuable=False)
    a.obeys = False
    a.speak(request, 3)
    world.agent("b")
    world.step(ev.DrainRequested("a", SECOND, False))
    world.advance(4)
    drain = drain_of(world)
    assert (drain.finished, drain.moved, drain.lost) == ([], [], [request.request_id])
    result = world.result(request)
    assert result.reason is Reason.STREAM_INTERRUPTED
    assert "NODE_DRAINING after" in result.message, "no node was lost"


@pytest.mark.parametrize("spoke", [True, False])
def test_node_that_dies_while_it_drains_proves_what_moved(spoke: bool) -> None:
    world, a, b = draining()
    requests = a.running()
    if spoke:
        for request in requests:
            a.speak(request, 2)
    a.die()
    world.advance(2.1)
    assert b.running() == requests
    drain = drain_of(world)
    assert sorted(drain.moved) == [r.request_id for r in requests]
    assert drain.lost == []


def test_twin_that_answers_first_counts_as_moved() -> None:
    world, a, b = draining(slots=2)
    requests = a.running()
    a.lose_stream()
    assert b.running() == requests
    a.join()
    b.speak(requests[0], 1)
    assert drain_of(world).moved == [requests[0].request_id]
    b.finish(requests[0])
    a.speak(requests[1], 1)
    a.finish(requests[1])
    assert drain_of(world).finished == [requests[1].request_id]
    assert availability(world) is NodeAvailability.DRAINED


def test_drain_is_told_again_on_a_new_stream() -> None:
    """The first telling may have been lost with the old one."""
    world, a, _ = draining(grace_s=60)
    a.lose_stream()
    world.advance(1)
    a.join()
    assert len(a.drains) == 2
    assert a.drains[1].grace == 59 * SECOND
    assert availability(world) is NodeAvailability.DRAINING


def test_agents_own_drain_is_not_told_back_to_it() -> None:
    world, a, _ = draining(by_agent=True)
    assert a.drains == []
    assert availability(world) is NodeAvailability.DRAINING


def test_second_drain_can_only_hasten_the_first() -> None:
    """Else nothing but its work would end a drain that was begun without a limit."""
    world, a, b = draining(1e9)
    first, requests = drain_of(world), a.running()
    a.obeys = False
    world.step(ev.DrainRequested("a", 3 * SECOND, False))
    world.step(ev.DrainRequested("a", 60 * SECOND, False))
    world.step(ev.DrainRequested("a", NEVER, True))
    assert drain_of(world) is first
    assert [(told.grace, told.terminate) for told in a.drains] == [
        (10**9 * SECOND, False),
        (3 * SECOND, False),
        (3 * SECOND, True),
    ]
    world.advance(5.2)
    assert b.running() == requests
    assert availability(world) is NodeAvailability.DRAINED


def test_drain_of_an_unknown_or_lost_node_is_ignored() -> None:
    world = World()
    agent = world.agent("a")
    agent.die()
    world.advance(3)
    world.step(ev.DrainRequested("a", SECOND, True), ev.DrainRequested("nobody", SECOND, True))
    assert agent.drains == []


def test_cordoned_node_finishes_its_work_and_comes_back() -> None:
    world = World()
    agent = world.agent("a", engine(slots=2))
    running = world.submit()
    world.step(ev.NodeCordoned("a", True, "a look at its fan"))
    waiting = world.submit()
    assert waiting.state is RequestState.QUEUED
    agent.finish(running)
    assert running.outcome is Outcome.SUCCEEDED
    assert waiting.state is RequestState.QUEUED
    world.step(ev.NodeCordoned("a", False))
    assert agent.running() == [waiting]
    assert [len(world.noted(k)) for k in ("node_cordoned", "node_uncordoned")] == [1, 1]


def test_cordon_twice_is_one_event() -> None:
    world = World()
    world.agent("a")
    world.step(ev.NodeCordoned("a", True), ev.NodeCordoned("a", True))
    world.step(ev.NodeCordoned("nobody", True))
    assert len(world.noted("node_cordoned")) == 1


def test_drained_node_can_be_put_back_to_work() -> None:
    world = World()
    agent = world.agent("a")
    world.step(ev.DrainRequested("a", SECOND, False))
    world.step(ev.NodeCordoned("a", False))
    request = world.submit()
    assert agent.running() == [request]
    world.advance(10)
    assert availability(world) is NodeAvailability.ACTIVE


def test_lifted_drain_ends_its_proof_and_leaves_the_work_alone() -> None:
    world, a, _ = draining(grace_s=5)
    world.step(ev.NodeCordoned("a", False))
    assert drain_of(world).ended_at
    world.advance(10)
    assert len(a.running()) == 2
    assert world.noted("failover") == []


@pytest.mark.parametrize("ended", [False, True])
def test_agent_is_told_that_its_drain_is_lifted_and_again_on_a_new_stream(ended: bool) -> None:
    world, a, _ = draining()
    if ended:
        a.finish(*a.running())
    world.step(ev.NodeCordoned("a", False))
    assert [told.lifted for told in a.drains] == [False, True]
    a.lose_stream()
    world.advance(1)
    a.join()
    assert [told.lifted for told in a.drains] == [False, True, True]
    assert availability(world) is NodeAvailability.ACTIVE
    world.step(ev.DrainRequested("a", SECOND, False))
    assert not a.drains[-1].lifted


def test_terminating_drain_can_be_lifted_until_it_is_over() -> None:
    world, a, _ = draining(terminate=True)
    world.step(ev.NodeCordoned("a", False))
    assert availability(world) is NodeAvailability.ACTIVE
    world.step(ev.DrainRequested("a", SECOND, True))
    a.finish(*a.running())
    assert availability(world) is NodeAvailability.DRAINED
    world.step(ev.NodeCordoned("a", False))
    assert availability(world) is NodeAvailability.DRAINED


@pytest.mark.parametrize("first", ["agent", "operator"])
def test_agent_that_leaves_by_itself_is_not_called_back(first: str) -> None:
    """It would refuse all work, so the books must not call it active."""
    world, a, _ = draining(by_agent=first == "agent")
    if first == "operator":
        world.step(ev.DrainRequested("a", SECOND, True, by_agent=True))
    world.step(ev.NodeCordoned("a", False))
    assert availability(world) is NodeAvailability.DRAINING
    assert world.noted("node_uncordoned") == []
    assert not any(told.lifted for told in a.drains)


def test_running_item_that_the_drain_takes_back_was_not_refused() -> None:
    """It ran, until the grace was over: its attempt reads cancelled, and is not charged."""
    world, a, b = draining()
    running, waiting = a.running()
    a.run(running)
    a.finish(running, waiting, reason=Reason.NODE_DRAINING, refused=True)
    assert running.attempts[0].state is AttemptState.CANCELLED
    assert waiting.attempts[0].state is AttemptState.REFUSED
    assert (running.charged, waiting.charged) == (1, 1)
    assert sorted(drain_of(world).moved) == sorted([running.request_id, waiting.request_id])
    b.finish(*b.running())
    world.assert_idle()


def test_why_a_node_was_taken_out_of_service_outlives_a_break_of_its_stream() -> None:
    """And the break is no reason any more once it is back; nor is anything when it works again."""
    world = World()
    agent = world.agent("a")
    world.step(ev.NodeCordoned("a", True, "new disk"))
    agent.lose_stream()
    assert world.scheduler.state.nodes["a"].state_reason == "its stream broke"
    agent.join()
    node = world.scheduler.state.nodes["a"]
    assert (node.availability, node.availability_reason, node.state_reason) == (
        NodeAvailability.CORDONED, "new disk", "",
    )  # fmt: skip
    world.step(ev.NodeCordoned("a", False, "disk is in"))
    assert (node.availability_reason, node.state_reason) == ("", "")
