"""Engines that preempt get less at once, and more again little by little."""

from __future__ import annotations

from tests.builders import Agent, World, engine


def busy() -> tuple[World, Agent]:
    """Ten slots, all in use, and more waiting."""
    w = World()
    agent = w.agent("a", engine(slots=10))
    w.submit(40)
    agent.report(pressure={"e0": (5, 0.5)})
    return w, agent


def turn_over(agent: Agent) -> int:
    """All that runs is answered; how much runs then."""
    agent.finish(*agent.running())
    return len(agent.held)


def test_reported_preemption_takes_three_tenths_of_the_slots() -> None:
    _, agent = busy()
    assert turn_over(agent) == 10
    agent.report(pressure={"e0": (6, 0.5)})
    assert turn_over(agent) == 7
    agent.report(pressure={"e0": (8, 0.5)})
    assert turn_over(agent) == 4


def test_full_memory_counts_as_preemption_and_one_slot_always_stays() -> None:
    _, agent = busy()
    for _ in range(9):
        agent.report(pressure={"e0": (None, 0.96)})
    assert turn_over(agent) == 1


def test_each_ten_clean_seconds_give_a_slot_back() -> None:
    w, agent = busy()
    agent.report(pressure={"e0": (6, 0.5)})
    assert turn_over(agent) == 7
    for slots in (8, 9, 10, 10):
        w.advance(9)
        agent.report(pressure={"e0": (6, 0.5)})
        assert len(agent.held) < slots or slots == 10
        w.advance(1)
        agent.report(pressure={"e0": (6, 0.5)})
        assert len(agent.held) == slots


def test_first_report_and_a_restarted_engine_are_no_preemption() -> None:
    _, agent = busy()
    agent.report(pressure={"e0": (1, 0.5)})
    assert turn_over(agent) == 10
