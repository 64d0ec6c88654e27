"""How a node that serves nothing reads, in one word."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_service.core import condition, explain
from scheduler_service.core.state import why_unusable
from tests.builders import World, engine


def node_word(world: World) -> str:
    return condition.of_node(world.scheduler.state.nodes["a"])


LOADS: dict[str, Any] = {
    "inactive_models": {"e0": ["m"]},
    "inactive_words": {"e0": {"m": "loading"}},
}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({}, "healthy"),
        ({"unhealthy": {"e0": "starting"}}, "starting"),
        ({"unhealthy": {"e0": "starting"}, **LOADS}, "loading"),
        (LOADS, "loading"),
        ({"unhealthy": {"e0": "stalled"}}, "stalled"),
        ({"unhealthy": {"e0": "stalled"}, **LOADS}, "stalled"),
        ({"unhealthy": {"e0": "down"}, "down": ["e0"]}, "down"),
        ({"inactive_models": {"e0": ["m"]}}, "no_model"),
        ({"unhealthy": {"e0": "health 99"}}, "starting"),
    ],
)
def test_node_that_serves_nothing_says_why_in_one_word(said: dict[str, Any], word: str) -> None:
    world = World()
    agent = world.agent("a")
    agent.report(**said)
    assert node_word(world) == word
    books = world.scheduler.state.nodes["a"].engines["e0"]
    assert bool(why_unusable(books, "m")) is (word != "healthy")
    agent.report()
    assert node_word(world) == "healthy"


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ("stalled", "down", "stalled"),
        ("down", "starting", "starting"),
        ("stalled", "", "healthy"),
    ],
)
def test_of_several_engines_the_nearest_to_serving_is_said(
    first: str, second: str, word: str
) -> None:
    world = World()
    agent = world.agent("a", engine("e0"), engine("e1"))
    agent.report(unhealthy={e: w for e, w in (("e0", first), ("e1", second)) if w})
    assert node_word(world) == word


def test_explanation_names_what_is_wrong_with_each_engine() -> None:
    world = World()
    hung, dead, full = world.agent("a"), world.agent("b"), world.agent("c")
    hung.report(unhealthy={"e0": "stalled"})
    dead.report(unhealthy={"e0": "down"}, down=["e0"])
    (placed,) = explain.placements_of(world.scheduler.state, world.submit())
    assert full.running()
    words = {c.node_id: c.filtered_by for c in placed.candidates if not c.chosen}
    assert words == {"a": "stalled", "b": "down"}
