"""How full are the batches of a static engine, and how long are the gaps between them?

A model that takes 20 ms for any batch of up to 32 can do 1,600 requests a second; 256 wait at any
time. Without look-ahead the agent gets the next batch when one has ended, so each gap is a round
trip, for which processors have to wake up; in turns with that it is measured with processors that
are kept awake. With a look-ahead of one batch the next batch waits at the engine.
"""

from __future__ import annotations

import time

from batchyard import AsyncClient
from benchmarks.awake import kept_awake
from benchmarks.bench import AHEAD, BATCH, BATCH_S, STATIC, Bench
from benchmarks.loads import closed_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import OPTIONS, PROMPT

WIDTH = 256


async def measure(bench: Bench) -> list[Measured]:
    """The lines batches.*."""
    scheduler = await bench.scheduler(STATIC, AHEAD)
    rounds: dict[str, list[tuple[float, float]]] = {"": [], "_awake": [], "_ahead": []}
    async with AsyncClient(scheduler.addresses["client"]) as client:
        for model in (STATIC, AHEAD):
            await _round(client, model, bench.round_s / 5)
        for _ in range(bench.rounds):
            rounds[""].append(await _round(client, STATIC, bench.round_s))
            with kept_awake() as awake:
                if awake:
                    rounds["_awake"].append(await _round(client, STATIC, bench.round_s))
            rounds["_ahead"].append(await _round(client, AHEAD, bench.round_s))
    lines: list[Measured] = []
    for suffix, measured in rounds.items():
        limits = [float(BATCH)] * len(measured), [BATCH / BATCH_S] * len(measured)
        if measured and suffix != "_awake":
            fills = [fill for fill, _ in measured]
            lines.append(Measured(f"batches.fill{suffix}", fills, limits[0]))
        if measured:
            rates = [rate for _, rate in measured]
            lines.append(Measured(f"batches.rate{suffix}", rates, limits[1]))
    return lines


async def _round(client: AsyncClient, model: str, seconds: float) -> tuple[float, float]:
    """Mean batch size, and requests a second between the ends of the first and last batch."""
    batches: dict[str, float] = {}  # when the last answer of each came

    async def send() -> None:
        result = await client.generate(PROMPT, model=model, **OPTIONS)
        batches[result.proto.attempts[-1].batch_id] = time.perf_counter()

    count = await closed_loop(send, width=WIDTH, seconds=seconds)
    fill = count / len(batches)
    first, *_, last = sorted(batches.values())
    return fill, (count - fill) / (last - first)
