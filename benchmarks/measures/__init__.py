"""What is measured, by name: each takes the run's `Bench` and returns its lines, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from benchmarks.bench import Bench
from benchmarks.measured import Measured
from benchmarks.measures import (
    batches,
    core,
    jobs,
    latency,
    memory,
    multiplex,
    overload,
    security,
    start,
    steady,
    tokens,
    tracing,
    unary,
)

ALL: Final[Mapping[str, Callable[[Bench], Awaitable[list[Measured]]]]] = {
    "multiplex": multiplex.measure,
    "unary": unary.measure,
    "tokens": tokens.measure_packed,
    "deltas": tokens.measure_single,
    "latency": latency.measure,
    "batches": batches.measure,
    "security": security.measure,
    "tracing": tracing.measure,
    "memory": memory.measure,
    "steady": steady.measure,
    "jobs": jobs.measure,
    "overload": overload.measure,
    "start": start.measure,
    "core": core.measure,
}
