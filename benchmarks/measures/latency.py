"""How long does a request take at half load, with an engine that takes no time at all?

Half load is half of what `multiplex` reaches on this machine, sent at random moments through the
Python client, whether answers come or not. All of it is added latency: client, scheduler, agent
and back. The echo server gets the same arrivals, packed by the same rule.
"""

from __future__ import annotations

import asyncio
import time

from batchyard import AsyncClient
from benchmarks.bench import INSTANT, Bench
from benchmarks.echo_load import PackedEcho, channel
from benchmarks.loads import open_loop
from benchmarks.measured import Measured
from benchmarks.measures.multiplex import through
from benchmarks.measures.requests import OPTIONS, PROMPT, packed_bytes


async def measure(bench: Bench) -> list[Measured]:
    """The lines latency.*."""
    scheduler, echo = await bench.scheduler(INSTANT), await bench.echo()
    seen: list[list[float]] = []
    limit: list[list[float]] = []
    async with AsyncClient(scheduler.addresses["client"]) as client, channel(echo) as opened:
        rate = await _full_rate(client, bench.round_s) / 2
        packed = PackedEcho(opened, packed_bytes(INSTANT))

        def ask() -> asyncio.Future[object]:
            call = client.generate(PROMPT, model=INSTANT, **OPTIONS)
            return asyncio.ensure_future(call)

        for seed in range(bench.rounds):
            turns = ((ask, seen), (packed.send, limit))
            for send, into in turns if seed % 2 == 0 else turns[::-1]:
                into.append(await open_loop(send, rate=rate, seconds=bench.round_s, seed=seed))
        await packed.close()
    detail: dict[str, float | int | str] = {"requests_per_s": round(rate)}
    return [
        Measured(f"latency.p{share}", _quantile_ms(seen, share), _quantile_ms(limit, share), detail)
        for share in (50, 99)
    ]


async def _full_rate(client: AsyncClient, seconds: float) -> float:
    """What the client gets done when nothing holds it back."""
    await through(client, seconds / 5)
    began = time.perf_counter()
    count = await through(client, seconds)
    return count / (time.perf_counter() - began)


def _quantile_ms(rounds: list[list[float]], share: int) -> list[float]:
    """The latency that so many per cent of each round stay below."""
    return [sorted(r)[min(len(r) - 1, len(r) * share // 100)] * 1e3 for r in rounds]
