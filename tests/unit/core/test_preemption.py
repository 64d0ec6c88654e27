"""Running job items make room for interactive requests: when, which, how many, and what follows."""

from __future__ import annotations

from typing import Any

from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import (
    AttemptState,
    Outcome,
    Reason,
    RequestClass,
    RequestState,
)
from scheduler_service.core.types import SECOND, Request
from scheduler_service.policies import build
from tests.builders import Agent, World, engine, model, queue, static

JOB = RequestClass.JOB


def night(slots: int = 4, jobs: int = 8, **fields: Any) -> tuple[World, Agent, list[Request]]:
    """A node full of job items, with more of them waiting; the floor is off."""
    policies = build({"preempt": fields.pop("preempt", "after_run")})
    limits = queue(floor_every=fields.pop("floor_every", 0), headroom=fields.pop("headroom", 0))
    world = World(policies=policies, queue=limits)
    agent = world.agent("a", engine(slots=slots))
    return world, agent, world.submit(jobs, request_class=JOB, **fields)


def stopped(world: World) -> list[Request]:
    """Whose attempts were asked to make room, in that order."""
    ids = [
        d
        for c in world.of(cmd.CancelAttempts)
        if c.reason is Reason.PREEMPTED
        for d in c.dispatch_ids
    ]
    of = {d: caller.request for caller in world.callers.values() for d in caller.starts}
    return [of[d] for d in ids]


def test_item_that_has_run_long_enough_makes_room_at_once() -> None:
    world, agent, _ = night()
    world.advance(2)
    chat = world.submit()
    assert chat in agent.running()
    assert len(stopped(world)) == 1


def test_items_get_two_seconds_from_their_last_start() -> None:
    """And the core wakes up when the first may be stopped, without any other event."""
    world, agent, _ = night()
    world.advance(1.5)
    chat = world.submit()
    assert chat not in agent.running()
    world.advance(0.4)
    assert stopped(world) == []
    world.advance(0.11, beats=False)
    assert chat in agent.running()


def test_latest_started_is_stopped_first() -> None:
    world, agent, jobs = night(slots=3, jobs=3)
    world.advance(1)
    agent.finish(jobs[1])
    (late,) = world.submit(1, request_class=JOB)
    world.advance(2.5)
    world.submit()
    assert stopped(world) == [late]


def test_never_more_items_than_requests_wait() -> None:
    world, agent, _ = night(slots=4)
    agent.obeys = False  # it takes its time
    world.advance(3)
    world.submit(2)
    world.advance(1)
    assert len(stopped(world)) == 2, "those that are on their way count"
    world.submit()
    assert len(stopped(world)) == 3


def test_job_items_only_go_to_slots_that_nobody_waits_for() -> None:
    """Those who take two slots get them one by one; the item behind does not take the first."""
    world, agent, _ = night(slots=2, jobs=4)
    world.advance(3)
    wide = world.submit(inputs=2)
    assert agent.running() == [wide]
    assert len(stopped(world)) == 2


def test_stopped_item_is_not_charged_and_goes_to_the_front() -> None:
    world, agent, jobs = night(slots=1, jobs=3, max_attempts=1)
    world.advance(3)
    chat = world.submit()
    item = jobs[0]
    assert item.state is RequestState.QUEUED
    assert (item.charged, item.preemptions) == (0, 1)
    assert item.attempts[0].state is AttemptState.PREEMPTED
    assert world.scheduler.state.totals.preemptions == 1
    (note,) = world.noted("preempted")
    assert (note.node_id, note.request) == ("a", item)
    agent.finish(chat)
    assert agent.running() == [item]
    agent.finish(item)
    assert world.outcome(item) is Outcome.SUCCEEDED


def test_output_so_far_is_kept_and_continued() -> None:
    world, agent, jobs = night(slots=1, jobs=1, stream=True)
    item = jobs[0]
    agent.run(item)
    agent.speak(item, 5)
    world.advance(3)
    chat = world.submit()
    agent.finish(chat)
    assert agent.held[agent.dispatch_id(item)].start == 5
    agent.speak(item, 2)
    agent.finish(item)
    assert world.caller(item).text == "aaaaabb"
    totals = world.scheduler.state.totals
    assert (totals.wasted_output_tokens, totals.preempted_work) == (0, 0)


def test_where_the_model_cannot_continue_the_item_starts_anew() -> None:
    world = World(queue=queue(floor_every=0))
    agent = world.agent("a", engine(models=[model(resumable=False)]))
    item = world.submit(request_class=JOB, stream=True)
    agent.run(item)
    agent.speak(item, 5)
    world.advance(3)
    chat = world.submit()
    agent.finish(chat)
    agent.run(item)
    agent.speak(item, 3)
    agent.finish(item)
    assert world.caller(item).text == "bbb"
    assert world.scheduler.state.totals.preempted_work == 3 * SECOND


def test_output_between_the_cancel_and_its_answer_is_not_lost() -> None:
    world, agent, jobs = night(slots=1, jobs=1, stream=True)
    item = jobs[0]
    agent.run(item)
    agent.speak(item, 5)
    agent.obeys = False
    world.advance(3)
    chat = world.submit()
    agent.speak(item, 4)
    agent.finish(item, reason=Reason.PREEMPTED)
    assert agent.running() == [chat]
    agent.finish(chat)
    assert agent.held[agent.dispatch_id(item)].start == 9


def test_item_that_was_done_before_it_heard_of_it_counts() -> None:
    world, agent, jobs = night(slots=1, jobs=1)
    agent.obeys = False
    world.advance(3)
    chat = world.submit()
    assert stopped(world) == jobs
    agent.finish(jobs[0])
    assert world.outcome(jobs[0]) is Outcome.SUCCEEDED
    assert jobs[0].preemptions == 0
    assert agent.running() == [chat]
    world.submit(request_class=JOB)
    agent.finish(chat)
    world.advance(3)
    world.submit()
    assert len(stopped(world)) == 2, "no slot is thought of as coming any more"


def test_interactive_requests_are_never_stopped() -> None:
    world = World(queue=queue(floor_every=0))
    agent = world.agent("a", engine(slots=1))
    low = world.submit(priority=1)
    world.advance(10)
    world.submit(priority=10)
    assert agent.running() == [low]


def test_nothing_is_stopped_while_a_slot_is_free_or_by_jobs() -> None:
    world, agent, _ = night(slots=4, jobs=3)
    world.advance(3)
    chat = world.submit()
    assert chat in agent.running()
    world.submit(5, request_class=JOB, priority=10)
    world.advance(3)
    assert stopped(world) == []


def test_item_is_only_stopped_where_the_request_can_go() -> None:
    world = World(queue=queue(floor_every=0))
    text = world.agent("a", engine(), task_types=("summarization",))
    chat_node = world.agent("b", engine(), task_types=("chat",))
    world.submit(request_class=JOB, task_type="chat")
    world.advance(1)
    world.submit(request_class=JOB, task_type="summarization")
    world.advance(3)
    chat = world.submit(task_type="chat")
    assert chat_node.running() == [chat]
    assert len(text.running()) == 1


def test_never_means_never() -> None:
    world, _, _ = night(preempt="never")
    world.advance(60)
    world.submit(3)
    assert stopped(world) == []


def test_static_batches_are_left_alone() -> None:
    world = World(queue=queue(floor_every=0))
    world.agent("a", static(slots=2))
    world.submit(4, request_class=JOB)
    world.advance(5)
    world.submit()
    assert stopped(world) == []


def test_headroom_is_kept_from_job_items_alone() -> None:
    world, agent, _ = night(slots=4, headroom=1)
    assert len(agent.running()) == 3
    chat = world.submit()
    assert chat in agent.running()
    assert stopped(world) == []
    agent.finish(chat)
    assert len(agent.running()) == 3


def test_floors_turn_gives_a_job_item_the_headroom() -> None:
    """Else it would wait for ever under steady interactive load."""
    world, agent, jobs = night(slots=1, jobs=1, headroom=1, floor_every=4)
    for _ in range(20):
        world.submit()
        agent.finish(*agent.running())
    assert jobs[0].attempts


def test_lost_node_of_a_stopped_item_is_an_ordinary_failover() -> None:
    world, agent, jobs = night(slots=1, jobs=1)
    agent.obeys = False
    world.advance(3)
    chat = world.submit()
    agent.die()
    other = world.agent("b", engine(slots=2))
    world.advance(6)
    assert sorted(other.running(), key=lambda r: r.rid) == [jobs[0], chat]
    assert not any(world.scheduler.state.making_room.values())
    other.finish(jobs[0], chat)
    world.assert_idle()
