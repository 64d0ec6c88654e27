"""What do these metrics say? The few that are wanted, out of a Prometheus text of thousands."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_END = 1e18  # NaN is not below it, either


@dataclass(slots=True, frozen=True)
class Series:
    """One line of the text."""

    value: float
    labels: Mapping[str, str]


def read_metrics(text: str, wanted: Container[str]) -> dict[str, list[Series]]:
    """Return the series of the wanted metrics, by name; lines that cannot be read are skipped."""
    found: dict[str, list[Series]] = {}
    for line in text.splitlines():
        end = min((i for i in (line.find("{"), line.find(" ")) if i > 0), default=0)
        name = line[:end]
        if name not in wanted:
            continue
        labels, rest = {}, line[end:]
        if rest.startswith("{"):
            inside, _, rest = rest[1:].rpartition("}")
            labels = dict(_LABEL.findall(inside))
        try:
            value = float(rest.split()[0])
        except (IndexError, ValueError):
            continue
        if abs(value) < _END:
            found.setdefault(name, []).append(Series(value, labels))
    return found


def total(found: Mapping[str, Sequence[Series]], names: Sequence[str]) -> float | None:
    """Return the sum over all series of the first of `names` that is there; None: none is."""
    for name in names:
        if found.get(name):
            return math.fsum(series.value for series in found[name])
    return None


def mean(found: Mapping[str, Sequence[Series]], names: Sequence[str]) -> float | None:
    """Return the mean over all series (one per engine process) of the first that is there."""
    for name in names:
        if found.get(name):
            return math.fsum(series.value for series in found[name]) / len(found[name])
    return None
