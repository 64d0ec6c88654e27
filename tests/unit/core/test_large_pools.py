"""Pools of more than 32 engines: a few are drawn, sessions find their prefix, nothing is hidden."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.openings import SAMPLES, Openings
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import Engine, Node, NodeSpec
from scheduler_service.policies import build
from tests.builders import Agent, World, engine, seconds


def world(nodes: int = 60, slots: int = 2, **policies: str) -> World:
    w = World(policies=build({"score": "estimate", "pick": "hot_cold", **policies}))
    for number in range(nodes):
        w.agent(f"n{number:03}", engine(slots=slots))
    return w


def holder(w: World, request: object) -> Agent:
    """The agent that holds the request."""
    (agent,) = [a for a in w.agents.values() if request in a.running()]
    return agent


def test_every_slot_is_found_and_no_more_is_sent() -> None:
    w = world()
    w.submit(130)
    assert {len(a.held) for a in w.agents.values()} == {2}
    assert len(w.scheduler.state.pools["m"].queue) == 10


def test_room_that_comes_free_is_used_at_once() -> None:
    w = world()
    w.submit(130)
    agent = w.agents["n017"]
    done = agent.running()[0]
    agent.finish(done)
    assert len(agent.held) == 2
    assert w.outcome(done) is Outcome.SUCCEEDED


def test_light_load_is_spread() -> None:
    """The fullest of five drawn ones is never taken while others are empty."""
    w = world(slots=8)
    w.submit(60)
    held = Counter(len(a.held) for a in w.agents.values())
    assert max(held) <= 4
    assert held[0] < 30


def test_session_stays_where_its_prefix_is() -> None:
    w = world()
    for key in ("a", "b", "c", "d"):
        homes = set()
        for _ in range(8):
            request = w.submit(affinity_key=key, prompt_tokens=1_000)
            agent = holder(w, request)
            homes.add(agent.node_id)
            agent.finish(request)
        assert len(homes) == 1


def test_restarted_scheduler_sends_a_session_to_the_same_node() -> None:
    """Its place on the ring depends on nothing but names."""
    first = [holder(w, w.submit(affinity_key="s", prompt_tokens=9)) for w in (world(), world())]
    assert first[0].node_id == first[1].node_id


def test_key_that_everybody_has_loads_no_node_beyond_the_bound() -> None:
    """Behaviour of bounded loads: new keys pass over the engine that is above 1.25 times mean."""
    w = world(nodes=40, slots=64)
    for number in range(400):
        w.submit(affinity_key=f"k{number}", prompt_tokens=9)
        w.now += seconds(0.2)
        w.step(*[a.beat() for a in w.agents.values()])
    held = [len(a.held) for a in w.agents.values() if a.connected]
    assert max(held) <= 1.25 * 400 / 40 + 2


def test_full_home_is_no_reason_to_wait() -> None:
    w = world(slots=1)
    one = w.submit(affinity_key="s", prompt_tokens=9)
    other = w.submit(affinity_key="s", prompt_tokens=9)
    assert holder(w, one) is not holder(w, other)


def test_failed_over_request_is_not_sent_to_the_same_node_again() -> None:
    w = world()
    request = w.submit()
    first = holder(w, request)
    first.die()
    assert holder(w, request) is not first


def test_backups_of_a_large_pool_wait_for_their_turn() -> None:
    w = world(nodes=40, slots=1)
    backup = w.agent("spare", engine(slots=50), role="backup")
    w.submit(45)
    assert not backup.held
    urgent = w.submit(timeout=0.001)
    assert urgent in backup.running()


def an_engine(number: int) -> Engine:
    spec = engine()
    node = Node(f"n{number}", "b", 1, NodeSpec((spec,)), 0, 0)
    return Engine(node, spec, {m.model: m for m in spec.models})


@settings(max_examples=50)
@given(st.integers(0, 2**64 - 1), st.sets(st.integers(0, 59)), st.sets(st.integers(0, 59)))
def test_drawn_ones_are_distinct_and_will_do(number: int, full: set[int], unfit: set[int]) -> None:
    engines = [an_engine(n) for n in range(60)]
    openings = Openings(engines, 0)

    def answer(drawn: Engine) -> bool | None:
        at = engines.index(drawn)
        return None if at in full else at not in unfit

    found = openings.draw(number, answer)
    assert len(found) == len(set(found)) <= max(SAMPLES, 32)
    assert all(answer(e) for e in found)
    assert openings.where == {e: n for n, e in enumerate(openings.engines)}
    for at in full:
        openings.add(engines[at])
    assert openings.where == {e: n for n, e in enumerate(openings.engines)}
    if not full and not unfit:
        assert len(found) == SAMPLES
