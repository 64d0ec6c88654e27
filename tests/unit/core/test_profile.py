"""Expected times by profile, and what is learned when they are wrong."""

from __future__ import annotations

import pytest

from scheduler_service.core import profile
from scheduler_service.core.types import MILLISECOND, SECOND
from scheduler_service.policies import build
from scheduler_service.policies.scorers import Estimate
from tests.builders import World, engine, model

# 2,000 prompt tokens a second; 30 ms a token alone, 50 ms at 64.
STATED = {"prefill_rate": 2_000.0, "token_times": ((1, 30 * MILLISECOND), (64, 50 * MILLISECOND))}


def world(**slots: int) -> World:
    """Nodes with that profile, by name."""
    w = World(policies=build({"score": "estimate"}))
    for name, count in slots.items():
        w.agent(name, engine(slots=count, models=[model(**STATED)]))
    return w


@pytest.mark.parametrize(("at", "ms"), [(1, 30), (2, 30.3), (22, 36.7), (64, 50), (500, 50)])
def test_token_time_lies_between_the_stated_points(at: int, ms: float) -> None:
    spec = model(**STATED)
    assert profile.token_time(spec, at) / MILLISECOND == pytest.approx(ms, abs=0.05)
    assert profile.token_time(model(), at) == 0


def test_estimate_adds_prompt_output_and_what_is_before_it() -> None:
    """1,000 tokens at 2,000/s and 100 of 30 ms: 0.5 s + 3 s; behind 0.5 s of prompts: 4 s."""
    w = world(a=8)
    target = w.scheduler.state.nodes["a"].engines["e0"]
    request = w.request(served_model="m", prompt_tokens=1_000, output_tokens=100)
    estimate = Estimate().estimate
    assert estimate(request, target, w.now) == 3_500 * MILLISECOND
    target.prefill_until = w.now + SECOND // 2
    assert estimate(request, target, w.now) == 4_000 * MILLISECOND
    target.slowness["m"] = 2.0
    assert estimate(request, target, w.now) == 8_000 * MILLISECOND
    target.node.trust.error_rate = 0.25
    assert estimate(request, target, w.now) == 16_000 * MILLISECOND


def test_known_prefix_is_not_taken_in_again() -> None:
    w = world(a=8)
    target = w.scheduler.state.nodes["a"].engines["e0"]
    request = w.request(
        served_model="m", prompt_tokens=1_000, output_tokens=100, affinity_key="s"
    )  # fmt: skip
    target.prefixes["s"] = 800
    assert Estimate().estimate(request, target, w.now) == 3_100 * MILLISECOND
    target.prefixes["s"] = 5_000
    assert Estimate().estimate(request, target, w.now) == 3_000 * MILLISECOND


def test_session_goes_back_to_its_node_unless_that_costs_more() -> None:
    w = world(a=8, b=8)
    fields = {"prompt_tokens": 1_000, "output_tokens": 10, "affinity_key": "s"}
    first = w.submit(**fields)
    home = next(a for a in w.agents.values() if a.held)
    home.finish(first)
    w.advance(1)
    for _ in range(4):
        request = w.submit(**fields)
        assert request in home.running()
    target = w.scheduler.state.nodes[home.node_id].engines["e0"]
    target.slowness["m"] = 4.0
    moved = w.submit(**fields)
    assert moved not in home.running()


def test_slowness_is_learned_within_its_clamp() -> None:
    """Ten times slower than stated counts as four times, an eighth at a time."""
    w = world(a=8)
    slowness = w.scheduler.state.nodes["a"].engines["e0"].slowness
    for turn in range(1, 60):
        request = w.submit(prompt_tokens=200, output_tokens=10)
        w.advance(4)  # stated: 0.1 s + 10 * 30 ms
        w.agents["a"].finish(request, output_tokens=10)
        if turn == 1:
            assert slowness["m"] == pytest.approx(1 + 3 / 8)
    assert slowness["m"] == pytest.approx(4.0, abs=0.01)


def test_no_more_than_a_second_of_prompts_is_sent_ahead() -> None:
    """900 + 900 tokens are 0.9 s of prefill; a third would make it more than 1 s."""
    w = world(a=8)
    w.submit(3, prompt_tokens=900)
    assert len(w.agents["a"].held) == 2
    w.advance(0.3)
    assert len(w.agents["a"].held) == 2
    w.advance(0.2)
    assert len(w.agents["a"].held) == 3


def test_prompt_that_is_longer_than_a_second_goes_alone() -> None:
    w = world(a=8)
    first, second = w.submit(2, prompt_tokens=6_000)
    assert w.agents["a"].running() == [first]
    w.advance(3.1)
    assert w.agents["a"].running() == [first, second]
