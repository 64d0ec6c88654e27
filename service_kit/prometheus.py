"""How do metrics look to Prometheus? Text, in the format that the scraper asked for.

Names follow OpenTelemetry's rules of translation: dots become underscores, the unit is a suffix,
counters end in `_total`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import exposition
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from service_kit.metrics import Bins, Family, Kind

_SUFFIXES: Final = {
    "s": "_seconds", "By": "_bytes", "1": "_ratio", "Cel": "_celsius", "W": "_watts",
}  # fmt: skip


def text(families: Sequence[Family], accept: str = "") -> tuple[bytes, str]:
    """The page, and its content type. `accept`: the header of the scraper."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families))
    write, content_type = exposition.choose_encoder(accept)
    return write(registry), content_type


def name_of(family: Family) -> str:
    """What Prometheus calls it, without the `_total` of counters."""
    name = family.name.replace(".", "_")
    suffix = _SUFFIXES.get(family.unit, "")
    return name if name.endswith(suffix) else name + suffix


class _Given(Collector):
    """Families as the library wants them."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield _metric(family)


def _metric(family: Family) -> Metric:
    name, names = name_of(family), [label.replace(".", "_") for label in family.labels]
    if family.kind is Kind.HISTOGRAM:
        return _histogram(family, name, names)
    made: CounterMetricFamily | GaugeMetricFamily
    if family.kind is Kind.COUNTER:
        made = CounterMetricFamily(name, family.help, labels=names)
    else:
        made = GaugeMetricFamily(name, family.help, labels=names)
    for labels, value in family.series.items():
        assert not isinstance(value, Bins)
        made.add_metric(labels, value)
    return made


def _histogram(family: Family, name: str, names: list[str]) -> Metric:
    made = HistogramMetricFamily(name, family.help, labels=names)
    edges = [str(float(edge)) for edge in family.edges]
    for labels, value in family.series.items():
        assert isinstance(value, Bins)
        bars = [*zip(edges, value.counts, strict=True), ("+Inf", value.count)]
        made.add_metric(labels, bars, value.total)
    return made
