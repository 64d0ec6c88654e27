"""Nodes come back to a restarted scheduler with work of the one before."""

from __future__ import annotations

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, Reason, RequestClass, RequestState
from scheduler_service.core.relay import Output
from scheduler_service.core.types import Request
from tests.builders import Agent, World, engine

OLD = 1 << 40 | 5  # a dispatch id of term 1


def restarted(*nodes: str, **fields: object) -> World:
    """The scheduler of term 2, that waits for these nodes."""
    world = World(term=2, nodes_before=frozenset(nodes), **fields)
    world.step()
    return world


def back(world: World, request: Request | None, node_id: str = "a", **fields: object) -> Agent:
    """A node joins, and brings back an item of the request."""
    agent = Agent(world, node_id, ev.NodeSpec((engine(slots=2),)), "boot")
    world.agents[node_id] = agent
    agent.epoch, agent.connected = world.new_epoch(), True
    world.sessions[node_id, agent.epoch] = agent
    item = ev.RunningItem(
        OLD,
        orphan=request,
        **{"engine_id": "e0", "model": "m", "attempt": 2, "output_id": 77, **fields},  # type: ignore[arg-type]
    )
    spec = agent.spec
    world.step(ev.NodeJoined(node_id, "boot", agent.epoch, spec, [item]))
    world.step(ev.CreditsGranted(node_id, agent.epoch, [("e0", 1, None)]))
    return agent


def end(world: World, agent: Agent, **fields: object) -> None:
    """The item ends on its node."""
    item = ev.ItemEnd(OLD, **fields)  # type: ignore[arg-type]
    world.step(ev.ItemsFinished(agent.node_id, agent.epoch, [item]))


def test_orphan_is_adopted_under_its_old_id_and_answers_once() -> None:
    world = restarted("a")
    request = world.request(max_attempts=0)
    agent = back(world, request)
    assert request.state is RequestState.DISPATCHED
    (attempt,) = request.attempts
    assert (attempt.dispatch_id, attempt.number, attempt.output_id) == (OLD, 2, 77)
    assert agent.abandoned == []
    assert world.scheduler.state.nodes["a"].engines["e0"].in_flight_inputs == 1
    end(world, agent)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_what_adopted_work_took_is_not_known_and_teaches_nothing() -> None:
    """It may have ended before its node was back: a service time of nothing would be believed."""
    world = restarted("a")
    request = world.request(max_attempts=0)
    end(world, back(world, request))
    assert request.outcome is Outcome.SUCCEEDED
    state = world.scheduler.state
    assert state.nodes["a"].engines["e0"].service == {}
    assert state.pools["m"].estimate.samples == 0


def test_caller_that_was_first_is_bound_to_the_work_and_nothing_is_sent() -> None:
    world = restarted("a")
    request = world.submit(stream=True)
    assert request.state is RequestState.QUEUED, "its model is waited for"
    agent = back(world, request)
    assert request.live.keys() == {OLD}
    assert isinstance(request.output, Output)
    assert request.output.output_id == 77
    assert agent.batches == []
    end(world, agent)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_nothing_is_dispatched_before_all_nodes_of_before_are_back() -> None:
    world = restarted("a", "b")
    first = world.submit(2)
    agent = back(world, None, "a")
    world.advance(1)
    assert agent.batches == []
    other = world.agent("b", engine(slots=2))
    assert [r.state for r in first] == [RequestState.DISPATCHED] * 2
    assert len(agent.running()) + len(other.running()) == 2


def test_node_that_stays_away_is_waited_for_five_seconds() -> None:
    world = restarted("a", "b")
    request = world.submit()
    agent = world.agent("a")
    world.advance(4.9)
    assert agent.running() == []
    world.advance(0.2)
    assert agent.running() == [request]


def test_first_start_waits_for_nobody() -> None:
    world = restarted()
    agent = world.agent("a")
    request = world.submit()
    assert agent.running() == [request]


def test_what_nobody_wants_is_abandoned() -> None:
    world = restarted("a")
    agent = back(world, None)
    assert agent.abandoned == [OLD]
    world.assert_idle()


def test_work_whose_request_was_dispatched_again_is_abandoned() -> None:
    world = restarted("b")
    request = world.submit()
    world.agent("b")
    assert request.state is RequestState.DISPATCHED
    agent = back(world, request)
    assert agent.abandoned == [OLD]


def test_orphan_without_a_body_ends_with_its_node() -> None:
    """It cannot be sent anywhere else; its caller is told at once."""
    world = restarted("a")
    request = world.request(max_attempts=0)
    agent = back(world, request)
    world.agent("b")
    agent.die()
    world.advance(3)
    assert request.outcome is Outcome.FAILED
    world.assert_idle()


def test_orphan_whose_caller_brought_its_body_is_run_again() -> None:
    world = restarted("a")
    request = world.request(max_attempts=0)
    agent = back(world, request)
    world.step(ev.BodyReturned(request.rid, world.request(max_attempts=3, user_id="u")))
    other = world.agent("b")
    agent.die()
    world.advance(3)
    assert other.running() == [request]
    assert (request.user_id, request.charged) == ("u", 3)
    other.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_adopted_item_of_a_job_is_run_again_when_its_node_dies() -> None:
    """Its body is in the store."""
    world = restarted("a")
    item = world.request(request_class=RequestClass.JOB)
    agent = back(world, item)
    other = world.agent("b")
    agent.die()
    world.advance(3)
    assert other.running() == [item]
    other.finish(item)
    assert item.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_body_of_what_is_over_or_was_never_adopted_changes_nothing() -> None:
    world = restarted("a")
    request = world.request(max_attempts=0)
    agent = back(world, request)
    end(world, agent)
    stated = world.request(max_attempts=3)
    world.step(ev.BodyReturned(request.rid, stated), ev.BodyReturned(999, stated))
    assert request.max_attempts == 0
    own = world.submit(max_attempts=2)
    world.step(ev.BodyReturned(own.rid, stated))
    assert own.max_attempts == 2


@pytest.mark.parametrize("came_again", [0, 7])
def test_nothing_is_written_behind_text_that_has_not_come_again(came_again: int) -> None:
    """Its caller may have twelve letters of it; the next attempt begins a new output."""
    world = restarted("a")
    request = world.submit(stream=True)
    agent = back(world, request, written=12)
    other = world.agent("b")
    if came_again:
        world.scheduler.relay.accept(OLD, 0, 0, 0, came_again)
        world.step()
    agent.lose_stream()
    assert other.running() == []  # undelivered, as it seems, but its caller may have some
    world.advance(3)
    assert other.running() == [request]
    assert request.output is not None
    assert request.output.output_id != 77
    assert not request.continuing


def test_text_that_has_come_again_is_continued() -> None:
    world = restarted("a")
    request = world.submit(stream=True)
    agent = back(world, request, written=12)
    other = world.agent("b")
    world.scheduler.relay.accept(OLD, 0, 0, 0, 12)
    world.step()
    agent.die()
    world.advance(3)
    assert other.running() == [request]
    assert request.output is not None
    assert (request.output.output_id, request.continuing) == (77, True)


def test_orphan_of_an_engine_that_is_gone_runs_again_if_it_can() -> None:
    world = restarted("a")
    lost, item = world.request(max_attempts=0), world.request(request_class=RequestClass.JOB)
    back(world, lost, "a", engine_id="gone")
    assert (lost.outcome, lost.reason) == (Outcome.FAILED, Reason.NODE_LOST)
    agent = back(world, item, "b", engine_id="gone")
    world.step()
    assert item.state is RequestState.DISPATCHED
    assert agent.abandoned == [OLD]
