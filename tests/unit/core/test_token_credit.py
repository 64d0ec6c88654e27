"""Are an engine's tokens never promised twice, where its agent limits them?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, Reason
from tests.builders import Agent, World, engine


def _world(capacity: int, *, slots: int = 8) -> tuple[World, Agent]:
    world = World()
    agent = world.agent("n0", engine(slots=slots, kv_capacity=capacity))
    _grant(world, agent, slots, capacity)
    return world, agent


def _grant(world: World, agent: Agent, inputs: int, tokens: int | None) -> None:
    world.step(ev.CreditsGranted(agent.node_id, agent.epoch, [("e0", inputs, tokens)]))


def test_requests_that_fit_one_by_one_but_not_together_are_not_sent_together() -> None:
    world, agent = _world(100)
    first, second = world.submit(2, prompt_tokens=40, output_tokens=20)
    assert agent.running() == [first]
    _grant(world, agent, 8, 160)  # its tokens came free
    assert agent.running() == [first, second]


def test_a_smaller_request_may_use_the_tokens_that_are_left() -> None:
    world, agent = _world(100)
    large = world.submit(prompt_tokens=80, output_tokens=10)
    waits = world.submit(prompt_tokens=80, output_tokens=10)
    small = world.submit(prompt_tokens=5, output_tokens=5)
    assert agent.running() == [large, small]
    assert waits.in_queue


def test_what_is_larger_than_the_whole_capacity_is_charged_all_of_it() -> None:
    world, agent = _world(100)
    huge = world.submit(prompt_tokens=80, output_tokens=500)
    assert agent.running() == [huge]
    assert next(iter(huge.live.values())).tokens == 100


def test_tokens_do_not_matter_where_the_agent_does_not_limit_them() -> None:
    world, agent = _world(0)
    _grant(world, agent, 8, None)
    world.submit(8, prompt_tokens=10_000, output_tokens=10_000)
    assert len(agent.running()) == 8


def test_prompt_that_no_engine_can_ever_hold_is_refused_at_once() -> None:
    world, _ = _world(100)
    world.agent("n1", engine(kv_capacity=70))
    refused = world.submit(prompt_tokens=101)
    assert world.result(refused).reason is Reason.CONTEXT_TOO_LONG
    assert world.result(world.submit(prompt_tokens=101)).metadata["contextLength"] == "100"


def test_prompt_that_only_one_engine_can_hold_goes_there() -> None:
    world, agent = _world(100, slots=1)
    world.agent("n1", engine(kv_capacity=70))
    first, second = world.submit(2, prompt_tokens=90)
    assert agent.running() == [first]
    assert second.in_queue


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=12))
def test_tokens_in_flight_never_exceed_what_was_granted(sizes: list[tuple[int, int]]) -> None:
    """Whatever the sizes; and nobody is left behind once tokens come free."""
    world, agent = _world(100, slots=4)
    requests = [world.submit(prompt_tokens=p, output_tokens=o) for p, o in sizes]
    for _ in range(50):
        held = [h.attempt for h in agent.held.values()]
        assert sum(a.tokens for a in held) <= 100
        assert len(held) <= 4
        if not held:
            break
        ended = sum(a.tokens for r in requests for a in r.attempts if a not in held)
        world.step(
            ev.ItemsFinished(
                agent.node_id, agent.epoch, [ev.ItemEnd(a.dispatch_id) for a in held[:1]]
            )
        )
        del agent.held[held[0].dispatch_id]
        done = sum(len(r.attempts) for r in requests) - len(agent.held)
        agent.ledgers["e0"].granted = 4 + done
        _grant(world, agent, 4 + done, 100 + ended + held[0].tokens)
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests)
