"""What does the scheduling core cost by itself? In a fresh process, on a core of its own."""

from __future__ import annotations

import json

from benchmarks.bench import Bench
from benchmarks.measured import Measured
from benchmarks.processes import child

PARTS = ("timer", "queue", "relay", "record", "objects")


async def measure(bench: Bench) -> list[Measured]:
    """The lines core.*."""
    size = ["--requests=2000", "--waiting=5000"] if bench.quick else []
    samples: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        async with child("benchmarks.core_costs", *size, cores=bench.cores.subject) as done:
            for name, cost in json.loads(done.ready).items():
                samples.setdefault(name, []).append(cost)
    few = ["--requests=500"] if bench.quick else ["--requests=5000"]
    async with child("benchmarks.core_costs", "--curves", *few, cores=bench.cores.subject) as done:
        curves: dict[str, float] = json.loads(done.ready)
    whole = [1e6 / 30_000] * bench.rounds
    return [
        Measured("core.request", samples["request"], whole, dict(curves)),
        Measured("core.request_32_nodes", samples["request_32_nodes"], samples["request"]),
        Measured("core.request_100k_queued", samples["request_long"], samples["request_short"]),
        *(Measured(f"core.{n}", samples[n]) for n in PARTS),
    ]
