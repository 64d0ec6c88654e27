"""Policies that change at run time, in random histories of everything else that happens.

Of the same ones nobody notices anything: each decision is made as without. Of others nobody is
lost: all invariants hold after each step, and whoever was let in gets one result.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service import policies
from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import AutoscaleSettings, QueueSettings
from tests.builders import World
from tests.property.core_history import history

SEEDS = st.integers(0, 10_000)
# Whose further fields are given by the configuration.
FIXED = {"batch": {}, "failover": {}, "autoscale": {}}


@st.composite
def policy_sets(draw: st.DrawFn) -> PolicySet:
    """Any policies of the registry, with their defaults."""
    names = {
        question: draw(st.sampled_from(sorted(known)))
        for question, known in policies.REGISTRY.items()
        if question != "filters"
    }
    return policies.build(names, FIXED)


def put(
    world: World,
    chosen: PolicySet,
    queue: QueueSettings | None = None,
    scale: AutoscaleSettings | None = None,
) -> None:
    now = world.scheduler.state.settings
    queue, scale = queue or now.queue, scale or now.autoscale
    world.step(ev.PoliciesChanged(chosen, queue, now.health, now.failover, scale))


@given(SEEDS, policy_sets(), st.integers(1, 7), st.booleans())
@settings(max_examples=12, deadline=None)
def test_applying_what_is_in_force_changes_no_decision(
    seed: int, chosen: PolicySet, every: int, elsewhere: bool
) -> None:
    """`elsewhere`: what changes concerns nobody here, as a tick of an autoscaler that is off."""

    def apply_again(world: World, number: int) -> None:
        if number % every == 0:
            scale = world.scheduler.state.settings.autoscale
            scale = replace(scale, tick=scale.tick + elsewhere)
            put(world, world.scheduler.state.policies, scale=scale)

    plain = history(seed, 60, policies=chosen)
    assert history(seed, 60, policies=chosen, meddle=apply_again) == plain


@given(SEEDS, st.lists(policy_sets(), min_size=2, max_size=4))
@settings(max_examples=12, deadline=None)
def test_whatever_changes_nobody_is_lost_and_nobody_is_served_twice(
    seed: int, sets: list[PolicySet]
) -> None:
    """The world's callers check their texts and results, the core its invariants at each step."""
    worlds: list[World] = []
    draw = random.Random(seed)

    def change(world: World, number: int) -> None:
        worlds[:] = [world]
        if number % 5 == 0:
            queue = QueueSettings(
                floor_every=draw.choice([0, 2, 8]),
                weights=draw.choice([{}, {"t": 3.0}]),
                headroom=draw.choice([0, 1]),
            )
            put(world, draw.choice(sets), queue)

    history(seed, 60, policies=sets[0], meddle=change)
    (world,) = worlds
    world.cancel(*world.scheduler.state.requests.values())
    world.advance(20)
    let_in = {r.request.rid for r in world.noted("submit") if r.request is not None}
    ended = [r.request.rid for r in world.noted("finished") if r.request is not None]
    assert len(ended) == len(set(ended))
    assert let_in <= set(ended)
