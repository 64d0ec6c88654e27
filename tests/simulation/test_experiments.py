"""What of the experiments is exact, or short enough for every change."""

from __future__ import annotations

import subprocess
import sys

import pytest

from simulator.experiments import e2, e4, e5
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


def test_experiments_are_asked_for_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator.experiments", "e99"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "known: " + ", ".join(EXPERIMENTS) in done.stderr.decode()
