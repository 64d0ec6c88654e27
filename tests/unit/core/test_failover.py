"""An attempt ended without an answer: again, elsewhere, or the end."""

from __future__ import annotations

import pytest

from scheduler_service.core.outcomes import (
    AttemptState,
    NodeHealth,
    Outcome,
    Reason,
    RequestState,
    ResumeMode,
)
from scheduler_service.core.settings import FailoverSettings
from scheduler_service.core.types import MILLISECOND, SECOND
from scheduler_service.policies import build
from tests.builders import Agent, World, engine, model, seconds


def three_nodes(**fields: object) -> tuple[World, list[Agent]]:
    """Three nodes of one slot each."""
    world = World(**fields)  # type: ignore[arg-type]
    return world, [world.agent(n) for n in "abc"]


def holder(agents: list[Agent]) -> Agent:
    """The one that holds something."""
    (one,) = [a for a in agents if a.running()]
    return one


def test_failing_request_has_exactly_three_attempts_on_three_nodes() -> None:
    """Behaviours 65 and 66: one owner of retries; then a terminal state with the cause."""
    world, agents = three_nodes()
    request = world.submit()
    for _ in range(3):
        holder(agents).finish(request, reason=Reason.ENGINE_ERROR, message="out of luck")
        world.advance(3)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.ATTEMPTS_EXHAUSTED)
    assert "out of luck" in result.message
    assert result.metadata["attempts"] == "3"
    assert result.metadata["lastReason"] == "ENGINE_ERROR"
    assert sum(len(a.batches) for a in agents) == 3
    assert {a.node.node_id for a in request.attempts} == {"a", "b", "c"}
    assert world.scheduler.state.totals.outcomes[Outcome.FAILED] == 1
    world.assert_idle()


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_request_states_how_many_attempts_it_allows(attempts: int) -> None:
    world, agents = three_nodes()
    request = world.submit(max_attempts=attempts)
    for _ in range(attempts):
        holder(agents).finish(request, reason=Reason.ENGINE_ERROR)
        world.advance(3)
    assert request.outcome is Outcome.FAILED
    assert len(request.attempts) == attempts


def test_engines_error_is_retried_after_a_delay_that_grows_and_is_bounded() -> None:
    delays = []
    for _ in range(20):
        world, agents = three_nodes()
        world.submit()
        request = world.submit()
        agents[0].finish(*agents[0].running())
        held = next(a for a in agents if request in a.running())
        ended = world.now
        held.finish(request, reason=Reason.ENGINE_ERROR)
        while request.state is RequestState.QUEUED:
            world.advance(0.005)
        delays.append(world.now - ended)
    assert max(delays) <= 50 * MILLISECOND + 10 * MILLISECOND
    assert len(set(delays)) == 1, "the same seed, request and attempt: the same delay"


@pytest.mark.parametrize(
    "reason", [Reason.INVALID_ARGUMENT, Reason.CONTEXT_TOO_LONG, Reason.UNSUPPORTED_FEATURE]
)
def test_callers_fault_ends_the_request_and_blames_no_node(reason: Reason) -> None:
    """Behaviour 59: twenty such requests, then normal ones succeed on the same node."""
    world = World()
    agent = world.agent()
    for _ in range(20):
        request = world.submit()
        agent.finish(request, reason=reason, message="field params.temperature")
        result = world.result(request)
        assert (result.outcome, result.reason) == (Outcome.FAILED, reason)
        assert len(request.attempts) == 1
    node = world.scheduler.state.nodes["n0"]
    assert (node.failed, node.health) == (0, NodeHealth.HEALTHY)
    good = world.submit()
    agent.finish(good)
    assert good.outcome is Outcome.SUCCEEDED


LACKS = {"reason": Reason.UNSUPPORTED_FEATURE, "metadata": {"feature": "regex"}}


def test_what_one_kind_of_engine_lacks_runs_on_another_that_has_it() -> None:
    world = World()
    a = world.agent("a", engine(models=[model(features=("grammar",))]))
    request = world.submit(max_attempts=1)
    b = world.agent("b", engine(models=[model(features=("grammar", "regex"))]))
    a.finish(request, **LACKS)
    assert b.running() == [request]
    assert request.attempts[0].state is AttemptState.REFUSED
    assert world.scheduler.state.nodes["a"].failed == 0
    b.finish(request)
    assert world.result(request).outcome is Outcome.SUCCEEDED
    world.assert_idle()


@pytest.mark.parametrize("features", [("grammar",), ("regex",)])
def test_what_no_other_engine_has_ends_where_it_was_asked(features: tuple[str, ...]) -> None:
    """Nor does one help that says it has it and had the request already."""
    world = World()
    a = world.agent("a", engine(models=[model(features=())]))
    request = world.submit()
    b = world.agent("b", engine(models=[model(features=features)]))
    a.finish(request, **LACKS)
    if "regex" in features:
        b.finish(request, **LACKS)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.UNSUPPORTED_FEATURE)
    assert len(request.attempts) == 1 + ("regex" in features)
    world.assert_idle()


def test_deadline_that_the_node_saw_first_expires_the_request() -> None:
    world = World()
    agent = world.agent()
    request = world.submit(timeout=5)
    agent.finish(request, reason=Reason.DEADLINE_EXCEEDED)
    assert request.outcome is Outcome.EXPIRED
    assert request.attempts[0].state is AttemptState.CANCELLED


def test_undelivered_work_of_a_killed_node_moves_within_a_second() -> None:
    """Behaviours 50 and 54: SIGKILL right after dispatch, no restart."""
    world, agents = three_nodes()
    requests = world.submit(3)
    agents[0].die()
    agents[1].finish(*agents[1].running())
    world.advance(1)
    assert requests[0] in agents[1].running()
    agents[1].finish(requests[0])
    world.advance(3)
    agents[2].finish(*agents[2].running())
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
    world.assert_idle()


def test_every_request_of_a_killed_node_completes_elsewhere_once() -> None:
    world = World()
    a = world.agent("a", engine(slots=8))
    requests = world.submit(8, stream=True)
    for request in requests[:4]:
        a.speak(request, 3)
    b = world.agent("b", engine(slots=8))
    a.die()
    assert b.running() == requests[4:], "what had delivered nothing moves at once"
    world.advance(2.5)
    assert sorted(r.rid for r in b.running()) == [r.rid for r in requests]
    for request in requests:
        b.speak(request, 2)
        b.finish(request)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
    texts = {world.caller(r).text for r in requests}
    assert texts == {"aaabb", "bb"}
    world.assert_idle()


def test_failed_over_request_goes_first_among_its_equals() -> None:
    world = World()
    a, b = world.agent("a"), world.agent("b")
    first, second = world.submit(2)
    waiting = world.submit(3)
    a.die()
    b.finish(second)
    assert b.running() == [first]
    b.finish(first)
    assert b.running() == waiting[:1]


@pytest.mark.parametrize(
    ("fields", "plain"),
    [
        ({"continuable": False}, True),
        ({"resume_mode": ResumeMode.FAIL}, True),
        ({}, False),
    ],
    ids=["guided_or_many_choices", "fail_asked_for", "model_cannot"],
)
def test_output_that_cannot_go_on_fails_with_what_there_is(
    fields: dict[str, object], plain: bool
) -> None:
    """Behaviours 56 and 57: never a silent replay, never a splice into guided output."""
    world = World()
    a = world.agent("a", engine(models=[model(resumable=plain)]))
    request = world.submit(stream=True, **fields)
    a.speak(request, 5)
    b = world.agent("b", engine(models=[model(resumable=plain)]))
    a.die()
    world.advance(2.1)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.STREAM_INTERRUPTED)
    assert result.metadata["emittedBytes"] == "5"
    assert world.caller(request).text == "aaaaa"
    assert b.batches == []


def test_guided_output_that_has_not_begun_is_simply_run_again() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True, continuable=False)
    b = world.agent("b")
    a.die()
    assert b.running() == [request]


def test_guided_output_restarts_where_opted_in() -> None:
    """Behaviour 57: FAIL, or RESTART where opted in; never CONTINUE."""
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True, continuable=False, resume_mode=ResumeMode.RESTART)
    a.speak(request, 5)
    b = world.agent("b")
    a.die()
    world.advance(2.1)
    assert b.held[b.dispatch_id(request)].start == 0
    b.speak(request, 3)
    b.finish(request)
    assert world.caller(request).text == "bbb"
    assert len(world.caller(request).outputs) == 2


def test_second_choice_of_output_cannot_be_continued() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True)
    attempt = request.attempts[0]
    world.scheduler.relay.accept(attempt.dispatch_id, 1, 0, 0, 4, 1)
    world.agent("b")
    a.die()
    world.advance(2.1)
    assert world.result(request).reason is Reason.STREAM_INTERRUPTED


def test_continuation_goes_only_where_the_model_can_continue() -> None:
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True)
    a.speak(request, 4)
    plain = world.agent("b", engine(models=[model(resumable=False)]))
    able = world.agent("c")
    a.die()
    world.advance(2.1)
    assert plain.batches == []
    assert able.running() == [request]


def test_continuation_that_nobody_can_take_any_more_does_not_wait_for_ever() -> None:
    """All nodes were gone, so it was hoped for; the node that came cannot continue."""
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True)
    a.speak(request, 4)
    a.die()
    world.advance(2.1)
    world.agent("b", engine(models=[model(resumable=False)]))
    world.advance(35)
    result = world.result(request)
    assert result.outcome is Outcome.FAILED
    assert result.reason is Reason.NO_CAPACITY


def test_only_node_that_can_continue_is_tried_again() -> None:
    """It failed, and the other that is alive cannot continue: better there than never."""
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True)
    a.speak(request, 4)
    world.agent("b", engine(models=[model(resumable=False)]))
    a.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(1)
    assert a.running() == [request]
    assert a.speak(request, 2) == 0
    a.finish(request)
    assert world.caller(request).text == "aaaabb"


def test_two_losses_in_mid_stream_continue_twice() -> None:
    """Behaviour 135: each attempt has what it delivered, though only the last node could say."""
    world = World()
    a = world.agent("a")
    request = world.submit(stream=True)
    a.speak(request, 2)
    b = world.agent("b")
    a.die()
    world.advance(2.1)
    b.speak(request, 3)
    c = world.agent("c")
    b.die()
    world.advance(2.1)
    c.speak(request, 1)
    c.finish(request, output_tokens=1)
    assert world.caller(request).text == "aabbbc"
    assert [a.output_tokens for a in request.attempts] == [2, 3, 1]
    assert world.scheduler.state.totals.wasted_output_tokens == 0


def test_only_attempts_node_is_lost_says_so() -> None:
    world, agents = three_nodes()
    request = world.submit(max_attempts=1)
    holder(agents).die()
    world.advance(2.1)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.NODE_LOST)


def test_last_attempt_of_a_broken_session_waits_for_the_window() -> None:
    """There is no other to dispatch; the node may still come back with the answer."""
    world, agents = three_nodes()
    request = world.submit(max_attempts=1)
    a = holder(agents)
    a.lose_stream()
    world.advance(1)
    assert request.outcome is None
    a.join()
    a.finish(request)
    assert request.outcome is Outcome.SUCCEEDED


def test_long_work_is_not_given_to_a_second_node_while_its_node_lives() -> None:
    """Behaviour 46: liveness renews it, no fixed lease does."""
    world, agents = three_nodes()
    request = world.submit()
    world.advance(600)
    assert len(request.attempts) == 1
    holder(agents).finish(request)
    assert request.outcome is Outcome.SUCCEEDED


def test_waste_of_lost_and_late_attempts_is_counted() -> None:
    world, agents = three_nodes()
    request = world.submit()
    holder(agents).finish(request, reason=Reason.ENGINE_ERROR, output_tokens=9)
    world.advance(1)
    agent = holder(agents)
    ids = list(agent.held)
    agent.obeys = False
    world.cancel(request)
    agent.finish_ids(ids, output_tokens=4)
    assert world.scheduler.state.totals.wasted_output_tokens == 13
    assert world.scheduler.state.totals.late_results == 1


def test_many_nodes_die_under_load_and_service_resumes() -> None:
    """Behaviour 58: requests queue while nobody is there; the first answer comes at once after."""
    world, agents = three_nodes()
    requests = []
    for _ in range(10):
        requests += world.submit(5)
        for agent in agents:
            if agent.connected:
                agent.die()
        world.advance(1)
    fresh = world.agent("fresh", engine(slots=64))
    waiting = [r for r in requests if r.outcome is None]
    assert waiting
    assert fresh.running(), "it works as soon as it is there"
    while fresh.running():
        fresh.finish(*fresh.running())
        world.advance(0.1)
    assert all(r.outcome is Outcome.SUCCEEDED for r in waiting)
    world.assert_idle()


def test_time_held_back_for_a_retry_counts_as_waiting() -> None:
    delays = FailoverSettings(backoff_base=60 * SECOND, backoff_max=60 * SECOND)
    world = World(policies=build(options={"failover": {"settings": delays}}))
    agent = world.agent()
    request = world.submit(max_wait=SECOND)
    agent.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(1.01)
    assert world.result(request).reason is Reason.MAX_WAIT_EXCEEDED
    assert len(agent.batches) == 1
    world.assert_idle()


def test_cancel_while_held_back_for_a_retry_ends_it() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    agent.finish(request, reason=Reason.ENGINE_ERROR)
    assert request.state is RequestState.QUEUED
    assert not request.in_queue
    world.cancel(request)
    assert request.outcome is Outcome.CANCELLED
    world.advance(5)
    assert len(agent.batches) == 1
    world.assert_idle()


def test_deadline_while_held_back_for_a_retry_ends_it() -> None:
    world = World()
    agent = world.agent()
    request = world.submit(timeout=0.001)
    agent.finish(request, reason=Reason.ENGINE_ERROR)
    world.advance(seconds(0.1) / SECOND)
    assert request.outcome is Outcome.EXPIRED
    world.assert_idle()
