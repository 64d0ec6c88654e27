"""What is a metric, before anybody reads it? Plain numbers, collected when somebody asks.

Services describe their present figures as families; `prometheus.py` and `otlp_metrics.py` write
them. The sources are the counters that a service keeps anyway; for what none does, there is
`Counted`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Final

Collect = Callable[[], "Sequence[Family]"]

# Powers of four of microseconds from 1 ms to 17 min: edges at which the report's own bars end.
TIME_EDGES_S: Final = tuple(4**n / 1e6 for n in range(5, 16))


class Kind(StrEnum):
    """How values of a family may change."""

    COUNTER = "counter"  # grows; back to zero when the process starts anew
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram's state."""

    counts: Sequence[int]  # observations up to each edge of the family, cumulative
    count: int
    total: float  # of all observations, in the family's unit


@dataclass(slots=True)
class Family:
    """One metric and its series. The number of series is bounded by what makes them."""

    name: str  # as in OpenTelemetry: "batchyard.queue.depth"
    kind: Kind
    help: str
    unit: str = ""  # UCUM: "s", "{request}"; empty: none
    labels: tuple[str, ...] = ()
    edges: Sequence[float] = ()  # of a histogram, rising
    series: dict[tuple[str, ...], float | Bins] = field(default_factory=dict)

    def add(self, value: float | Bins, *labels: str) -> None:
        """The value of a series."""
        assert len(labels) == len(self.labels), (self.name, labels)
        self.series[labels] = value


class Counted:
    """Observations by edge, for what no report counts."""

    __slots__ = ("_below", "_edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._below = [0] * (len(edges) + 1)  # the last: those above all edges
        self.total = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self._below[bisect_right(self._edges, value)] += 1
        self.total += value

    def bins(self) -> Bins:
        """As a family takes them."""
        *counts, count = accumulate(self._below)
        return Bins(counts, count, self.total)


def one_hot(family: Family, states: Iterable[str], present: str, *labels: str) -> None:
    """A series per state: 1 for the present one, 0 for the others."""
    for state in states:
        family.add(float(state == present), *labels, state)
