"""What is drawn of a run? Queue, nodes and use over time, and how latencies spread: short lists.

Instants become seconds, a stretch of time becomes one point: the most that waited in it, the mean
of what ran, the nodes at its end. Latencies are quantiles at fixed shares, so a run of a million
requests is as short as one of a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import SECOND
from simulator.metrics import OUTCOMES, Metrics, Series
from simulator.summary import quantile

POINTS: Final = 240
SHARES: Final = (
    0.0, *(n / 100 for n in range(1, 100, 2)), 0.995, 0.999, 1.0,
)  # fmt: skip
_SUCCEEDED: Final = OUTCOMES.index(Outcome.SUCCEEDED)


def curves(metrics: Metrics) -> dict[str, Any]:
    """Plain lists, for JSON."""
    return {"time": _over_time(metrics.series, metrics.ended_at), "latency": _latency(metrics)}


def _over_time(series: Series, ended_at: int) -> dict[str, list[float]]:
    """Up to the last outcome: what idles after it says nothing. The first look is before the first
    step, when no node has joined yet.
    """
    first = min(1, len(series.at) - 1)
    count = max(first + 1, sum(1 for at in series.at if at <= ended_at))
    size = -(-(count - first) // POINTS)
    found: dict[str, list[float]] = {
        "at_s": [], "waiting": [], "oldest_s": [], "utilisation": [], "nodes": [],
    }  # fmt: skip
    for begin in range(first, count, size):
        part = slice(begin, min(count, begin + size))
        slots = sum(series.slots[part])
        found["at_s"].append(round(series.at[begin] / SECOND, 3))
        found["waiting"].append(max(series.waiting[part]) + max(series.jobs[part]))
        found["oldest_s"].append(round(max(series.oldest[part]) / SECOND, 3))
        used = sum(series.in_flight[part]) / slots if slots else 0.0
        found["utilisation"].append(round(used, 4))
        found["nodes"].append(series.ready[part][-1])
    return found


def _latency(metrics: Metrics) -> dict[str, list[float]]:
    rows = metrics.rows
    good = [i for i in range(len(rows)) if rows.outcome[i] == _SUCCEEDED]
    return {
        "share": list(SHARES),
        "wait_s": _quantiles([rows.wait[i] for i in good]),
        "ttft_s": _quantiles([rows.first_output[i] for i in good if rows.first_output[i] >= 0]),
        "total_s": _quantiles([rows.total[i] for i in good]),
    }


def _quantiles(values: Sequence[int]) -> list[float]:
    ordered = sorted(values)
    return [round(quantile(ordered, share) / SECOND, 4) for share in SHARES] if ordered else []
