"""Requests that make nodes fail, and those that were only near: trials, verdicts, halves."""

from __future__ import annotations

import math

import pytest

from scheduler_service.core import records
from scheduler_service.core.commands import RememberDeaths
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import Request
from tests.builders import Agent, World, engine, static


def fleet(count: int = 4, slots: int = 4) -> World:
    """So many nodes of so many slots."""
    world = World()
    for number in range(count):
        world.agent(f"n{number}", engine(slots=slots))
    return world


def beat(world: World, duration_s: float = 0.1) -> None:
    """A moment passes, and who lives says so."""
    world.advance(duration_s)
    world.step(*(a.beat() for a in world.agents.values() if a.connected))


def turn(world: World, culprit: Request) -> list[str]:
    """Whoever holds the culprit dies (and is restarted later); the others finish. Who died."""
    died = []
    for agent in world.agents.values():
        if agent.connected and culprit in agent.running():
            agent.die()
            died.append(agent.node_id)
    for agent in world.agents.values():
        if agent.connected and agent.running():
            agent.finish(*agent.running())
    beat(world)
    return died


def live_on(world: World, culprit: Request, others: list[Request]) -> list[str]:
    """Until all have ended. The ids of the nodes that died, in order."""
    died = []
    for _ in range(400):
        died += turn(world, culprit)
        if culprit.outcome is not None and all(r.outcome is not None for r in others):
            break
        for agent in world.agents.values():
            if not agent.connected and agent.node_id in died[:-1]:
                agent.restart()
    return died


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("slots", [1, 4, 8])
def test_poison_stops_after_two_deaths_and_a_solo_trial(slots: int, stream: bool) -> None:
    world = fleet(5, slots)
    others = world.submit(2 * slots, stream=stream)
    poison = world.submit(stream=stream)
    others += world.submit(2 * slots, stream=stream)
    died = live_on(world, poison, others)
    assert len(died) == 3, "two deaths and the trial"
    assert len(set(died)) == 3
    assert (poison.outcome, poison.reason) == (Outcome.FAILED, Reason.POISONED)
    assert len(poison.attempts[-1].batch.attempts) == 1
    assert poison.attempts[-1].batch.close_reason == "trial"
    assert all(r.outcome is Outcome.SUCCEEDED for r in others)
    assert [r.request for r in world.noted(records.POISONED)] == [poison]
    for _ in range(40):
        beat(world)
    world.assert_idle()
    assert not any(node.trust.kept for node in world.scheduler.state.nodes.values())


def test_trial_has_its_node_for_itself_and_others_wait_for_theirs() -> None:
    world = World()
    first = world.agent("n0", engine(slots=4))
    requests = world.submit(2)
    assert first.running() == requests
    second = world.agent("n1", engine(slots=4))
    first.die()
    assert second.running() == requests
    second.die()
    third = world.agent("n2", engine(slots=4))
    assert third.running() == requests[:1], "one at a time, and nothing else"
    late = world.submit(3)
    assert third.running() == requests[:1]
    third.finish(requests[0])
    assert third.running() == requests[1:], "the other suspect has its trial"
    third.finish(requests[1])
    assert third.running() == late, "then the node is everybody's again"
    third.finish(*late)
    assert all(r.outcome is Outcome.SUCCEEDED for r in (*requests, *late))
    assert len(world.noted(records.SUSPECTED)) == 2


def test_verdict_clears_those_who_died_with_the_culprit() -> None:
    """No trial for them: the culprit explains what happened to them."""
    world = World()
    first = world.agent("n0", engine(slots=4))
    requests = world.submit(4)
    second = world.agent("n1", engine(slots=4))
    first.die()
    second.die()
    third = world.agent("n2", engine(slots=4))
    assert third.running() == requests[:1]
    fourth = world.agent("n3", engine(slots=4))
    third.die()
    beat(world, 3)
    assert requests[0].reason is Reason.POISONED
    assert fourth.running() == requests[1:], "together, as before"
    fourth.finish(*requests[1:])
    assert all(r.outcome is Outcome.SUCCEEDED for r in requests[1:])


def remembered(world: World) -> list[tuple[str, tuple[str, ...]]]:
    """What was told of deaths, in order."""
    told = world.of(RememberDeaths)
    return [(r.request_id, nodes) for command in told for r, nodes in command.deaths]


def test_deaths_of_a_former_life_count_on() -> None:
    """Its second death is the first one here: then comes its trial, on a node of its own."""
    world = World()
    first = world.agent("n1", engine(slots=4))
    fine = world.submit()
    poison = world.submit(former_deaths=("n0",))
    assert first.running() == [fine, poison], "one death is no more than bad luck"
    second = world.agent("n2", engine(slots=4))
    first.die()
    assert second.running() == [poison], "alone"
    second.die()
    beat(world, 3)
    assert fine.outcome is None
    assert poison.reason is Reason.POISONED
    assert world.noted(records.POISONED)[0].data == {"nodes": "n0, n1, n2"}


def test_suspect_of_a_former_life_is_tried_at_once_and_by_itself() -> None:
    world = World()
    agent = world.agent("n0", engine(slots=4))
    poison = world.submit(former_deaths=("n8", "n9"))
    others = world.submit(3)
    assert agent.running() == [poison]
    agent.finish(poison)
    assert agent.running() == others
    assert remembered(world) == [(poison.request_id, ())], "it was only unlucky"


def test_deaths_are_to_be_remembered_until_the_request_ends_well_or_is_condemned() -> None:
    world = fleet(5, 4)
    poison = world.submit()
    fine = world.submit()
    died = live_on(world, poison, [fine])
    of_poison = [nodes for name, nodes in remembered(world) if name == poison.request_id]
    assert of_poison[0] == (died[0],)
    assert (died[0], died[1]) in of_poison
    assert of_poison[-1] == ()
    of_fine = [nodes for name, nodes in remembered(world) if name == fine.request_id]
    assert of_fine == [] or of_fine[-1] == ()


def test_node_that_comes_back_with_the_request_did_not_die_of_it() -> None:
    world = World()
    agent = world.agent("n0", engine())
    request = world.submit()
    agent.lose_stream()
    assert remembered(world) == [(request.request_id, ("n0",))]
    agent.join()
    assert remembered(world)[-1] == (request.request_id, ())


def test_request_that_was_cancelled_is_remembered_for_its_next_life() -> None:
    world = World()
    agent = world.agent("n0", engine())
    request = world.submit()
    agent.die()
    world.cancel(request)
    assert remembered(world)[-1] == (request.request_id, ("n0",))


def test_nothing_is_remembered_of_what_no_node_died_with() -> None:
    world = fleet(1)
    request = world.submit()
    world.agents["n0"].finish(request)
    assert remembered(world) == []


def test_out_of_memory_counts_as_a_death_of_the_node() -> None:
    world = fleet(4, 1)
    request = world.submit()
    for _ in range(3):
        for agent in world.agents.values():
            if agent.running():
                agent.finish(request, reason=Reason.ENGINE_OOM)
        for _ in range(30):
            beat(world)
    assert request.reason is Reason.POISONED
    assert len(request.attempts) == 3
    world.assert_idle()


def test_suspect_on_trial_that_fails_otherwise_is_no_poison() -> None:
    world = fleet(4, 1)
    request = world.submit(max_attempts=3)
    for reason in (Reason.ENGINE_OOM, Reason.ENGINE_OOM, Reason.ENGINE_ERROR):
        for agent in world.agents.values():
            if agent.running():
                agent.finish(request, reason=reason)
        for _ in range(30):
            beat(world)
    assert request.reason is Reason.ATTEMPTS_EXHAUSTED


def test_node_is_free_again_when_its_suspect_is_cancelled_before_it_starts() -> None:
    world = World()
    first = world.agent("n0", engine(slots=2))
    request = world.submit()
    second = world.agent("n1", engine(slots=2))
    first.die()
    third = world.agent("n2", engine(slots=2))
    busy = world.submit()
    assert third.running() == [busy]
    second.die()
    node = world.scheduler.state.nodes["n2"]
    assert node.trust.kept
    waiting = world.submit()
    assert third.running() == [busy], "kept: it is not empty yet"
    world.cancel(request)
    assert not node.trust.kept
    assert third.running() == [busy, waiting]


def test_kept_node_that_dies_is_replaced_by_another() -> None:
    world = World()
    first = world.agent("n0", engine(slots=1))
    request = world.submit()
    second = world.agent("n1", engine(slots=1))
    first.die()
    third = world.agent("n2", engine(slots=2))
    fourth = world.agent("n3", engine(slots=2))
    busy = world.submit(2)
    assert third.running() + fourth.running() == busy
    second.die()
    kept = next(a for a in (third, fourth) if world.scheduler.state.nodes[a.node_id].trust.kept)
    other = fourth if kept is third else third
    kept.die()
    beat(world)
    other.finish(*other.running())
    assert other.running() == [request]


def turn_static(agents: list[Agent], culprit: Request) -> None:
    """Each batch with the culprit fails as a whole, the others succeed."""
    for agent in agents:
        held = agent.running()
        if held:
            bad = culprit in held
            agent.finish(*held, **({"reason": Reason.ENGINE_ERROR} if bad else {}))


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_culprit_of_a_failed_batch_is_isolated_by_halving(size: int, place: int) -> None:
    """Behaviour 12: in ceil(log2 B) + 1 rounds, and nobody else is charged an attempt."""
    world = World()
    agents = [world.agent(n, static(slots=8)) for n in ("a", "b")]
    requests = world.submit(size)
    culprit = requests[place]
    while any(r.outcome is None for r in requests):
        turn_static(agents, culprit)
        beat(world)
    assert culprit.reason is Reason.ATTEMPTS_EXHAUSTED
    healthy = [r for r in requests if r is not culprit]
    assert all(r.outcome is Outcome.SUCCEEDED for r in healthy)
    assert all(r.charged == 1 for r in healthy)
    assert culprit.charged == 3
    sizes = [len(a.batch.attempts) for a in culprit.attempts]
    assert sizes.index(1) <= math.ceil(math.log2(size))
    world.assert_idle()


def test_batch_with_one_failed_member_is_no_failed_batch() -> None:
    """Behaviour 12: the engine names the culprit; it is tried again by itself."""
    world = World()
    agent = world.agent("a", static(slots=4))
    requests = world.submit(4)
    agent.finish(requests[1], reason=Reason.ENGINE_ERROR)
    agent.finish(*(r for r in requests if r is not requests[1]))
    assert requests[1].charged == 1
    assert world.scheduler.state.apart == {}
    assert [r.outcome for r in requests].count(Outcome.SUCCEEDED) == 3


def test_member_that_is_cancelled_meanwhile_leaves_its_half() -> None:
    """Behaviour 10: it is not computed again."""
    world = World()
    agent = world.agent("a", static(slots=4))
    requests = world.submit(4)
    agent.finish(*requests, reason=Reason.ENGINE_ERROR)
    assert world.scheduler.state.nodes["a"].trust.errors_in_row == 1, "one batch, one failure"
    assert agent.running() == requests[:2]
    world.cancel(requests[2], requests[3])
    agent.finish(*requests[:2])
    beat(world)
    assert agent.running() == []
    assert world.scheduler.state.apart == {}
    world.assert_idle()
