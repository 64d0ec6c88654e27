"""Closed forms give the figures of the literature, models agree with each other, verdicts judge."""

from __future__ import annotations

import itertools
from random import Random
from statistics import fmean

import pytest

from simulator.experiments import naive, statistics
from simulator.experiments.queueing import (
    cobham,
    erlang_c,
    md1_wait,
    md1_wait_quantile,
    mg1_sjf_waits,
    mg1_wait,
    mmc_wait,
    mmc_wait_quantile,
    round_robin,
    supermarket,
)
from simulator.experiments.verdicts import exactly, markdown, near, render, within
from simulator.summary import quantile


@pytest.mark.parametrize(
    ("servers", "rho", "waits", "mean", "tail"),
    [
        (1, 0.8, 0.8, 4.0, 21.910),
        (2, 0.8, 0.711111, 1.777778, 10.661),
        (4, 0.8, 0.596432, 0.745541, 5.111),
        (16, 0.9, 0.591343, 0.369590, 2.550),
        (64, 0.95, 0.588011, 0.183753, 1.273),
    ],
)
def test_many_servers(servers: int, rho: float, waits: float, mean: float, tail: float) -> None:
    load = servers * rho
    assert erlang_c(servers, load) == pytest.approx(waits, abs=1e-6)
    assert mmc_wait(servers, load) == pytest.approx(mean, abs=1e-6)
    assert mmc_wait_quantile(servers, load, 0.99) == pytest.approx(tail, abs=1e-3)


@pytest.mark.parametrize(("rho", "tail"), [(0.5, 3.336), (0.8, 10.356), (0.9, 21.898)])
def test_fixed_services(rho: float, tail: float) -> None:
    assert md1_wait_quantile(rho, 0.99) == pytest.approx(tail, abs=1e-3)
    assert md1_wait(rho) == pytest.approx(mg1_wait(rho, 1.0, 1.0))


def test_priorities_and_choices() -> None:
    assert cobham(4, 3.2, [0.5, 0.5]) == pytest.approx([0.248514, 1.242568], abs=1e-6)
    assert supermarket(2, 0.9) == pytest.approx(2.6141, abs=1e-4)
    assert round_robin(1, 0.9) == pytest.approx(10.0)
    assert round_robin(100_000, 0.9) == pytest.approx(5.179, abs=0.01)  # D/M/1
    assert supermarket(3, 0.99) == pytest.approx(3.8578, abs=1e-4)


def test_shortest_first_with_equal_lengths_is_first_come() -> None:
    assert mg1_sjf_waits(0.8, [1.0] * 50) == pytest.approx([mg1_wait(0.8, 1.0, 1.0)] * 50)
    assert fmean(mg1_sjf_waits(0.4, [0.5, 1.5] * 20)) < mg1_wait(0.4, 1.0, 1.25)


def test_strict_with_one_priority_is_first_come() -> None:
    random = Random(2)
    at, demands = 0, []
    for _ in range(2_000):
        at += random.randrange(100)
        demands.append((at, random.randrange(180), 5))
    strict = [wait for _, wait in naive.strict(demands, 2)]
    assert sorted(strict) == sorted(naive.first_come(demands, 2))


def test_batch_means_know_their_error() -> None:
    random = Random(3)
    draws = (random.randrange(1_000) for _ in itertools.count())
    found = statistics.waits(draws, 40_000)
    assert abs(found.mean.value - 499.5) < 3 * found.mean.error < 10
    assert abs(found.p99.value - 989) < 3 * found.p99.error + 1
    assert found.waited.value == pytest.approx(0.999, abs=0.001)


def test_quantiles_are_ranks() -> None:
    ordered = list(range(1, 101))
    assert [quantile(ordered, q) for q in (0.5, 0.99, 1.0, 0.0)] == [50, 99, 100, 1]
    assert quantile([], 0.5) == 0


def test_verdicts_want_both_nearness_and_certainty() -> None:
    assert near("x", 10.0, 10.2, share=0.03).passed
    assert not near("x", 10.0, 10.4, share=0.03).passed
    assert near("x", 10.0, 10.2, share=0.03, error=0.08).passed
    assert not near("x", 10.0, 10.2, share=0.03, error=0.01).passed
    assert not near("x", 10.0, 10.2, share=0.03, error=0.2).passed
    assert not within("x", 10.0, 10.2, error=0.05).passed
    rows = [exactly("same", 3, 3), exactly("other", 3, 4)]
    assert "FAILED" in render(rows).splitlines()[2]
    assert "**failed**" in markdown(rows)
