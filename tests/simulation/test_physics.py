"""E1, short: the live core's waits are a small model's, and laws of queues hold exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.experiments import e1
from simulator.experiments.verdicts import Row, render


def judge(rows: list[Row]) -> None:
    assert all(row.passed for row in rows), "\n" + render(rows)


@pytest.mark.parametrize("system", e1.SYSTEMS, ids=lambda system: system.name)
def test_the_live_core_waits_as_the_model_does(system: e1.System) -> None:
    judge(e1.same_waits(system, short=True))


def test_the_live_core_waits_as_the_model_does_for_a_fresh_seed(fresh_seed: int) -> None:
    judge(e1.same_waits(replace(e1.SYSTEMS[3], seed=fresh_seed), short=True))


@pytest.mark.parametrize("system", [e1.SYSTEMS[3], e1.SYSTEMS[6]], ids=lambda system: system.name)
def test_means_are_those_of_the_closed_forms(system: e1.System) -> None:
    judge(e1.closed_forms(system, short=True))


def test_strict_priority_is_cobham_s() -> None:
    judge(e1.strict_priority(short=True))


def test_no_order_changes_the_work_that_waits() -> None:
    judge(e1.conservation(short=True))
