"""Sessions: joins, silence, loss, restarts, reconnects, and two that claim one id."""

from __future__ import annotations

from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import NodeHealth, Outcome, Reason, RequestState
from scheduler_service.core.types import SECOND, NodeSpec
from tests.builders import Agent, World, engine, health, model


def state_of(world: World, node_id: str = "n0") -> NodeHealth:
    """A node's health."""
    return world.scheduler.state.nodes[node_id].health


def test_joined_node_is_healthy_and_its_models_are_known() -> None:
    world = World()
    world.agent("a", engine(models=["x", "y"]))
    assert state_of(world, "a") is NodeHealth.HEALTHY
    (joined,) = world.noted("node_joined")
    assert joined.data is not None
    assert joined.data["models"] == ["x", "y"]


def test_node_without_an_active_model_is_starting_and_gets_no_work() -> None:
    """Behaviour 111: known is not ready."""
    world = World()
    agent = world.agent("a", engine(models=[model(active=False)]))
    assert state_of(world, "a") is NodeHealth.STARTING
    request = world.submit()
    assert agent.batches == []
    agent.report()
    assert state_of(world, "a") is NodeHealth.HEALTHY
    assert agent.running() == [request]


def test_two_seconds_of_silence_are_no_failover() -> None:
    """SIGSTOP for 2 s: nothing happens."""
    world = World()
    agent = world.agent()
    other = world.agent("other")
    request = world.submit()
    agent.frozen = True
    world.advance(2.9)
    agent.frozen = False
    assert state_of(world) is NodeHealth.HEALTHY
    world.advance(5)
    agent.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    assert other.batches == []


def test_three_seconds_of_silence_make_it_suspect_and_two_more_lost() -> None:
    """Behaviour 54: SIGSTOP; the work completes elsewhere within the limit."""
    world = World()
    agent = world.agent()
    request = world.submit()
    other = world.agent("other")
    agent.frozen = True
    world.advance(3.01)
    assert state_of(world) is NodeHealth.SUSPECT
    world.submit()
    assert agent.running() == [request], "no new work for a suspect"
    other.finish(*other.running())
    assert other.running() == [], "silence alone moves nothing before the window is over"
    world.advance(2.01)
    assert state_of(world) is NodeHealth.LOST
    assert other.running() == [request]
    other.finish(request)
    assert request.outcome is Outcome.SUCCEEDED


def test_suspect_that_is_heard_again_is_healthy_and_keeps_its_work() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    waiting = world.submit()
    agent.frozen = True
    world.advance(4.5)
    assert state_of(world) is NodeHealth.SUSPECT
    agent.frozen = False
    world.step(agent.beat())
    assert state_of(world) is NodeHealth.HEALTHY
    world.advance(10)
    agent.finish(request)
    assert agent.running() == [waiting]
    assert len(request.attempts) == 1


def test_idle_node_that_beats_stays_and_works_at_once() -> None:
    """Behaviour 81: ten times the limit without work; the same session serves the next request."""
    world = World()
    agent = world.agent()
    epoch = agent.epoch
    world.advance(30)
    assert world.scheduler.state.nodes["n0"].epoch == epoch
    request = world.submit()
    assert agent.running() == [request]
    assert world.noted("node_suspect") == []


def test_times_of_liveness_are_settings() -> None:
    world = World(health=health(session_timeout=SECOND // 2, resume_window=SECOND // 4))
    world.agent().frozen = True
    world.advance(0.51)
    assert state_of(world) is NodeHealth.SUSPECT
    world.advance(0.26)
    assert state_of(world) is NodeHealth.LOST


def test_frozen_agent_on_waking_finds_its_session_closed_and_abandons() -> None:
    """Behaviour 47: it is told to say hello again, and then to abandon what it holds."""
    world = World()
    agent = world.agent()
    request = world.submit()
    other = world.agent("other")
    agent.frozen = True
    world.advance(6)
    (closed,) = agent.closed
    assert (closed.reason, closed.reconnect) == (Reason.NODE_LOST, True)
    assert other.running() == [request]
    agent.frozen = False
    ids = list(agent.held)
    agent.join()
    assert agent.abandoned == ids
    assert state_of(world) is NodeHealth.HEALTHY
    other.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_messages_of_a_dead_session_change_nothing() -> None:
    """Fenced by epoch: credits, reports, starts and descriptions of the old stream."""
    world = World()
    agent = world.agent()
    world.submit()
    agent.frozen = True
    world.advance(6)
    waiting = world.submit()
    epoch = agent.epoch
    world.step(
        ev.NodesHeard([("n0", epoch)]),
        ev.CreditsGranted("n0", epoch, [("e0", 100, None)]),
        ev.ReportReceived("n0", epoch, 1, {}),
        ev.ItemsRunning("n0", epoch, list(agent.held)),
        ev.NodeDescribed("n0", epoch, agent.spec),
        ev.SessionBroken("n0", epoch),
    )
    assert state_of(world) is NodeHealth.LOST
    assert waiting.state is RequestState.QUEUED


def test_node_that_says_goodbye_without_work_is_gone_at_once() -> None:
    world = World()
    agent = world.agent()
    agent.lose_stream(goodbye=True)
    assert state_of(world) is NodeHealth.LOST
    assert world.scheduler.state.nodes["n0"].state_reason == "it left"
    assert world.noted("node_suspect") == []


def test_lost_node_is_shown_for_a_while_and_then_forgotten() -> None:
    """Behaviour 112: nothing of a dead node stays for ever; totals keep its counts."""
    world = World(health=health(lost_memory=60 * SECOND))
    agent = world.agent()
    request = world.submit()
    agent.finish(request)
    agent.die()
    world.advance(3)
    assert "n0" in world.scheduler.state.nodes
    world.advance(60)
    assert "n0" not in world.scheduler.state.nodes
    assert world.scheduler.state.totals.outcomes[Outcome.SUCCEEDED] == 1


def test_finished_and_failed_are_counted_over_a_nodes_sessions() -> None:
    world = World()
    agent = world.agent()
    first = world.submit()
    agent.finish(first)
    agent.die()
    agent.restart()
    second = world.submit()
    agent.finish(second)
    assert world.scheduler.state.nodes["n0"].finished == 2


# The same agent on a new stream.


def test_reconnecting_agent_keeps_what_it_holds() -> None:
    world = World()
    agent = world.agent("a", engine(slots=4))
    requests = world.submit(3)
    agent.run(*requests)
    agent.lose_stream()
    agent.join()
    assert agent.abandoned == []
    assert [r.state for r in requests] == [RequestState.RUNNING] * 3
    assert all(len(r.attempts) == 1 for r in requests)
    world.submit(3)
    assert len(agent.running()) == 4, "what it holds still counts"
    for request in agent.running():
        agent.finish(request)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)


def test_items_that_never_arrived_go_back_uncharged() -> None:
    """The stream broke between the scheduler's write and the agent's read."""
    world = World()
    agent = world.agent("a", engine(slots=2))
    arrived, lost = world.submit(2)
    del agent.held[agent.dispatch_id(lost)]
    agent.lose_stream()
    agent.join()
    assert sorted(r.rid for r in agent.running()) == [arrived.rid, lost.rid]
    assert arrived.charged == 1
    assert lost.charged == 1
    assert [a.state.name for a in lost.attempts] == ["REFUSED", "RUNNING"]


def test_items_that_are_no_longer_wanted_are_abandoned() -> None:
    world = World()
    agent = world.agent("a", engine(slots=2))
    kept, gone = world.submit(2)
    ids = [agent.dispatch_id(gone)]
    agent.lose_stream()
    world.cancel(gone)
    agent.join()
    assert agent.abandoned == ids
    assert agent.running() == [kept]
    agent.finish(kept)
    world.assert_idle()


def test_unknown_items_of_another_term_are_abandoned() -> None:
    world = World()
    agent = world.agent()
    epoch = world.new_epoch()
    world.sessions["n0", epoch] = agent
    agent.epoch = epoch
    world.step(
        ev.NodeJoined(
            "n0", agent.boot_id, epoch, agent.spec, [ev.RunningItem(99), ev.RunningItem(7)]
        )
    )
    assert agent.abandoned == [99, 7]


def test_second_stream_of_the_same_agent_replaces_the_first() -> None:
    """It noticed the break before we did."""
    world = World()
    agent = world.agent()
    request = world.submit()
    first = agent.epoch
    agent.join()
    closed = [c for c in world.commands if type(c).__name__ == "CloseSession"]
    assert [(c.epoch, c.reason) for c in closed] == [(first, Reason.SESSION_REPLACED)]
    agent.finish(request)
    assert request.outcome is Outcome.SUCCEEDED


def test_hello_that_its_successor_overtook_does_not_end_the_agent() -> None:
    """The agent gave a stream up and opened another; the first one's hello comes last. The stream
    that it has is closed then, and it is told to dial again.
    """
    world = World()
    agent = world.agent()
    agent.join()
    (closed,) = (c for c in world.commands if isinstance(c, cmd.CloseSession))
    assert closed.reconnect


def test_result_that_was_not_acknowledged_is_taken_after_the_reconnect() -> None:
    world = World()
    agent = world.agent()
    request = world.submit(max_attempts=1)
    agent.lose_stream()
    dispatch_id = agent.dispatch_id(request)
    agent.join()
    agent.finish_ids([dispatch_id], payload="kept")
    assert world.result(request).payload == "kept"


def test_engine_that_is_gone_after_the_reconnect_gives_its_work_back() -> None:
    world = World()
    agent = world.agent("a", engine("e0"), engine("e1"))
    requests = world.submit(2)
    moved = next(h.attempt for h in agent.held.values() if h.attempt.engine.engine_id == "e1")
    agent.lose_stream()
    agent.spec = NodeSpec((engine("e0"),))
    agent.join()
    assert agent.abandoned == [moved.dispatch_id]
    assert moved.request.state is RequestState.QUEUED
    agent.finish(*agent.running())
    assert agent.running() == [moved.request]
    agent.finish(moved.request)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
    world.assert_idle()


def test_engine_that_is_gone_from_the_description_still_ends_its_work() -> None:
    world = World()
    agent = world.agent("a", engine("e0"), engine("e1"))
    requests = world.submit(2)
    agent.describe(engine("e0"))
    for request in requests:
        agent.finish(request)
    world.assert_idle()


# Two processes and one id.


def test_newcomer_with_the_id_of_a_live_node_is_refused() -> None:
    """Behaviour 52: the holder answers the ping; one session, no takeover."""
    world = World()
    holder = world.agent("a")
    request = world.submit()
    newcomer = _newcomer(world, "a")
    assert holder.pings == 1
    (closed,) = newcomer.closed
    assert (closed.reason, closed.reconnect) == (Reason.NODE_ID_IN_USE, False)
    assert "'a'" in closed.message
    world.advance(30)
    assert holder.running() == [request]
    assert len(world.noted("node_joined")) == 1
    assert len(world.noted("node_refused")) == 1


def _newcomer(world: World, node_id: str, boot_id: str = "another") -> Agent:
    agent = Agent(world, node_id, NodeSpec((engine(),)), boot_id)
    return agent.join()


def test_newcomer_takes_the_id_of_a_node_that_does_not_answer() -> None:
    world = World()
    holder = world.agent("a")
    request = world.submit()
    holder.frozen = True
    newcomer = _newcomer(world, "a")
    world.advance(0.9, beats=False)
    assert newcomer.closed == []
    assert newcomer.batches == []
    world.advance(0.2, beats=False)
    assert holder.closed[0].reason is Reason.NODE_LOST
    assert newcomer.running() == [request]


def test_newcomer_takes_the_id_at_once_when_the_holders_stream_breaks() -> None:
    world = World()
    holder = world.agent("a")
    request = world.submit()
    holder.frozen = True
    newcomer = _newcomer(world, "a")
    holder.lose_stream()
    assert newcomer.running() == [request]


def test_restart_replaces_its_own_dead_session_at_once() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    agent.die()
    agent.restart()
    assert agent.pings == 0
    assert agent.running() == [request]
    assert state_of(world) is NodeHealth.HEALTHY


def test_suspect_is_replaced_at_once() -> None:
    world = World()
    world.agent("a").frozen = True
    world.advance(3.5)
    newcomer = _newcomer(world, "a")
    request = world.submit()
    assert newcomer.running() == [request]


def test_holder_that_dials_again_keeps_its_id() -> None:
    """Its old stream was dead, but the process lives: a hello is a sign of life."""
    world = World()
    holder = world.agent("a")
    holder.frozen = True
    newcomer = _newcomer(world, "a")
    holder.frozen = False
    holder.join()
    assert newcomer.closed[0].reason is Reason.NODE_ID_IN_USE
    world.advance(5)
    request = world.submit()
    assert holder.running() == [request]


def test_newcomer_that_dials_again_is_still_one_newcomer() -> None:
    world = World()
    holder = world.agent("a")
    holder.frozen = True
    newcomer = _newcomer(world, "a")
    first = newcomer.epoch
    newcomer.join()
    closed = [c for c in world.commands if type(c).__name__ == "CloseSession"]
    assert [(c.epoch, c.reason) for c in closed] == [(first, Reason.SESSION_REPLACED)]
    world.advance(1.1, beats=False)
    request = world.submit()
    assert newcomer.running() == [request]


def test_newcomer_that_leaves_again_leaves_the_holder_alone() -> None:
    world = World()
    holder = world.agent("a")
    holder.frozen = True
    newcomer = _newcomer(world, "a")
    newcomer.lose_stream()
    world.advance(1.1, beats=False)
    assert holder.closed == []
    assert world.scheduler.state.nodes["a"].boot_id == "a-boot"


def test_second_newcomer_is_refused_while_the_first_has_the_claim() -> None:
    world = World()
    world.agent("a").frozen = True
    first = _newcomer(world, "a", "first")
    second = _newcomer(world, "a", "second")
    world.advance(1.2, beats=False)
    assert {first.connected, second.connected} == {True, False}
    lost = first if not first.connected else second
    assert lost.closed[0].reason is Reason.NODE_ID_IN_USE


def test_cordon_outlives_a_restart_and_a_drain_does_not() -> None:
    world = World()
    agent = world.agent()
    world.step(ev.NodeCordoned("n0", True, "maintenance"))
    agent.die()
    agent.restart()
    world.submit()
    assert agent.batches == []
    world.step(ev.NodeCordoned("n0", False))
    assert len(agent.running()) == 1
    world.step(ev.DrainRequested("n0", 10 * SECOND, False))
    agent.die()
    agent.restart()
    assert len(agent.running()) == 1
