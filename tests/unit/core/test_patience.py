"""An attempt takes too long: until it speaks, between its words, or in all."""

from __future__ import annotations

from scheduler_service.core.outcomes import AttemptState, NodeHealth, Outcome, Reason
from scheduler_service.core.settings import FailoverSettings, Patience
from scheduler_service.core.types import SECOND
from tests.builders import Agent, World, model, seconds
from tests.builders import engine as continuous


def patient(*, first: float = 0, idle: float = 0, total: float = 0) -> FailoverSettings:
    """Limits in seconds; 0: none."""
    limits = {"first_output": first, "idle": idle, "total": total}
    given = {name: seconds(value) for name, value in limits.items() if value}
    return FailoverSettings(patience=Patience(**given))


def two_nodes(settings: FailoverSettings) -> tuple[World, Agent, Agent]:
    """Two nodes of one slot each."""
    world = World(failover=settings)
    return world, world.agent("a"), world.agent("b")


def pass_time(world: World, duration_s: float) -> None:
    """In small steps, with signs of life."""
    end = world.now + seconds(duration_s)
    while world.now < end:
        world.advance(min(0.25, (end - world.now) / SECOND))
        world.step(*(a.beat() for a in world.agents.values() if a.connected))


def test_first_output_timeout_fires_by_itself_and_the_second_node_is_tried() -> None:
    """Behaviour 22: at 1.0 to 1.5 s, though the first node would speak at 6 s."""
    world, a, b = two_nodes(patient(first=1))
    request = world.submit(stream=True)
    pass_time(world, 0.99)
    assert b.running() == []
    pass_time(world, 0.5)
    first, second = request.attempts
    assert (first.state, first.reason) == (AttemptState.FAILED, Reason.ENGINE_STALLED)
    assert "not spoken within 1000 ms" in first.message
    assert a.cancelled == [first.dispatch_id], "its engine is told to stop"
    assert seconds(1) <= second.started_at - first.started_at <= seconds(1.1)
    b.speak(request, 3)
    b.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    assert world.caller(request).text == "bbb"
    world.assert_idle()


def test_three_timers_do_not_disturb_each_other() -> None:
    """Behaviour 23: 3 s, 1 s and 30 s; first token at 2 s, then gaps of 0.5 s for 8 s."""
    world, a, _ = two_nodes(patient(first=3, idle=1, total=30))
    request = world.submit(stream=True)
    pass_time(world, 2)
    for _ in range(16):
        a.speak(request)
        pass_time(world, 0.5)
    a.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    assert len(request.attempts) == 1
    world.assert_idle()


def test_idle_timeout_counts_from_the_last_word() -> None:
    """Behaviour 23: found between idle and 1.25 idle after it; the text goes on elsewhere."""
    world, a, b = two_nodes(patient(idle=2))
    request = world.submit(stream=True)
    pass_time(world, 5)
    assert len(request.attempts) == 1, "no limit on the first word"
    for _ in range(4):
        a.speak(request, 2)
        pass_time(world, 1.5)
    assert len(request.attempts) == 1
    silent_since = world.now - seconds(1.5)
    pass_time(world, 1.5)
    first, second = request.attempts
    assert "silent for 2000 ms" in first.message
    assert seconds(2) <= second.started_at - silent_since <= seconds(2.6)
    b.speak(request, 2)
    b.finish(request)
    assert world.caller(request).text == "a" * 8 + "bb"
    world.assert_idle()


def test_total_timeout_holds_for_requests_that_do_not_stream() -> None:
    """Behaviour 23: the third timer alone."""
    world, a, b = two_nodes(patient(total=4))
    request = world.submit()
    pass_time(world, 4.2)
    assert request in b.running()
    assert a.running() == [], "its engine obeyed the cancel"
    b.finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_frozen_engine_behind_a_healthy_agent_is_found_out_and_taken_out() -> None:
    """Behaviour 7: the agent beats on, its engine never answers; work goes elsewhere and the node
    is ejected. Its slots stay taken, for its engine still holds them.
    """
    world, a, b = two_nodes(patient(first=1))
    world.agent("c")
    a.obeys = False
    requests = world.submit(5, stream=True)
    for _ in range(40):
        for agent in (b, world.agents["c"]):
            if agent.running():
                agent.finish(*agent.running())
        pass_time(world, 0.25)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
    node = world.scheduler.state.nodes["a"]
    assert node.failed == 1
    assert node.health is NodeHealth.HEALTHY
    assert len(node.in_flight) == 1, "one request hangs there; no second was sent"


def test_slow_node_is_blamed_and_ejected_after_five_in_a_row() -> None:
    world = World(failover=patient(total=1))
    agents = [world.agent(n) for n in "abc"]
    for _ in range(5):
        world.submit(3, max_attempts=1)
        for agent in agents[1:]:
            agent.finish(*agent.running())
        pass_time(world, 1.2)
    assert world.scheduler.state.nodes["a"].health is NodeHealth.EJECTED


def test_last_attempt_that_is_too_slow_ends_the_request_with_its_cause() -> None:
    world = World(failover=patient(total=1))
    world.agent()
    request = world.submit(max_attempts=2)
    pass_time(world, 4)
    result = world.result(request)
    assert result.reason is Reason.ATTEMPTS_EXHAUSTED
    assert "not ended within 1000 ms" in result.message
    world.assert_idle()


def test_models_have_limits_of_their_own_and_others_cost_no_timer() -> None:
    settings = FailoverSettings(patience_by_model={"m": Patience(total=SECOND)})
    world = World(failover=settings)
    both = continuous(models=(model("m"), model("other")), slots=2)
    agent = world.agent("a", both)
    slow, free = world.submit(model="m", max_attempts=1), world.submit(model="other")
    state = world.scheduler.state
    assert list(state.watches) == [slow.rid]
    pass_time(world, 2)
    assert slow.reason is Reason.ATTEMPTS_EXHAUSTED
    assert agent.running() == [free]
    agent.finish(free)
    assert state.watches == {}
    world.assert_idle()


def test_finished_request_leaves_no_timer_behind() -> None:
    world, a, _ = two_nodes(patient(first=5, idle=5, total=50))
    timers = world.scheduler.state.timers
    before = len(timers)
    request = world.submit(stream=True)
    a.speak(request)
    a.finish(request)
    assert len(timers) == before
    assert world.scheduler.state.watches == {}
