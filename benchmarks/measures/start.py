"""How long does a scheduler take from the start of its process to its ready line?"""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.measured import Measured
from benchmarks.processes import child


async def measure(bench: Bench) -> list[Measured]:
    """The line start.cold. After a first start, not counted, the system has its files in memory."""
    seen: list[float] = []
    limit: list[float] = []
    for number in range(bench.rounds + (not bench.quick)):
        async with bench.fresh_scheduler() as scheduler:
            seen.append(scheduler.start_s)
        async with child("benchmarks.echo_server", cores=bench.cores.subject) as echo:
            limit.append(echo.start_s)
        if number == 0 and not bench.quick:
            seen.clear()
            limit.clear()
    return [Measured("start.cold", seen, limit)]
