"""Who is refused at once: bounds of the queue, and deadlines out of reach."""

from __future__ import annotations

import re

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, Reason, RequestClass, RequestState
from scheduler_service.core.types import MILLISECOND, SECOND
from scheduler_service.policies import build
from tests.builders import World, engine, queue, seconds


@pytest.mark.parametrize("steps", [1, 50], ids=["one_step", "fifty_steps"])
@pytest.mark.parametrize("run", range(4))
def test_exactly_limit_and_slots_are_accepted(steps: int, run: int) -> None:
    """Behaviour 19: limit 5, one slot, 50 at once: 6 accepted, the rest refused with a hint."""
    world = World(queue=queue(max_requests=5))
    world.agent("a", engine(slots=1 + run))
    requests = [world.request() for _ in range(50)]
    for at in range(0, 50, 50 // steps):
        world.step(ev.RequestsSubmitted(requests[at : at + 50 // steps]))
    accepted = [r for r in requests if r.outcome is None]
    assert len(accepted) == 5 + 1 + run
    assert accepted == requests[: len(accepted)], "the first come"
    for request in requests[len(accepted) :]:
        result = world.result(request)
        assert (result.outcome, result.reason) == (Outcome.REJECTED, Reason.QUEUE_FULL)
        assert result.retry_after is not None
        assert 100 * MILLISECOND <= result.retry_after <= 60 * SECOND
        assert result.metadata["queueDepth"]


def test_place_that_frees_is_given_again() -> None:
    world = World(queue=queue(max_requests=2))
    world.agent()
    _, waiting, _ = world.submit(3)
    assert world.submit().outcome is Outcome.REJECTED
    world.cancel(waiting)
    assert world.submit().outcome is None


def test_queue_is_bounded_in_bytes_over_all_models() -> None:
    """Behaviour 99: large bodies are refused by their size, before the count is reached."""
    world = World(queue=queue(max_bytes=1_000_000))
    world.agent("a", engine(models=["x", "y"]))
    requests = [world.request(model="xy"[i % 2], size_bytes=50_000) for i in range(100)]
    world.step(ev.RequestsSubmitted(requests))
    waiting = [r for r in requests if r.state is RequestState.QUEUED]
    assert sum(r.size_bytes for r in waiting) <= 1_000_000
    assert len(waiting) in (19, 20)
    refused = [r for r in requests if r.outcome is Outcome.REJECTED]
    assert all(r.reason is Reason.QUEUE_FULL for r in refused)
    assert world.scheduler.state.waiting_bytes == 50_000 * len(waiting)


def test_waiting_bytes_are_given_back_on_every_way_out() -> None:
    world = World()
    agent = world.agent()
    requests = world.submit(6, size_bytes=100, max_wait=seconds(5))
    world.cancel(requests[1])
    assert world.scheduler.state.waiting_bytes == 400
    agent.finish(requests[0])
    assert world.scheduler.state.waiting_bytes == 300
    world.advance(6)
    assert world.scheduler.state.waiting_bytes == 0


def test_job_items_do_not_count_against_the_interactive_limit() -> None:
    world = World(queue=queue(max_requests=2))
    world.agent()
    world.submit(20, request_class=RequestClass.JOB)
    requests = world.submit(2)
    assert [r.outcome for r in requests] == [None, None]


def measured(seconds_each: float) -> World:
    """One slot, whose requests are known to take so long; it is busy."""
    world = World()
    agent = world.agent()
    request = world.submit()
    world.advance(seconds_each)
    agent.finish(request)
    world.submit()
    return world


def test_deadline_out_of_reach_is_refused_at_once() -> None:
    world = measured(2)
    world.submit(5)
    request = world.submit(timeout=3)
    result = world.result(request)
    assert (result.outcome, result.reason) == (Outcome.REJECTED, Reason.DEADLINE_UNREACHABLE)
    assert int(result.metadata["estimatedWaitMs"]) > 3_000
    numbers = re.findall(r"\d+", result.message)
    assert set(numbers) == set(result.metadata.values()), "a program need not read the message"
    assert result.retry_after is None


def test_one_slow_answer_does_not_close_an_idle_pool_to_short_deadlines() -> None:
    """Only work corrects an estimate: one at a time may try where nothing runs."""
    world = World()
    agent = world.agent()
    first = world.submit()
    world.advance(8)
    agent.finish(first)
    tried, refused = world.submit(2, timeout=1)
    assert world.result(refused).reason is Reason.DEADLINE_UNREACHABLE
    for _ in range(25):
        world.advance(0.1)
        agent.finish(tried)
        assert tried.outcome is Outcome.SUCCEEDED
        tried = world.submit(timeout=1)
    assert world.submit(timeout=1).outcome is None, "the estimate is right again"


def test_deadline_within_reach_is_admitted() -> None:
    world = measured(2)
    assert world.submit(timeout=5).outcome is None


def test_nothing_is_refused_for_its_deadline_while_nothing_is_known() -> None:
    world = World()
    world.agent()
    world.submit(500)
    assert world.submit(timeout=0.5).outcome is None


def test_urgent_request_does_not_count_those_that_it_passes() -> None:
    world = measured(1)
    world.submit(20, priority=1)
    assert world.submit(timeout=4, priority=1).outcome is Outcome.REJECTED
    assert world.submit(timeout=4, priority=10).outcome is None


def test_open_admission_refuses_no_deadline_but_keeps_the_bounds() -> None:
    world = World(policies=build({"admission": "open"}), queue=queue(max_requests=3))
    agent = world.agent()
    first = world.submit()
    world.advance(5)
    agent.finish(first)
    requests = world.submit(6, timeout=1)
    assert [r.outcome for r in requests] == [None] * 4 + [Outcome.REJECTED] * 2


def test_full_queue_makes_room_for_a_more_urgent_request() -> None:
    """By default, too: a flood of less urgent ones shuts nobody out who is more urgent."""
    world = World(queue=queue(max_requests=2))
    world.agent()
    world.submit()  # takes the slot
    older, younger = world.submit(2, priority=5)
    assert world.result(world.submit(priority=5)).reason is Reason.QUEUE_FULL
    urgent = world.submit(priority=8)
    assert world.outcome(urgent) is None
    assert world.result(younger).reason is Reason.SHED
    assert world.result(younger).retry_after
    assert world.outcome(older) is None
