"""A slow attempt gets a rival on another node: when, at what price, and who of the two counts."""

from __future__ import annotations

from typing import Any

from scheduler_service.core import commands as cmd
from scheduler_service.core import records
from scheduler_service.core.outcomes import AttemptState, Outcome, Reason, RequestClass
from scheduler_service.core.settings import FailoverSettings, Hedge, Patience
from scheduler_service.core.types import MILLISECOND, Attempt, Request
from tests.builders import STALE, Agent, World, engine, seconds

USUAL_S = 0.2  # what the attempts take that are learned from


def hedged(**limits: Any) -> FailoverSettings:
    """Hedging for all models; after five answers, as often as wished, unless told otherwise."""
    given = {"share": 1.0, "fewest": 5, **limits}
    return FailoverSettings(hedge=Hedge(**given))


def two_nodes(
    failover: FailoverSettings | None = None, *, stream: bool = True, learned: int = 10
) -> tuple[World, Agent, Agent]:
    """Two nodes of two slots; attempts usually answer after `USUAL_S`."""
    world = World(failover=failover or hedged())
    a, b = world.agent("a", engine(slots=2)), world.agent("b", engine(slots=2))
    for _ in range(learned):
        request = world.submit(stream=stream)
        world.advance(USUAL_S)
        agent = where(world, request)
        if stream:
            agent.speak(request)
        agent.finish(request)
    return world, a, b


def where(world: World, request: Request) -> Agent:
    """The agent of its last attempt."""
    return world.agents[request.attempts[-1].node.node_id]


def other(world: World, attempt: Attempt) -> Agent:
    """The agent that the attempt is not on."""
    return next(a for a in world.agents.values() if a.node_id != attempt.node.node_id)


def slow_pair(world: World, **fields: Any) -> tuple[Request, Attempt, Attempt]:
    """A request that got a rival: it, its slow attempt, the rival."""
    request = world.submit(**{"stream": True, **fields})
    world.advance(1)
    slow, rival = request.attempts
    return request, slow, rival


def cancelled(world: World, attempt: Attempt) -> bool:
    """Whether its node was told to stop it."""
    return any(attempt.dispatch_id in c.dispatch_ids for c in world.of(cmd.CancelAttempts))


def test_no_attempt_gets_a_rival_unless_that_is_configured() -> None:
    world, _, _ = two_nodes(FailoverSettings())
    request = world.submit(stream=True)
    world.advance(20)
    assert len(request.attempts) == 1
    assert not world.scheduler.state.watches


def test_slow_stream_gets_a_rival_after_three_times_the_mean_and_the_first_to_speak_wins() -> None:
    world, _, _ = two_nodes()
    request = world.submit(stream=True)
    world.advance(0.55)
    assert len(request.attempts) == 1
    world.advance(0.1)
    slow, rival = request.attempts
    assert seconds(0.6) <= rival.started_at - slow.started_at <= seconds(0.65)
    assert rival.node is not slow.node
    assert rival.chosen_by == rival.batch.close_reason == "hedge"
    winner, loser = where(world, request), other(world, rival)
    winner.speak(request, 3)
    assert slow.state is AttemptState.REVOKED
    assert cancelled(world, slow)
    assert not loser.held, "its slot is free once the node says so"
    assert is_silent(world, loser, slow)
    winner.speak(request, 2)
    winner.finish(request)
    assert world.caller(request).text == "bbbbb"
    assert world.result(request).attempt is rival
    totals = world.scheduler.state.totals
    assert (totals.hedges, totals.hedges_won) == (1, 1)
    (noted,) = world.noted(records.HEDGED)
    assert noted.data == {"slow_node": slow.node.node_id, "after_ms": 600}
    world.assert_idle()


def is_silent(world: World, agent: Agent, attempt: Attempt) -> bool:
    """Whether what it says is dropped."""
    return world.hear(attempt, 0, 3) == STALE


def test_slow_attempt_that_speaks_after_all_keeps_the_caller_and_the_rival_is_cancelled() -> None:
    world, _, _ = two_nodes()
    request, slow, rival = slow_pair(world)
    agent = world.agents[slow.node.node_id]
    agent.speak(request, 2)
    assert rival.state is AttemptState.REVOKED
    assert cancelled(world, rival)
    assert world.hear(rival, 0, 5) == STALE
    agent.speak(request, 2)
    agent.finish(request)
    assert world.caller(request).text == "aaaa"
    assert world.scheduler.state.totals.hedges_won == 0
    world.assert_idle()


def test_first_result_ends_a_request_that_does_not_stream() -> None:
    world, _, _ = two_nodes(stream=False)
    request, slow, rival = slow_pair(world, stream=False)
    where(world, request).finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    assert (slow.state, rival.state) == (AttemptState.REVOKED, AttemptState.SUCCEEDED)
    assert cancelled(world, slow)
    world.assert_idle()


def test_request_that_has_spoken_or_is_quick_gets_no_rival() -> None:
    world, _, _ = two_nodes()
    request = world.submit(stream=True)
    world.advance(0.3)
    where(world, request).speak(request)
    world.advance(10)
    assert len(request.attempts) == 1
    assert not cancelled(world, request.attempts[0])


def test_rival_waits_for_a_slot_that_nobody_else_waits_for() -> None:
    world, a, _b = two_nodes()
    first = world.submit(4, stream=False)  # all slots are taken
    late = world.submit(stream=True)
    world.advance(0.1)
    a.finish(a.running()[0])
    assert late.attempts
    assert not world.noted(records.HEDGED)
    world.advance(2)
    assert len(late.attempts) == 1, "no room on the other node"
    behind = world.submit(stream=True)
    other(world, late.attempts[0]).finish(other(world, late.attempts[0]).running()[0])
    assert behind.attempts, "who waits goes first"
    world.advance(1)
    assert len(late.attempts) == 1
    other(world, late.attempts[0]).finish(other(world, late.attempts[0]).running()[0])
    world.advance(1)
    assert len(late.attempts) == 2
    assert len(first) == 4


def test_rivals_keep_to_their_share_of_the_first_attempts() -> None:
    world, a, b = two_nodes(hedged(share=0.25), learned=8)  # two may be sent
    for expected in (2, 2, 1, 1):
        request = world.submit(stream=True)
        world.advance(3)
        assert len(request.attempts) == expected
        for agent in (a, b):
            agent.finish_ids(list(agent.held))
        world.advance(0.01)


def test_rival_is_paid_for_from_the_budget_of_retries() -> None:
    nothing = FailoverSettings(
        hedge=Hedge(share=1.0, fewest=5), retry_share=0, retry_floor=0, retry_burst=0
    )
    world, _, _ = two_nodes(nothing)
    request = world.submit(stream=True)
    world.advance(10)
    assert len(request.attempts) == 1


def test_single_attempt_and_job_items_get_no_rival() -> None:
    world, _, _ = two_nodes()
    once = world.submit(stream=True, max_attempts=1)
    item = world.submit(stream=True, request_class=RequestClass.JOB)
    world.advance(5)
    assert (len(once.attempts), len(item.attempts)) == (1, 1)


def test_nothing_is_slow_before_enough_answers_are_known() -> None:
    world, _, _ = two_nodes(learned=4)
    request = world.submit(stream=True)
    world.advance(10)
    assert len(request.attempts) == 1


def test_request_has_one_rival_and_that_goes_on_alone_when_the_slow_node_dies() -> None:
    """Its node's death costs nothing then: no third attempt is made."""
    world, _, _ = two_nodes()
    request, slow, rival = slow_pair(world)
    world.advance(10)
    assert len(request.attempts) == 2
    world.agents[slow.node.node_id].die()
    world.advance(3)
    assert (slow.state, len(request.attempts)) == (AttemptState.LOST, 2)
    agent = world.agents[rival.node.node_id]
    agent.speak(request, 3)
    agent.finish(request)
    assert world.caller(request).text == "bbb"
    world.assert_idle()


def test_both_fail_and_the_request_is_tried_a_third_time() -> None:
    world, _, _ = two_nodes()
    request, slow, rival = slow_pair(world)
    for attempt in (slow, rival):
        agent = world.agents[attempt.node.node_id]
        agent.finish_ids([attempt.dispatch_id], reason=Reason.ENGINE_ERROR)
    world.advance(1)
    assert len(request.attempts) == 3
    where(world, request).finish(request)
    assert request.outcome is Outcome.SUCCEEDED
    world.assert_idle()


def test_cancel_reaches_both() -> None:
    world, a, b = two_nodes()
    request, slow, rival = slow_pair(world)
    world.cancel(request)
    assert cancelled(world, slow)
    assert cancelled(world, rival)
    assert not a.held
    assert not b.held
    world.assert_idle()


def test_pool_has_its_own_setting() -> None:
    by_model = FailoverSettings(
        hedge=Hedge(share=1.0, fewest=5),
        hedge_by_model={"m": None},
        patience_by_model={"m": Patience(total=seconds(30))},
    )
    world, _, _ = two_nodes(by_model)
    request = world.submit(stream=True)
    world.advance(10)
    assert len(request.attempts) == 1


def test_least_delay_holds_where_attempts_are_quick() -> None:
    world, _, _ = two_nodes(hedged(least_delay=seconds(2)))
    request = world.submit(stream=True)
    world.advance(1.9)
    assert len(request.attempts) == 1
    world.advance(0.2)
    slow, rival = request.attempts
    assert rival.started_at - slow.started_at >= 2_000 * MILLISECOND


def test_nobody_gets_a_rival_while_others_wait_even_for_another_node() -> None:
    world, a, b = two_nodes()
    first = world.submit(stream=True)
    on_a, on_b = (a, b) if a.held else (b, a)
    world.submit(stream=True)
    world.step(on_b.credits())
    filling = world.submit(2, stream=False)
    assert (len(on_a.held), len(on_b.held)) == (2, 2)
    moved = next(r for r in on_b.running() if r is not first)
    on_b.finish(moved, reason=Reason.ENGINE_ERROR)
    world.advance(3)
    assert (moved.in_queue, len(on_b.held)) == (True, 1), "it waits for the node not yet tried"
    assert len(first.attempts) == 1
    world.cancel(moved)
    world.advance(2)
    assert len(first.attempts) == 2
    assert filling
