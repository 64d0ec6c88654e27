"""A request's way in, through the queue and out: one terminal outcome, whatever happens."""

from __future__ import annotations

import random

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core import requests
from scheduler_service.core.outcomes import AttemptState, Outcome, Reason, RequestState
from scheduler_service.core.types import NEVER, SECOND, EngineSpec
from tests.builders import World, engine, model, queue, seconds, static


def test_request_runs_and_its_result_goes_to_its_caller_once() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    assert request.state is RequestState.DISPATCHED
    agent.run(request)
    assert request.state is RequestState.RUNNING
    agent.finish(request, payload="the answer", output_tokens=7)
    result = world.result(request)
    assert (result.outcome, result.payload) == (Outcome.SUCCEEDED, "the answer")
    assert result.attempt is request.attempts[0]
    assert request.attempts[0].state is AttemptState.SUCCEEDED
    assert world.scheduler.state.totals.output_tokens == 7
    assert agent.acked == 1
    world.assert_idle()


def test_streaming_caller_learns_its_place_and_that_it_runs() -> None:
    world = World()
    agent = world.agent()
    first, second = world.submit(2, stream=True)
    (accepted,) = world.caller(second).accepted
    assert accepted.ahead == 1
    agent.run(first)
    (started,) = [c for c in world.commands if type(c).__name__ == "StartOutput"]
    assert started.attempt.node.node_id == "n0"


def test_estimated_wait_follows_what_was_measured() -> None:
    world = World()
    agent = world.agent()
    first = world.submit()
    world.advance(2)
    agent.finish(first)
    world.submit(3)
    request = world.submit(stream=True)
    (accepted,) = world.caller(request).accepted
    assert accepted.ahead == 2
    assert accepted.estimated_wait == 3 * 2 * SECOND, "two before it, and the one that runs"


def test_queued_request_that_is_cancelled_is_never_dispatched() -> None:
    world = World()
    agent = world.agent()
    running, waiting = world.submit(2)
    world.cancel(waiting)
    assert world.result(waiting).outcome is Outcome.CANCELLED
    agent.finish(running)
    assert len(agent.batches) == 1
    world.assert_idle()


def test_request_submitted_and_cancelled_in_one_step_is_never_dispatched() -> None:
    world = World()
    agent = world.agent()
    request = world.request()
    world.step(ev.RequestsCancelled([request.rid]), ev.RequestsSubmitted([request]))
    assert world.outcome(request) is Outcome.CANCELLED
    assert agent.batches == []


def test_running_request_that_is_cancelled_frees_its_slot_when_the_agent_says_so() -> None:
    world = World()
    agent = world.agent()
    agent.obeys = False
    request = world.submit()
    following = world.submit()
    world.cancel(request, reason=Reason.CANCELLED_BY_ADMIN)
    assert world.result(request).reason is Reason.CANCELLED_BY_ADMIN
    assert agent.cancelled == [request.attempts[0].dispatch_id]
    assert request.attempts[0].state is AttemptState.CANCELLED
    assert following.state is RequestState.QUEUED, "the slot is still held"
    agent.finish_ids(agent.cancelled)
    assert following.state is RequestState.DISPATCHED
    agent.finish(following)
    world.assert_idle()


def test_cancel_of_an_unknown_or_finished_request_is_ignored() -> None:
    world = World()
    agent = world.agent()
    request = world.submit()
    agent.finish(request)
    world.step(ev.RequestsCancelled([request.rid, 99_999]))
    assert world.outcome(request) is Outcome.SUCCEEDED


def test_cancels_around_start_leave_no_slot_taken() -> None:
    """Behaviours 28 and 29: requests cancelled at random moments, by every way out."""
    world = World()
    agent = world.agent("a", engine(slots=10))
    draw = random.Random(5)
    for _ in range(300):
        requests = world.submit(draw.randrange(1, 12), timeout=draw.choice([0.01, 5.0]))
        world.advance(draw.choice([0.0, 0.002, 0.02]))
        if draw.random() < 0.3 and agent.running():
            one = draw.choice(agent.running())
            agent.finish(one, reason=draw.choice([Reason.ENGINE_ERROR, Reason.INVALID_ARGUMENT]))
        world.cancel(*requests)
    world.advance(10)
    for request in list(world.scheduler.state.requests.values()):
        world.cancel(request)
    world.assert_idle()
    requests = world.submit(10)
    assert [r.state for r in requests] == [RequestState.DISPATCHED] * 10
    assert agent.ledgers["e0"].peak <= 10


def test_deadline_fires_by_timer_while_the_slot_is_busy() -> None:
    """Behaviour 18: expiry does not wait for a slot, and the engine never sees the request."""
    world = World()
    agent = world.agent()
    busy = world.submit()
    request = world.submit(timeout=1)
    world.advance(0.9)
    assert world.outcome(request) is None
    world.advance(0.11)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED)
    agent.finish(busy)
    assert agent.running() == []
    assert len(agent.batches) == 1


def test_deadline_of_a_running_request_cancels_it_on_its_node() -> None:
    world = World()
    agent = world.agent()
    request = world.submit(timeout=1)
    world.advance(1.01)
    assert world.outcome(request) is Outcome.EXPIRED
    assert agent.cancelled == [request.attempts[0].dispatch_id]
    world.assert_idle()


def test_deadline_that_passed_within_the_timers_bucket_is_not_dispatched() -> None:
    """Timers are up to 5 ms late; a slot that frees meanwhile must not go to a dead request."""
    world = World()
    agent = world.agent()
    busy = world.submit()
    request = world.submit(timeout=0.011)
    live = world.submit()
    world.now += seconds(0.0112)
    agent.finish(busy)
    assert agent.running() == [live]
    assert world.outcome(request) is Outcome.EXPIRED


def test_deadline_in_the_past_is_expired_and_not_dispatched() -> None:
    """Behaviour 20: a tiny deadline expires cleanly."""
    world = World()
    agent = world.agent()
    request = world.submit(timeout=-1)
    assert world.outcome(request) is Outcome.EXPIRED
    assert agent.batches == []


def test_expired_requests_leave_nothing_behind_and_no_node_gets_them() -> None:
    """Behaviour 27: thousands of requests without a node, then one joins."""
    world = World(known_models=frozenset({"m"}), check_every=256)
    requests = world.submit(5_000, timeout=0.2)
    world.advance(1)
    assert all(r.outcome is Outcome.EXPIRED for r in requests)
    assert len(world.scheduler.state.timers) == 0
    agent = world.agent()
    assert agent.batches == []
    world.assert_idle()


def test_waiting_for_a_node_costs_the_same_however_many_wait() -> None:
    """Each newcomer in a pool without a node once meant a look at all that wait."""
    world = World(known_models=frozenset({"m"}), check_every=1_000_000)
    pool = world.scheduler.state.pools["m"]
    world.submit(100)
    looks = 0

    class Counted(dict):  # type: ignore[type-arg]
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += 1
            return super().values()

    pool.queue.bands = Counted(pool.queue.bands)  # type: ignore[assignment]
    for _ in range(50):
        world.submit()
    assert looks == 0


def test_max_wait_counts_over_all_stays_in_the_queue() -> None:
    world = World()
    agent = world.agent()
    busy = world.submit()
    request = world.submit(max_wait=seconds(3))
    world.advance(2)
    agent.finish(busy)
    assert request.state is RequestState.DISPATCHED
    agent.finish(request, reason=Reason.ENGINE_BUSY, refused=True)
    world.step(ev.NodeCordoned("n0", True))
    assert request.state is RequestState.QUEUED
    world.advance(0.9)
    assert world.outcome(request) is None
    world.advance(0.2)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.EXPIRED, Reason.MAX_WAIT_EXCEEDED)
    assert result.metadata["waitedMs"] in result.message
    assert 3 * SECOND <= request.queue_time < 3.01 * SECOND


def test_max_wait_of_zero_runs_at_once_or_not_at_all() -> None:
    world = World()
    agent = world.agent()
    first, second = world.submit(2, max_wait=0)
    assert agent.running() == [first]
    world.advance(0.01)
    assert world.result(second).reason is Reason.MAX_WAIT_EXCEEDED


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("unfit_since", [0, NEVER])
@pytest.mark.parametrize("max_wait", [seconds(9), NEVER])
@pytest.mark.parametrize("degrade", [("small",), ()])
def test_who_enters_the_queue_is_looked_at_again_whenever_the_wait_may_have_a_consequence(
    live: bool, unfit_since: int, max_wait: int, degrade: tuple[str, ...]
) -> None:
    """The look before the call of `arm_wait` never hides a reason for it."""
    world = World()
    world.agent()
    state = world.scheduler.state
    world.submit()
    waiting = world.submit(max_wait=max_wait, degrade=degrade, degrade_after=seconds(5))
    key = waiting.rid * 4 + requests.WAIT
    requests.leave_queue(state, waiting)
    waiting.unfit_since = unfit_since
    if not live:
        state.pools["m"].engines.clear()
    requests.enter_queue(state, waiting)
    found = key in state.timers
    requests.arm_wait(state, waiting, state.pools["m"])
    assert found == (key in state.timers)


def test_time_while_running_is_no_waiting() -> None:
    world = World()
    agent = world.agent()
    request = world.submit(max_wait=seconds(1))
    world.advance(30)
    agent.finish(request)
    assert world.outcome(request) is Outcome.SUCCEEDED


def test_unknown_model_is_refused_with_the_known_ones() -> None:
    world = World(known_models=frozenset({"large", "small"}))
    request = world.submit(model="lagre")
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.REJECTED, Reason.MODEL_NOT_FOUND)
    assert "large, small" in result.message
    assert result.retry_after is None


def test_refused_request_takes_no_slot() -> None:
    """Behaviour 30: refused ones first, then a good one."""
    world = World()
    agent = world.agent()
    world.submit(model="nobody has it")
    good = world.submit()
    assert agent.running() == [good]


def test_model_without_a_live_node_waits_for_the_grace_then_fails() -> None:
    world = World(known_models=frozenset({"m"}), queue=queue(no_node_grace=seconds(30)))
    request = world.submit()
    assert len(world.noted("no_available_node")) == 1
    world.submit()
    assert len(world.noted("no_available_node")) == 1, "one lack is one event"
    world.advance(29.9)
    assert world.outcome(request) is None
    world.advance(0.2)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.NO_CAPACITY)
    assert result.retry_after == SECOND


def test_node_that_joins_within_the_grace_serves_those_who_wait() -> None:
    """Behaviour 58: all nodes were gone; the scheduler recovers by itself."""
    world = World()
    agent = world.agent()
    world.advance(1)
    agent.die()
    world.advance(10)
    requests = world.submit(3)
    world.advance(20)
    agent.restart()
    for request in requests:
        assert agent.running() == [request]
        agent.finish(request)
    world.assert_idle()


def test_model_whose_only_engine_stays_down_fails_after_the_grace() -> None:
    world = World(queue=queue(no_node_grace=seconds(5)))
    agent = world.agent()
    agent.report(unhealthy={"e0": "down"}, down=["e0"])
    request = world.submit()
    world.advance(4)
    assert world.outcome(request) is None
    world.advance(2)
    assert world.result(request).reason is Reason.NO_CAPACITY
    saved = world.submit()
    world.advance(2)
    agent.report()
    assert agent.running() == [saved]


def test_request_that_no_live_node_can_ever_take_does_not_wait_for_ever() -> None:
    """Its task type is served nowhere: the same grace as for a model without nodes."""
    world = World()
    world.agent("a", engine(models=[model(task_types=("chat",))]))
    request = world.submit(task_type="embedding")
    world.advance(29)
    assert world.outcome(request) is None
    world.advance(2)
    assert world.result(request).reason is Reason.NO_CAPACITY


def test_node_that_can_take_it_ends_that_wait() -> None:
    world = World()
    world.agent("a", engine(models=[model(task_types=("chat",))]))
    request = world.submit(task_type="embedding")
    world.advance(20)
    agent = world.agent("b")
    assert agent.running() == [request]
    agent.finish(request, reason=Reason.ENGINE_BUSY, refused=True)
    world.advance(20)
    assert world.outcome(request) is None


def test_prompt_longer_than_any_context_is_refused_and_others_go_on() -> None:
    """Behaviour 6: refused at once with both numbers; the normal ones succeed."""
    world = World()
    agent = world.agent("a", engine(models=[model(context_length=4096)]))
    request = world.submit(prompt_tokens=5000)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.REJECTED, Reason.CONTEXT_TOO_LONG)
    assert result.metadata == {"promptTokens": "5000", "contextLength": "4096"}
    for other in world.submit(5, prompt_tokens=4096):
        agent.finish(other)
        assert world.outcome(other) is Outcome.SUCCEEDED


def test_prompt_goes_only_where_the_context_holds_it() -> None:
    world = World()
    small = world.agent("a", engine(slots=2, models=[model(context_length=1000)]))
    large = world.agent("b", engine(slots=2, models=[model(context_length=9000)]))
    request = world.submit(prompt_tokens=5000)
    assert large.running() == [request]
    assert small.batches == []


def test_scheduler_that_stops_takes_no_new_requests_and_finishes_the_others() -> None:
    world = World()
    agent = world.agent()
    running, waiting = world.submit(2)
    world.step(ev.SchedulerDraining("an upgrade"))
    late = world.submit()
    result = world.result(late)
    assert (result.outcome, result.reason) == (Outcome.REJECTED, Reason.SCHEDULER_DRAINING)
    assert result.retry_after
    agent.finish(running)
    agent.finish(waiting)
    world.assert_idle()


def test_what_waits_for_one_model_does_not_hold_up_another() -> None:
    """Behaviour 5: the head's model is busy; ten requests of an idle model run at once."""
    world = World()
    a = world.agent("a", engine(models=["x"]))
    b = world.agent("b", engine(models=["y"], slots=2))
    first = world.submit(model="x", priority=10)
    stuck = world.submit(model="x", priority=10)
    others = world.submit(10, model="y", priority=1)
    while b.running():
        b.finish(*b.running())
    assert all(r.outcome is Outcome.SUCCEEDED for r in others)
    assert stuck.state is RequestState.QUEUED
    a.finish(first)
    assert a.running() == [stuck]


def test_what_fits_nowhere_now_is_skipped_and_keeps_its_turn() -> None:
    """Behaviour 5, within one pool: a head that only one busy node may take."""
    world = World()
    chat = world.agent("a", engine(models=[model(task_types=("chat",))]))
    code = world.agent("b", engine(models=[model(task_types=("code",))]))
    first = world.submit(task_type="chat", priority=9)
    head = world.submit(task_type="chat", priority=9)
    other = world.submit(task_type="code", priority=1)
    assert code.running() == [other]
    chat.finish(first)
    assert chat.running() == [head]


def test_engine_never_gets_more_than_its_room_however_many_come_in_one_step() -> None:
    """Behaviour 33: hundreds at once, random cancels, at most ten at a time."""
    world = World()
    agent = world.agent("a", engine(slots=10))
    requests = world.submit(300)
    draw = random.Random(3)
    while world.scheduler.state.requests:
        world.cancel(draw.choice(requests))
        running = agent.running()
        if running:
            agent.finish(*draw.sample(running, draw.randint(1, len(running))))
    assert agent.ledgers["e0"].peak == 10
    world.assert_idle()


def test_finished_requests_are_remembered_up_to_a_bound() -> None:
    world = World(finished_memory=3)
    agent = world.agent()
    requests = world.submit(5)
    for request in requests:
        agent.finish(request)
    assert list(world.scheduler.state.finished) == requests[2:]


def test_totals_count_every_request_once() -> None:
    world = World()
    agent = world.agent("a", static(slots=2))
    done, gone = world.submit(2)
    world.submit(model="unknown")
    agent.finish(done)
    world.cancel(gone)
    totals = world.scheduler.state.totals
    assert totals.received == 3
    counts = {o.value: n for o, n in totals.outcomes.items() if n}
    assert counts == {"succeeded": 1, "cancelled": 1, "rejected": 1}


def test_engine_without_any_credit_gets_nothing() -> None:
    world = World()
    spec: EngineSpec = engine(slots=4)
    agent = world.agent("a", spec)
    world.submit(4)
    agent.frozen = True
    waiting = world.submit()
    assert waiting.state is RequestState.QUEUED
    assert agent.ledgers["e0"].peak == 4
