"""Two attempts of one request at once: who may speak, and is the caller's text legal?

Each attempt writes its own letter, so an illegal splice shows as a mixed text. The caller's text is
checked after every delta (`Caller.check_text`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from scheduler_service.core.outcomes import AttemptState, Outcome, RequestState, ResumeMode
from scheduler_service.core.relay import GAP, STALE
from scheduler_service.core.types import Request
from tests.builders import Agent, World, engine, model


def two_nodes(**fields: object) -> tuple[World, Agent, Agent, Request]:
    """A streaming request on node a; node b, that cannot be reached for it yet, is free."""
    world = World()
    a = world.agent("a")
    request = world.submit(**{"stream": True, **fields})
    b = world.agent("b")
    assert a.running() == [request]
    return world, a, b, request


def two_attempts(**fields: object) -> tuple[World, Agent, Agent, Request]:
    """The same request live on both: a's stream broke before it spoke, and a came back."""
    world, a, b, request = two_nodes(**fields)
    a.lose_stream()
    assert b.running() == [request]
    a.join()
    assert a.running() == [request], "what it still holds and may still answer is adopted"
    assert len(request.live) == 2
    return world, a, b, request


def test_undelivered_work_of_a_broken_session_is_dispatched_again_at_once() -> None:
    """Behaviour 50: the second node starts undelivered work at once, not after the window."""
    _, a, b, request = two_nodes()
    a.lose_stream()
    assert b.running() == [request]
    assert len(request.live) == 2, "both attempts are live"
    assert [a.number for a in request.live.values()] == [1, 2]


def test_first_to_speak_wins_and_the_other_is_revoked_and_stale() -> None:
    world, a, b, request = two_attempts()
    ours, theirs = a.held[a.dispatch_id(request)], b.held[b.dispatch_id(request)]
    assert b.speak(request, 3) == 0
    assert list(request.live) == [theirs.attempt.dispatch_id]
    assert ours.attempt.state is AttemptState.REVOKED
    assert a.cancelled == [ours.attempt.dispatch_id]
    assert a.speak_held(ours, 3) == STALE
    assert world.scheduler.relay.stale == 1
    b.speak(request, 2)
    b.finish(request)
    assert world.caller(request).text == "bbbbb"
    assert world.result(request).attempt is theirs.attempt
    world.assert_idle()


def test_mid_stream_work_waits_for_the_window_and_continues_at_the_exact_offset() -> None:
    """Behaviours 50 and 56: moved within 3 s, by a proper continuation."""
    world, a, b, request = two_nodes()
    a.speak(request, 7)
    a.lose_stream()
    world.advance(1.9)
    assert b.running() == [], "the first node may still come back"
    world.advance(0.2)
    assert b.running() == [request]
    held = b.held[b.dispatch_id(request)]
    assert held.start == 7
    assert b.speak(request, 3) == 0
    b.finish(request)
    assert world.caller(request).text == "aaaaaaabbb"
    assert world.outcome(request) is Outcome.SUCCEEDED
    world.assert_idle()


def test_mid_stream_work_of_an_agent_that_comes_back_in_time_stays_there() -> None:
    world, a, b, request = two_nodes()
    a.speak(request, 4)
    a.lose_stream()
    world.advance(1.5)
    a.join()
    assert request.state is RequestState.DISPATCHED or request.state is RequestState.RUNNING
    assert a.speak(request, 2) == 0
    world.advance(3)
    a.finish(request)
    assert world.caller(request).text == "aaaaaa"
    assert b.batches == [], "no failover"
    assert len(request.attempts) == 1


def test_output_sent_again_after_a_reconnect_is_trimmed() -> None:
    """An agent that comes back may repeat what its broken stream had delivered already."""
    world, a, _, request = two_nodes()
    a.speak(request, 4)
    a.lose_stream()
    a.join()
    assert a.speak(request, 5, at=2) == 2, "two letters are known, three are new"
    assert world.caller(request).text == "aaaaaaa"
    assert a.speak(request, 2, at=1) == 2, "nothing of it is new"
    assert world.caller(request).text == "aaaaaaa"


@pytest.mark.parametrize("finisher", ["a", "b"])
def test_first_result_wins_where_nobody_streams(finisher: str) -> None:
    world, a, b, request = two_attempts(stream=False)
    winner, loser = (a, b) if finisher == "a" else (b, a)
    loser.obeys = False
    winner.finish(request, payload=finisher)
    assert world.result(request).payload == finisher
    loser.finish_ids(list(loser.held), payload="late")
    assert world.scheduler.state.totals.late_results == 1
    world.assert_idle()


INTERLEAVINGS = sorted(set(itertools.permutations("aaabbb")))


@pytest.mark.parametrize("told_after", [0, 1, 2, 6], ids=lambda n: f"told_after_{n}")
def test_every_interleaving_of_two_attempts_gives_one_attempts_text(told_after: int) -> None:
    """The first delta decides, however late the core hears of it (`told_after` more deltas)."""
    for order in INTERLEAVINGS:
        world, agents, request = _both_live()
        world.hold_begun = True
        for index, name in enumerate(order):
            _say(agents[name], request)
            if index >= told_after:
                world.tell_begun()
        world.tell_begun()
        winner = agents[order[0]]
        winner.finish(request)
        assert world.caller(request).text == order[0] * 3, order
        assert world.scheduler.relay.stale == 3, order
        _end_revoked(agents, request)
        world.assert_idle()


def _both_live() -> tuple[World, dict[str, Agent], Request]:
    world, a, b, request = two_attempts()
    a.obeys = b.obeys = False  # revoked ones go on talking, as a slow cancel would have it
    return world, {"a": a, "b": b}, request


def _say(agent: Agent, request: Request) -> None:
    """One letter of the agent's attempt, live or not."""
    held = next(h for h in agent.held.values() if h.attempt.request is request)
    agent.speak_held(held)


def _silence(world: World, agent: Agent) -> None:
    """Lose the node for good."""
    agent.lose_stream()
    agent.held.clear()
    world.advance(2.1)


def _reboot(world: World, agent: Agent) -> None:
    """Replace it by a new process at once."""
    agent.die()
    agent.restart()


def _end_revoked(agents: dict[str, Agent], request: Request) -> None:
    """Agents that went on with revoked work come to its end."""
    for agent in agents.values():
        agent.finish_ids([d for d in agent.held if d not in request.live])


@pytest.mark.parametrize("ending", [_silence, _reboot], ids=["lost", "restarted"])
@pytest.mark.parametrize("told", [True, False], ids=["told", "not_told"])
def test_every_interleaving_with_the_loss_of_a_node_gives_a_legal_text(
    ending: Callable[[World, Agent], None], told: bool
) -> None:
    """Node a is lost at every place of every interleaving. If it was speaking, b's own output is
    out and a continuation goes on at the exact offset; if b was, nothing changes for the caller.
    """
    for order in sorted(set(itertools.permutations("aabb"))):
        for place in range(len(order) + 1):
            world, agents, request = _both_live()
            world.hold_begun = not told
            late = list(agents["a"].held.values())
            for index, name in enumerate(order):
                if index == place:
                    ending(world, agents["a"])
                if name == "b" or index < place:
                    if agents[name].running():
                        _say(agents[name], request)
                else:
                    assert agents["a"].speak_held(late[0]) == STALE
            if place == len(order):
                ending(world, agents["a"])
            world.tell_begun()
            _end_somewhere(world, agents, request)
            text = world.caller(request).text
            assert text, (order, place)
            assert world.outcome(request) is Outcome.SUCCEEDED


def _end_somewhere(world: World, agents: dict[str, Agent], request: Request) -> None:
    """Let revoked work end, then the live attempt speak once more and finish."""
    _end_revoked(agents, request)
    assert request.live, "it is live somewhere"
    (attempt,) = request.live.values()
    agent = agents[attempt.node.node_id]
    assert agent.speak(request, 1) == 0
    agent.finish(request)
    world.assert_idle()


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("aabb"))))
def test_two_continuations_of_one_output_do_not_mix(order: tuple[str, ...]) -> None:
    """A continuation whose session breaks before it spoke is dispatched again; either may win."""
    world = World()
    first = world.agent("first")
    request = world.submit(stream=True)
    first.speak(request, 5)
    a = world.agent("a")
    first.die()
    world.advance(2.1)
    assert a.running() == [request]
    b = world.agent("b")
    a.lose_stream()
    a.join()
    assert len(request.live) == 2
    a.obeys = b.obeys = False
    assert a.held[a.dispatch_id(request)].start == b.held[b.dispatch_id(request)].start == 5
    agents = {"a": a, "b": b}
    for name in order:
        _say(agents[name], request)
    agents[order[0]].finish(request)
    letter = "b" if order[0] == "a" else "c"  # the second attempt, or the third
    assert world.caller(request).text == "aaaaa" + letter * 2


def test_delta_that_leaves_a_gap_claims_nothing() -> None:
    """The peer that broke the protocol does not silence its healthy sibling."""
    world, a, b, request = two_attempts()
    assert a.speak(request, 1, at=4) == GAP
    assert b.speak(request, 2) == 0
    assert world.caller(request).text == "bb"


def test_lost_speaker_does_not_leave_its_output_to_a_sibling_that_began_anew() -> None:
    """The speaker's node is lost by a timer of the very step that brings its first word: the
    sibling would write from the start, so it must not go on in the speaker's output.
    """
    world, a, b, request = two_attempts()
    b.obeys = False
    world.hold_begun = True
    world.advance(2.99, beats=False)
    b.beat()
    world.step(b.beat())
    a.frozen = True
    world.advance(1.99, beats=False)
    assert a.speak(request, 3) == 0
    world.step(b.beat())
    world.advance(0.1, beats=False)
    assert world.scheduler.state.nodes["a"].alive is False
    world.tell_begun()
    _end_somewhere(world, {"a": a, "b": b}, request)
    assert world.caller(request).text in ("aaac", "aaab")


def test_result_of_the_silent_sibling_is_dropped_once_the_other_spoke() -> None:
    """The caller has a's text, so b's result, in the same step, is not its answer."""
    world, a, b, request = two_attempts()
    a.obeys = b.obeys = False
    world.hold_begun = True
    a.speak(request, 2)
    b.finish(request, payload="b")
    assert world.outcome(request) is None
    a.finish(request, payload="a")
    assert world.result(request).payload == "a"
    assert world.scheduler.state.totals.late_results == 1
    world.assert_idle()


def test_more_text_than_was_sent_is_never_dispatched_anew_when_told_late() -> None:
    """A stream that breaks right after its first word is in mid-stream, told or not."""
    world, a, b, request = two_nodes()
    world.hold_begun = True
    a.speak(request, 3)
    a.lose_stream()
    assert b.running() == []
    world.advance(2.1)
    assert b.held[b.dispatch_id(request)].start == 3


def test_restart_opted_in_begins_a_new_output() -> None:
    world = World()
    plain = engine(models=[model(resumable=False)])
    a = world.agent("a", plain)
    request = world.submit(stream=True, resume_mode=ResumeMode.RESTART)
    a.speak(request, 4)
    b = world.agent("b", engine(models=[model(resumable=False)]))
    a.die()
    world.advance(2.1)
    assert b.held[b.dispatch_id(request)].start == 0
    assert b.speak(request, 2) == 0
    b.finish(request)
    caller = world.caller(request)
    assert caller.text == "bb"
    assert len(caller.outputs) == 2, "the caller is told that it starts anew"


def test_late_deltas_and_results_of_the_dead_session_are_dropped_and_counted() -> None:
    """Behaviour 47: the old attempt's tokens are dropped, the text is not doubled."""
    world, a, b, request = two_nodes()
    a.speak(request, 3)
    old = a.held[a.dispatch_id(request)]
    a.frozen = True
    world.advance(5.1)
    assert b.running() == [request]
    assert a.closed[0].reconnect
    b.speak(request, 2)
    assert a.speak_held(old, 3) == STALE
    a.finish(request, output_tokens=6)
    assert world.scheduler.state.totals.late_results == 1
    a.frozen = False
    b.finish(request)
    assert world.caller(request).text == "aaabb"
