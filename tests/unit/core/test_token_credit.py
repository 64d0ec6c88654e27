"""Are an engine's tokens never promised twice, where its agent limits them?"""

from __future__ import annotations

from scheduler_service.core import events as ev
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
