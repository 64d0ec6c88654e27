"""Does a scheduler that works for long hold more and more?

Three hundred thousand requests through one live scheduler: most are whole answers, some stream,
some are cancelled, some ask for a model that nobody has, and now and then a stored job of a hundred
items runs beside them; somebody follows the events. Memory is read after each hundredth. In the
first seven tenths everything that has a bound is filled (answers that can be given again, up to
64 MB, are the largest: about 95,000 of these; their table is made larger once more after twice as
many). Growth is the median slope of the rest: what leaks grows all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from batchyard import AsyncClient
from batchyard.errors import BatchyardError
from batchyard.v1 import InferenceRequest, JobItem, TextInput
from benchmarks.bench import Bench
from benchmarks.measured import Measured
from benchmarks.measures.requests import OPTIONS, PROMPT
from benchmarks.processes import Child

MODEL = "steady"
REQUESTS, REQUESTS_QUICK = 300_000, 2_000
READINGS, FULL_AFTER = 100, 70
WIDTH = 128
EVERY, STREAMS, LEAVERS, LOST = 100, 5, 5, 1  # of each hundred requests; the others are plain
JOB_EVERY, JOB_ITEMS = 10, 100  # readings between jobs


async def measure(bench: Bench) -> list[Measured]:
    """The lines steady.*."""
    requests = REQUESTS_QUICK if bench.quick else REQUESTS
    async with contextlib.AsyncExitStack() as up:
        folder = up.enter_context(tempfile.TemporaryDirectory())
        # Figures are kept by the second: a short memory of them is soon full.
        settings = (f"state_dir={folder}", "report.window=5s", "report.memory=10s")
        scheduler = await up.enter_async_context(bench.fresh_scheduler(*settings))
        agent = bench.fresh_agent(scheduler, MODEL, slots=64, directives="false")
        await up.enter_async_context(agent)
        client = await up.enter_async_context(
            AsyncClient(scheduler.addresses["client"], admin_address=scheduler.addresses["admin"])
        )
        follower = asyncio.ensure_future(_follow(client))
        readings = await _serve(client, scheduler, requests)
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        left = (await client.admin.report()).queue_size
    rest = readings[FULL_AFTER:]
    each = max(0.0, _slope(rest) * READINGS / requests)
    detail: dict[str, float | int | str] = {
        "requests": requests,
        "at_the_end_mb": round(readings[-1] / 1e6, 1),
        "when_full_mb": round(rest[0] / 1e6, 1),
        "rss_mb": " ".join(f"{each / 1e6:.1f}" for each in readings[4::5]),  # each twentieth
        "left_in_queue": left,
    }
    return [Measured("steady.growth", [each], detail=detail)]


async def _serve(client: AsyncClient, scheduler: Child, requests: int) -> list[int]:
    """All requests, and the memory after each hundredth of them."""
    readings: list[int] = []
    for number in range(READINGS):
        if number % JOB_EVERY == 0:
            await _job(client)
        numbers = iter(range(requests // READINGS))
        await asyncio.gather(*(_caller(client, numbers) for _ in range(WIDTH)))
        readings.append(scheduler.rss_bytes())
    return readings


async def _caller(client: AsyncClient, numbers: Iterator[int]) -> None:
    """One of those who share the numbers."""
    for number in numbers:
        await _one(client, number)


async def _one(client: AsyncClient, number: int) -> None:
    kind = number % EVERY
    if kind < STREAMS:
        async with client.stream(PROMPT, model=MODEL, max_tokens=4) as stream:
            async for _ in stream:
                pass
    elif kind < STREAMS + LEAVERS:
        leaver = asyncio.ensure_future(client.generate(PROMPT, model=MODEL, **OPTIONS))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
    elif kind < STREAMS + LEAVERS + LOST:
        with contextlib.suppress(BatchyardError):
            await client.generate(PROMPT, model="nobody-has-it", **OPTIONS)
    else:
        await client.generate(PROMPT, model=MODEL, **OPTIONS)


async def _job(client: AsyncClient) -> None:
    items = [
        JobItem(request=InferenceRequest(model=MODEL, text=TextInput(prompt=PROMPT)))
        for _ in range(JOB_ITEMS)
    ]
    await client.jobs.create(items, ttl="1s")


async def _follow(client: AsyncClient) -> None:
    """Read events as they happen."""
    async for _ in client.admin.watch_events():
        pass


def _slope(values: Sequence[int]) -> float:
    """The median slope of all pairs (Theil and Sen), per value: one step moves it little."""
    numbered = list(enumerate(values))
    return median((b - a) / (n - m) for (m, a), (n, b) in combinations(numbered, 2))
