"""Nodes whose attempts fail: ejected, on probation, trusted again; and never too many of them."""

from __future__ import annotations

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import NodeHealth, Outcome, Reason
from scheduler_service.core.types import SECOND, Request
from scheduler_service.policies import build
from tests.builders import Agent, World, engine, health, seconds, settings, static


def world(nodes: int = 2, slots: int = 8, **fields: int) -> World:
    """Nodes of eight slots each; the first is "n0"."""
    w = World(settings(health=health(**fields)))
    for number in range(nodes):
        w.agent(f"n{number}", engine(slots=slots))
    return w


def state_of(w: World, node_id: str = "n0") -> NodeHealth:
    return w.scheduler.state.nodes[node_id].health


def fail(w: World, agent: Agent, count: int = 1) -> None:
    """So many attempts fail there, each of a request of its own; all others are answered."""
    failed = 0
    while failed < count:
        w.submit(max_attempts=1)
        for other in w.agents.values():
            for held in list(other.held.values()):
                if other is agent and failed < count:
                    other.finish(held.attempt.request, reason=Reason.ENGINE_ERROR)
                    failed += 1
                elif other is not agent:
                    other.finish(held.attempt.request)


def test_five_errors_in_a_row_take_a_node_out() -> None:
    w = world()
    fail(w, w.agents["n0"], 4)
    assert state_of(w) is NodeHealth.HEALTHY
    fail(w, w.agents["n0"])
    assert state_of(w) is NodeHealth.EJECTED
    assert [r.data["duration_s"] for r in w.noted("node_ejected") if r.data] == [30]
    w.submit(8)
    assert not w.agents["n0"].held
    assert len(w.agents["n1"].held) == 8


def test_answer_in_between_and_callers_faults_take_no_node_out() -> None:
    w = world()
    agent = w.agents["n0"]
    for _ in range(5):
        fail(w, agent, 4)
        while not agent.held:
            w.submit()
        agent.finish(*agent.running())
    for _ in range(20):
        w.submit(2, max_attempts=1)
        agent.finish(*agent.running(), reason=Reason.INVALID_ARGUMENT)
    assert state_of(w) is NodeHealth.HEALTHY


def test_lone_node_stays_in_whatever_it_does() -> None:
    """Behaviour 63: a fault of something shared is not blamed on the last node."""
    w = world(nodes=1)
    fail(w, w.agents["n0"], 30)
    assert state_of(w) is NodeHealth.HEALTHY


@pytest.mark.parametrize(("nodes", "out"), [(2, 1), (4, 1), (9, 1), (20, 2), (30, 3)])
def test_fault_that_all_nodes_share_takes_a_tenth_out_or_one(nodes: int, out: int) -> None:
    """Behaviour 63: the panic rule, when every attempt fails everywhere."""
    w = world(nodes, slots=1)
    for _ in range(8):
        w.submit(nodes, max_attempts=1)
        for agent in w.agents.values():
            agent.finish(*agent.running(), reason=Reason.ENGINE_ERROR)
    assert len(w.noted("node_ejected")) == out


def test_none_goes_when_less_than_half_would_be_left() -> None:
    w = world(nodes=3)
    w.step(ev.NodeCordoned("n1", True))
    w.agents["n2"].lose_stream()
    fail(w, w.agents["n0"], 9)
    assert state_of(w) is NodeHealth.HEALTHY


def eject(w: World) -> Agent:
    """Take n0 out."""
    agent = w.agents["n0"]
    fail(w, agent, 5)
    assert state_of(w) is NodeHealth.EJECTED
    return agent


def on_probation(w: World) -> Agent:
    """Take n0 out and wait until it is on probation; n1 is full meanwhile."""
    agent = eject(w)
    w.submit(8)
    w.advance(29.9)
    assert state_of(w) is NodeHealth.EJECTED
    w.advance(0.2)
    assert state_of(w) is NodeHealth.PROBATION
    return agent


def test_probation_is_one_request_at_a_time() -> None:
    w = world()
    agent = on_probation(w)
    waiting = w.submit(20)
    for _ in range(2):
        assert len(agent.held) == 1
        agent.finish(*agent.running())
    assert state_of(w) is NodeHealth.PROBATION
    agent.finish(*agent.running())
    assert state_of(w) is NodeHealth.HEALTHY
    assert sum(w.outcome(r) is Outcome.SUCCEEDED for r in waiting) == 3


def test_static_engine_on_probation_gets_a_batch_of_one() -> None:
    w = World()
    w.agent("n0", static(slots=4))
    w.agent("n1", static(slots=4))
    for _ in range(9):
        w.submit(8, max_attempts=1)
        w.agents["n0"].finish(*w.agents["n0"].running(), reason=Reason.ENGINE_ERROR)
        w.agents["n1"].finish(*w.agents["n1"].running())
    assert state_of(w) is NodeHealth.EJECTED
    w.advance(31)
    w.submit(8)
    w.advance(1)
    assert len(w.agents["n0"].held) == 1


def test_trusted_node_gets_its_slots_little_by_little() -> None:
    """A quarter at once, half after 10 s, all after 30 s."""
    w = world()
    agent = on_probation(w)
    for _ in range(3):
        w.submit()
        agent.finish(*agent.running())
    w.submit(30)
    for after, slots in ((0, 2), (9, 3), (1, 4), (10, 6), (9.9, 7), (2, 8)):
        w.advance(after)
        assert len(agent.held) == slots


def test_failure_on_probation_takes_it_out_for_longer() -> None:
    w = world()
    agent = on_probation(w)
    w.submit(max_attempts=1)
    agent.finish(*agent.running(), reason=Reason.ENGINE_ERROR)
    assert state_of(w) is NodeHealth.EJECTED
    assert [r.data["duration_s"] for r in w.noted("node_ejected") if r.data] == [30, 60]


@pytest.mark.parametrize("reason", [Reason.PERMISSION_DENIED, Reason.INVALID_ARGUMENT])
def test_callers_fault_on_probation_proves_nothing_and_makes_way_for_the_next(
    reason: Reason,
) -> None:
    """Behaviour 59: a request that is denied ends there, and the node stays on probation."""
    w = world()
    agent = on_probation(w)
    waiting = w.submit(30)
    for _ in range(9):
        (denied,) = agent.running()
        agent.finish(denied, reason=reason)
        assert w.outcome(denied) is Outcome.FAILED
        assert denied.reason is reason
        assert state_of(w) is NodeHealth.PROBATION
    for _ in range(3):
        agent.finish(*agent.running())
    assert state_of(w) is NodeHealth.HEALTHY
    assert sum(w.outcome(r) is Outcome.FAILED for r in waiting) == 9


def test_ejections_are_forgotten_by_half_for_every_five_good_minutes() -> None:
    w = world()
    trust = w.scheduler.state.nodes["n0"].trust
    trust.ejections, trust.ejected_at = 5, w.now - 601 * SECOND
    eject(w)
    assert trust.ejections == 2
    trust.ejections, trust.ejected_at = 50, w.now
    assert trust.ejected_until - w.now == 60 * SECOND


def test_no_node_is_out_for_longer_than_five_minutes() -> None:
    w = world()
    trust = w.scheduler.state.nodes["n0"].trust
    trust.ejections, trust.ejected_at = 50, w.now
    eject(w)
    assert trust.ejected_until - w.now == 300 * SECOND


def test_node_that_is_out_comes_back_when_no_other_is_left() -> None:
    """Behaviour 58: nobody stays out while there is nobody else."""
    w = world()
    agent = eject(w)
    w.agents["n1"].die()
    request = w.submit()
    assert state_of(w) is NodeHealth.PROBATION
    agent.finish(request)
    assert w.outcome(request) is Outcome.SUCCEEDED


def test_silence_and_a_new_stream_do_not_make_it_trusted() -> None:
    w = world()
    agent = eject(w)
    w.advance(3.5, beats=False)
    assert state_of(w) is NodeHealth.SUSPECT
    w.step(*[a.beat() for a in w.agents.values()])
    assert state_of(w) is NodeHealth.EJECTED
    agent.lose_stream()
    agent.join()
    assert state_of(w) is NodeHealth.EJECTED
    w.submit(9)
    assert not agent.held


def test_time_that_ends_while_it_is_silent_puts_it_on_probation() -> None:
    w = world()
    agent = eject(w)
    w.advance(28)
    agent.frozen = True
    w.advance(4)
    assert state_of(w) is NodeHealth.SUSPECT
    agent.frozen = False
    w.step(agent.beat())
    assert state_of(w) is NodeHealth.PROBATION


def test_new_process_is_trusted_but_its_past_counts() -> None:
    w = world()
    agent = eject(w)
    agent.die()
    agent.restart()
    assert state_of(w) is NodeHealth.HEALTHY
    eject(w)
    assert [r.data["duration_s"] for r in w.noted("node_ejected") if r.data] == [30, 60]


def test_work_of_a_node_that_is_taken_out_goes_on() -> None:
    w = world()
    kept = w.submit(stream=True)
    agent = next(a for a in w.agents.values() if a.held)
    agent.speak(kept)
    failures = 0
    while failures < 5:
        w.submit(15, max_attempts=1)
        for other in w.agents.values():
            for held in list(other.held.values()):
                request: Request = held.attempt.request
                if request is not kept and other is agent:
                    other.finish(request, reason=Reason.ENGINE_ERROR)
                    failures += 1
                elif request is not kept:
                    other.finish(request)
    assert state_of(w, agent.node_id) is NodeHealth.EJECTED
    agent.finish(kept)
    assert w.outcome(kept) is Outcome.SUCCEEDED


def test_trusting_takes_no_node_out() -> None:
    w = World(policies=build({"health": "trusting"}))
    for number in range(2):
        w.agent(f"n{number}", engine(slots=8))
    fail(w, w.agents["n0"], 50)
    assert state_of(w) is NodeHealth.HEALTHY


def test_node_with_far_fewer_successes_than_the_others_is_taken_out() -> None:
    """Never five in a row: a fifth of its attempts fail, none of the others'."""
    w = world(nodes=6, slots=4)
    w.advance(0.01)
    for turn in range(200):
        w.submit(24, max_attempts=1)
        for agent in w.agents.values():
            running = agent.running()
            if running and agent.node_id == "n0" and turn % 5 == 0:
                agent.finish(running.pop(), reason=Reason.ENGINE_ERROR)
                agent.finish(*running[:1])
            agent.finish(*agent.running())
        w.advance(0.06)
        w.step(*[a.beat() for a in w.agents.values()])
    assert state_of(w) is NodeHealth.EJECTED
    assert "on average" in w.scheduler.state.nodes["n0"].state_reason
    assert len(w.noted("node_ejected")) == 1


def test_new_node_warms_up_where_that_is_asked_for_and_others_can_work() -> None:
    w = world(nodes=1, warm_up_new=seconds(30))
    w.submit(8)
    assert len(w.agents["n0"].held) == 8
    w.submit(30)
    fresh = w.agent("n1", engine(slots=8))
    assert len(fresh.held) == 2
    w.advance(31)
    assert len(fresh.held) == 8
