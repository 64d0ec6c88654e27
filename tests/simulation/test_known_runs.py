"""On a real trace, the simulator gives the figures that are known from elsewhere."""

from __future__ import annotations

import pytest

from scheduler_service.core.types import SECOND
from scheduler_service.policies import build
from simulator.fleet import parse
from simulator.simulation import Plan, simulate
from simulator.summary import Objective
from simulator.workload.assignment import Assignment
from simulator.workload.traces import load


def test_first_come_on_six_nodes_of_eight_slots() -> None:
    """Azure's hour of conversations: 93.2 % wait at most 3 s, p99 8.0 s, 5.9 node-hours."""
    plan = Plan(
        fleet=parse("6xslots-70B"),
        policies=lambda: build({"order": "fifo"}),
        objective=Objective(wait=3 * SECOND),
    )
    run = simulate(plan, load("azure-conv"))
    assert run.summary.all.attained == pytest.approx(0.932, abs=0.002)
    assert run.summary.all.wait.p99 == pytest.approx(8.0, abs=0.1)
    assert run.summary.node_hours == pytest.approx(5.9, abs=0.05)
    assert run.metrics.in_system_integral == run.metrics.sojourn


def test_more_urgent_requests_wait_less_and_the_least_urgent_are_not_starved() -> None:
    plan = Plan(fleet=parse("5xslots-70B"), objective=Objective(wait=3 * SECOND))
    arrivals = Assignment(seed=1)(a for a in load("azure-conv") if a.at < 900 * SECOND)
    parts = simulate(plan, arrivals).summary.priorities
    waits = [part.wait.p99 for part in parts.values()]
    assert list(parts) == [10, 7, 5, 1]
    assert waits == sorted(waits)
    assert parts[1].succeeded == parts[1].requests
