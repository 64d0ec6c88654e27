"""Queues as tables."""

from __future__ import annotations

from batchyard.cli.columns import Column, Document, duration, number, rate

LIST_COLUMNS = (
    Column("pool", "POOL", cut=True),
    Column("model", "MODEL", cut=True),
    number("priority", "PRIO"),
    Column("request_class", "CLASS"),
    number("depth", "DEPTH"),
    duration("oldest_wait_ms", "OLDEST"),
    rate("arrivals_per_second", "IN/S"),
    rate("departures_per_second", "OUT/S"),
    duration("wait_p50_ms", "P50"),
    duration("wait_p99_ms", "P99"),
    Column("tenant", "TENANT", cut=True, wide=True),
)


def _frozen(row: Document) -> str | None:
    scale = row["scale"]
    if scale is None:
        return None
    return "yes" if scale["frozen"] else "no"


POOL_COLUMNS = (
    Column("pool", "POOL", cut=True),
    Column("paused", "PAUSED"),
    number("running", "RUN"),
    number("slots", "SLOTS"),
    Column("scale", "FROZEN", pick=_frozen),
)
