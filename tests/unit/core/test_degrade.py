"""A smaller model instead: when, which, and once."""

from __future__ import annotations

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, Reason, RequestState
from scheduler_service.policies import build
from tests.builders import Agent, World, engine, seconds


def two_models(**fields: object) -> tuple[World, Agent, Agent]:
    """A busy node for `large` and an idle one for `small`."""
    world = World(**fields)  # type: ignore[arg-type]
    large = world.agent("large", engine(models=["large"]))
    small = world.agent("small", engine(models=["small"]))
    world.submit(model="large")
    return world, large, small


def test_max_wait_degrades_where_that_is_permitted() -> None:
    world, _, small = two_models()
    request = world.submit(model="large", degrade=("small",), max_wait=seconds(2))
    world.advance(1.9)
    assert small.running() == []
    world.advance(0.2)
    assert small.running() == [request]
    assert (request.served_model, request.degraded) == ("small", True)
    assert request.degrade_reason == "max_wait"
    small.finish(request)
    assert world.outcome(request) is Outcome.SUCCEEDED
    assert world.scheduler.state.totals.degraded == 1


def test_max_wait_ends_where_it_is_not_permitted() -> None:
    world, _, small = two_models()
    request = world.submit(model="large", max_wait=seconds(2))
    world.advance(2.1)
    assert world.result(request).reason is Reason.MAX_WAIT_EXCEEDED
    assert small.batches == []


def test_policy_never_makes_no_substitution() -> None:
    world, _, small = two_models(policies=build({"degrade": "never"}))
    request = world.submit(model="large", degrade=("small",), max_wait=seconds(2))
    world.advance(2.1)
    assert world.result(request).reason is Reason.MAX_WAIT_EXCEEDED
    assert small.batches == []


def test_substitute_gets_max_wait_again_and_no_more() -> None:
    """It waited its time for the model asked for; the other's queue may take as long, once."""
    world, _, small = two_models()
    busy = world.submit(model="small")
    request = world.submit(model="large", degrade=("small",), max_wait=seconds(2))
    world.advance(2.1)
    assert request.served_model == "small"
    assert world.outcome(request) is None
    world.advance(1.8)
    assert world.outcome(request) is None
    world.advance(0.2)
    assert world.result(request).reason is Reason.MAX_WAIT_EXCEEDED
    assert small.running() == [busy]


def test_substitution_before_max_wait_leaves_max_wait_as_it_was() -> None:
    world, _, small = two_models()
    world.submit(model="small")
    request = world.submit(
        model="large", degrade=("small",), degrade_after=seconds(1), max_wait=seconds(3)
    )
    world.advance(1.1)
    assert (request.served_model, request.degrade_reason) == ("small", "overload")
    world.advance(1.8)
    assert world.outcome(request) is None
    world.advance(0.2)
    assert world.result(request).reason is Reason.MAX_WAIT_EXCEEDED
    assert len(small.running()) == 1


def test_degrade_after_comes_before_max_wait() -> None:
    world, _, small = two_models()
    request = world.submit(
        model="large", degrade=("small",), degrade_after=seconds(1), max_wait=seconds(3)
    )
    world.advance(1.1)
    assert small.running() == [request]
    assert request.degrade_reason == "overload"


def test_at_most_one_substitution_and_no_loop() -> None:
    """Behaviour 68: a chain back to where it came from, and to itself, ends."""
    world, large, small = two_models()
    request = world.submit(model="large", degrade=("large", "small"), max_wait=seconds(1))
    other = world.submit(model="small", degrade=("large",), max_wait=seconds(1))
    world.advance(1.1)
    assert small.running() == [other]
    small.finish(other)
    assert small.running() == [request]
    for _ in range(3):
        if small.running():
            small.finish(request, reason=Reason.ENGINE_ERROR)
            world.advance(3)
    assert world.result(request).reason is Reason.ATTEMPTS_EXHAUSTED
    assert len(request.attempts) == 3
    assert len(world.noted("degraded")) == 1
    assert request not in large.running()


def test_model_without_a_live_node_is_substituted_at_once() -> None:
    world, large, small = two_models()
    large.die()
    world.advance(3)
    request = world.submit(model="large", degrade=("small",))
    assert small.running() == [request]
    assert request.degrade_reason == "no_capacity"


def test_those_who_wait_are_substituted_when_the_last_node_is_lost() -> None:
    world, large, small = two_models()
    waiting = world.submit(2, model="large", degrade=("small",))
    plain = world.submit(model="large")
    large.die()
    world.advance(2.1)
    assert small.running() == [waiting[0]]
    assert waiting[1].served_model == "small"
    assert plain.served_model == "large"


def test_those_who_wait_without_a_node_are_substituted_when_the_substitute_comes() -> None:
    world = World(known_models=frozenset({"large", "small"}))
    request = world.submit(model="large", degrade=("small",))
    assert request.served_model == "large"
    world.advance(5)
    small = world.agent("small", engine(models=["small"]))
    assert small.running() == [request]


def test_model_whose_engines_are_all_down_is_substituted_at_once() -> None:
    """Its agents live, and that helps nobody. One that starts again is waited for."""
    world, large, _ = two_models()
    waiting = world.submit(model="large", degrade=("small",))
    large.report(unhealthy={"e0": "starting"})
    assert not waiting.degraded
    large.report(unhealthy={"e0": "down"}, down=["e0"])
    assert (waiting.served_model, waiting.degrade_reason) == ("small", "no_capacity")
    later = world.submit(model="large", degrade=("small",))
    assert later.served_model == "small"
    large.report(unhealthy={"e0": "starting"})
    assert world.submit(model="large", degrade=("small",)).served_model == "large"


def test_attempt_that_fails_where_no_other_node_lives_is_substituted() -> None:
    """It comes back to a model whose last node went meanwhile."""
    world = World()
    large = world.agent("large", engine(models=["large"]))
    small = world.agent("small", engine(models=["small"]))
    request = world.submit(model="large", degrade=("small",))
    large.run(request)
    large.frozen = True
    world.advance(5.1)
    assert small.running() == [request]
    assert request.degrade_reason == "no_capacity"


def test_deadline_out_of_reach_is_substituted_at_admission() -> None:
    world = World()
    large = world.agent("large", engine(models=["large"]))
    small = world.agent("small", engine(models=["small"]))
    first = world.submit(model="large")
    world.advance(10)
    large.finish(first)
    request = world.submit(model="large", degrade=("small",), timeout=2)
    assert small.running() == [request]
    assert request.degrade_reason == "deadline"
    world.submit(model="large")
    refused = world.submit(model="large", timeout=2)
    assert world.result(refused).reason is Reason.DEADLINE_UNREACHABLE


def test_first_model_with_room_is_taken_else_the_first_that_lives() -> None:
    world, _, small = two_models()
    world.submit(model="small")
    tiny = world.agent("tiny", engine(models=["tiny"]))
    request = world.submit(
        model="large", degrade=("gone", "small", "tiny"), degrade_after=seconds(1)
    )
    world.advance(1.1)
    assert tiny.running() == [request]
    other = world.submit(model="large", degrade=("gone", "small", "tiny"), degrade_after=seconds(1))
    world.advance(1.1)
    assert other.served_model == "small"
    small.finish(*small.running())
    assert small.running() == [other]


def test_degraded_request_keeps_its_place() -> None:
    world, _, small = two_models()
    busy = world.submit(model="small")
    old = world.submit(model="large", degrade=("small",), max_wait=seconds(1))
    world.advance(0.5)
    young = world.submit(model="small")
    world.advance(0.6)
    small.finish(busy)
    assert small.running() == [old]
    assert young.state is RequestState.QUEUED


def test_output_that_has_begun_is_never_handed_to_another_model() -> None:
    world, large, small = two_models()
    large.finish(*large.running())
    request = world.submit(
        model="large", stream=True, degrade=("small",), degrade_after=0, max_wait=seconds(60)
    )
    large.speak(request, 3)
    large.die()
    world.advance(20)
    assert small.batches == []
    assert request.served_model == "large"
    assert request.state is RequestState.QUEUED


def test_answer_of_the_model_asked_for_is_not_called_degraded() -> None:
    """Its stream broke, it was substituted, and then the first attempt answered after all."""
    world = World()
    large = world.agent("large", engine(models=["large"]))
    small = world.agent("small", engine(models=["small"]))
    request = world.submit(model="large", degrade=("small",), degrade_after=0, stream=True)
    large.lose_stream()
    world.advance(1.1)
    assert small.running() == [request]
    large.join()
    assert large.speak(request, 2) == 0
    assert (request.served_model, request.degraded) == ("large", False)
    large.lose_stream()
    world.advance(2.1)
    assert small.running() == [], "the rest is for a node of the model that wrote the beginning"
    back = world.agent("other", engine(models=["large"]))
    assert back.running() == [request]
    back.finish(request)
    assert world.result(request).attempt.model == "large"  # type: ignore[union-attr]


def test_cancel_after_a_substitution_leaves_nothing_behind() -> None:
    world, large, small = two_models()
    world.submit(model="small")
    request = world.submit(model="large", degrade=("small",), max_wait=seconds(1))
    world.advance(1.1)
    world.cancel(request)
    large.finish(*large.running())
    small.finish(*small.running())
    world.step(ev.NodeCordoned("small", True))
    world.assert_idle()


def test_second_model_of_the_list_is_no_second_substitution() -> None:
    """Behaviour 68: one substitution per request, though another model would have room."""
    world, _, _ = two_models()
    world.submit(model="small")
    request = world.submit(model="large", degrade=("small", "tiny"), max_wait=seconds(1))
    world.advance(1.1)
    assert request.served_model == "small"
    tiny = world.agent("tiny", engine(models=["tiny"]))
    world.advance(1.1)
    assert world.result(request).reason is Reason.MAX_WAIT_EXCEEDED
    assert tiny.batches == []
