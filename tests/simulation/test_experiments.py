"""What of the experiments is exact, or short enough for every change."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scheduler_service.core.types import SECOND
from simulator.experiments import e2, e3, e4, e5, e6, policies
from simulator.experiments.registry import EXPERIMENTS
from simulator.experiments.verdicts import Row, render


def judge(*rows: Row) -> None:
    assert rows
    assert all(row.passed for row in rows), "\n" + render(rows)


@pytest.mark.parametrize(
    "cell",
    [
        e2.Cell("least loaded of 2", 0.9),
        e2.Cell("hot and cold of 5", 0.7, mixed=True),
        e2.Cell("least loaded", 0.8, stale=1.0),
    ],
    ids=lambda cell: cell.name,
)
def test_e2_the_live_core_chooses_nodes_as_the_model_does(cell: e2.Cell) -> None:
    judge(e2.same_choices((cell, 300)))


def test_e3_shares_are_fair_and_who_comes_back_gets_its_own() -> None:
    judge(*e3.shares(10), *e3.returning(10))


def test_e3_the_floor_serves_the_least_urgent_and_costs_an_eighth() -> None:
    judge(*e3.ageing(10))


def test_e3_the_uncapped_key_is_a_small_model_s() -> None:
    waits, same = e3.uncapped(e3.mixed(200), 50 * SECOND)
    assert same
    assert waits[10] < waits[1]


def test_e6_the_law_meets_the_objective_with_fewer_turns_than_the_plain_rule() -> None:
    judge(*e6.measure(short=True).rows)


def test_e4_the_curve_of_tokens_and_time() -> None:
    judge(*e4.curve())


def test_e4_static_batches_wait_for_their_longest() -> None:
    outputs = [7, 1, 1, 1]
    assert e4.longest_of(outputs, 1) == 1.0
    assert e4.longest_of(outputs, 2) == pytest.approx((7 * 7 + 9) / 16 / 2.5)


@pytest.mark.parametrize("trace", e5.TABLE)
def test_e5_shortest_first_has_the_known_closed_forms(trace: str) -> None:
    judge(*e5.closed_forms(trace))


def test_e5_the_live_core_sorts_by_length() -> None:
    judge(*e5.live("azure-code", short=True))


@pytest.mark.slow
def test_the_default_order_against_others_and_routers_on_ten_minutes_of_code() -> None:
    judge(*policies.measure(short=True).rows)


def test_experiments_are_asked_for_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator.experiments", "e99"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "known: " + ", ".join(EXPERIMENTS) in done.stderr.decode()
