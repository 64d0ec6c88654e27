"""How did it go over the window, and for whom? Points for a plot, and a row per tenant."""

from __future__ import annotations

import heapq
from typing import Final

from batchyard.v1 import report_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.types import SECOND
from scheduler_service.report import histogram
from scheduler_service.report.statistics import Sample
from scheduler_service.report.window import Window
from scheduler_service.rpc import status

POINTS_MAX: Final = 120
TENANTS_MAX: Final = 100


def timeline(window: Window, clock: Clock) -> list[report_pb2.TimelinePoint]:
    """At most `POINTS_MAX` points; of samples that share one the longest queue."""
    first = (window.now - window.length) // SECOND
    step = max(1, -(-(window.length // SECOND + 1) // POINTS_MAX))
    chosen: dict[int, tuple[int, Sample]] = {}  # by point: second and sample
    for second, sample in window.seconds():
        place = (second - first) // step
        if place not in chosen or _waiting(sample) > _waiting(chosen[place][1]):
            chosen[place] = (second, sample)
    return [_point(second, sample, clock) for second, sample in chosen.values()][:POINTS_MAX]


def _waiting(sample: Sample) -> int:
    return sum(pool.waiting for pool in sample.pools.values())


def _point(second: int, sample: Sample, clock: Clock) -> report_pb2.TimelinePoint:
    oldest = max((pool.oldest_wait for pool in sample.pools.values()), default=0)
    return report_pb2.TimelinePoint(
        time=clock.timestamp(second * SECOND),
        waiting=_waiting(sample),
        oldest_wait=status.duration(oldest),
        running=sample.in_flight,
        slots=sample.slots,
    )


def tenant_stats(window: Window) -> list[report_pb2.TenantStats]:
    """Most dispatched first; requests without a tenant are in no row."""
    rows = [(sum(waits.values()), name) for name, waits in window.sums.tenants.items() if name]
    return [
        report_pb2.TenantStats(
            tenant=name,
            dispatched=number,
            wait_p50=status.duration(histogram.percentile(window.sums.tenants[name], 0.5) or 0),
            wait_p99=status.duration(histogram.percentile(window.sums.tenants[name], 0.99) or 0),
        )
        for number, name in heapq.nlargest(TENANTS_MAX, rows)
    ]
