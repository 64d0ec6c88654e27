"""How sure is a measured mean or quantile, when neighbours depend on each other? Batch means."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from simulator.summary import quantile

BATCHES = 40


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error."""

    value: float
    error: float


def of_batches(values: Sequence[float]) -> Estimate:
    """The mean of what batches found, each long against what its neighbours share with it."""
    middle = sum(values) / len(values)
    variance = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    return Estimate(middle, math.sqrt(variance / len(values)))


@dataclass(frozen=True)
class Waits:
    """Mean, p99 and share above nothing, of one long run."""

    mean: Estimate
    p99: Estimate
    waited: Estimate


def waits(values: Iterable[int], count: int) -> Waits:
    """Of `count` values, taken in batch by batch: a run may be longer than memory."""
    means, tails, shares = [], [], []
    for batch in _batches(iter(values), count // BATCHES):
        batch.sort()
        means.append(sum(batch) / len(batch))
        tails.append(float(quantile(batch, 0.99)))
        shares.append(sum(value > 0 for value in batch) / len(batch))
    return Waits(of_batches(means), of_batches(tails), of_batches(shares))


def mean(values: Iterable[int], count: int) -> Estimate:
    """The mean of `count` values."""
    return of_batches([sum(b) / len(b) for b in _batches(iter(values), count // BATCHES)])


def _batches(values: Iterator[int], size: int) -> Iterator[list[int]]:
    for _ in range(BATCHES):
        batch = list(itertools.islice(values, size))
        if batch:
            yield batch
