"""Whose is a request, and how urgent, where a trace does not say? By a seeded hash of its place."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scheduler_service.core.hashing import hash64
from scheduler_service.core.types import NEVER, SECOND, Duration
from simulator.workload.arrival import Arrival

# Shares as the experiments use them.
PRIORITIES: Mapping[int, float] = {10: 0.10, 7: 0.20, 5: 0.50, 1: 0.20}
_HALF = 1 << 32


@dataclass(kw_only=True)
class Assignment:
    """Tenants by Zipf's law, priorities by shares; the same trace and seed give the same.

    With 100 tenants and exponent 1 the top ten have 56 %: the skew of ServeGen's clients.
    """

    seed: int = 0
    tenants: int = 100
    zipf: float = 1.0
    priorities: Mapping[int, float] = field(default_factory=lambda: dict(PRIORITIES))
    timeouts: Mapping[int, Duration] = field(default_factory=dict)  # by priority

    def __call__(self, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
        """The arrivals, with what they lack filled in. A tenant that a trace names stays."""
        by_tenant = _cumulative([1 / rank**self.zipf for rank in range(1, self.tenants + 1)])
        levels = sorted(self.priorities, reverse=True)
        by_level = _cumulative([self.priorities[level] for level in levels])
        for number, arrival in enumerate(arrivals):
            draw = hash64(self.seed, number, "assignment")
            if not arrival.tenant and self.tenants:
                at = bisect.bisect_right(by_tenant, (draw >> 32) / _HALF)
                arrival.tenant = f"tenant{min(at, self.tenants - 1)}"
            at = bisect.bisect_right(by_level, (draw % _HALF) / _HALF)
            arrival.priority = levels[min(at, len(levels) - 1)]
            if arrival.timeout >= NEVER:
                arrival.timeout = self.timeouts.get(arrival.priority, NEVER)
            yield arrival


def _cumulative(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [part / total for part in itertools.accumulate(weights)]


def faster(arrivals: Iterable[Arrival], factor: float) -> Iterator[Arrival]:
    """The same requests in 1/factor of the time."""
    for arrival in arrivals:
        arrival.at = round(arrival.at / factor)
        yield arrival


def between(arrivals: Iterable[Arrival], start_s: float, end_s: float) -> Iterator[Arrival]:
    """Those of a stretch of time, moved to 0."""
    start, end = round(start_s * SECOND), round(end_s * SECOND)
    for arrival in arrivals:
        if arrival.at >= end:
            return
        if arrival.at >= start:
            arrival.at -= start
            yield arrival
