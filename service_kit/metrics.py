"""What is a metric, before anybody reads it? Plain numbers, collected when somebody asks.

Services describe their present figures as families; `prometheus.py` and `otlp_metrics.py` write
them. Nothing is counted here: the sources are the counters that a service keeps anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Collect = Callable[[], "Sequence[Family]"]


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


def one_hot(family: Family, states: Iterable[str], present: str, *labels: str) -> None:
    """A series per state: 1 for the present one, 0 for the others."""
    for state in states:
        family.add(float(state == present), *labels, state)
