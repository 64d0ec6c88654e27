"""How much memory does an idle scheduler hold, and how much more for each request that waits?

A fresh scheduler, and an agent whose engine accepts and never answers. The first fifth is queued to
warm everything up; the cost of a request is the growth from there to the end, by the number. The
list of recent events is kept short, for it grows with requests only until it is full.
"""

from __future__ import annotations

import asyncio
import contextlib

from batchyard import AsyncClient, Result
from benchmarks.bench import Bench
from benchmarks.measured import Measured
from benchmarks.measures.requests import OPTIONS, PROMPT, packed_bytes

MODEL = "stalled"
QUEUED, QUEUED_QUICK = 10_000, 1_000
LIMIT = 2 * QUEUED
OPTIONS_STALLED = {**OPTIONS, "timeout": "600s"}


async def measure(bench: Bench) -> list[Measured]:
    """The lines memory.*."""
    queued = QUEUED_QUICK if bench.quick else QUEUED
    settings = (
        f"queue.max_requests={LIMIT}",
        f"limits.max_outstanding={LIMIT}",
        "report.events=100",  # a ring that each request would fill further, up to its bound
    )
    async with contextlib.AsyncExitStack() as up:
        scheduler = await up.enter_async_context(bench.fresh_scheduler(*settings))
        await up.enter_async_context(bench.fresh_agent(scheduler, MODEL, slots=1, stalled="true"))
        idle = scheduler.rss_bytes()
        client = await up.enter_async_context(
            AsyncClient(scheduler.addresses["client"], admin_address=scheduler.addresses["admin"])
        )
        calls = await _queue(client, queued // 5)
        warm = scheduler.rss_bytes()
        calls += await _queue(client, queued)
        full = scheduler.rss_bytes()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    each = (full - warm) / (queued - queued // 5)
    detail: dict[str, float | int | str] = {
        "queued": queued,
        "request_bytes": len(packed_bytes(MODEL)),
        "all_queued_mb": round(full / 1e6, 1),
    }
    return [
        Measured("memory.idle", [idle / 1e6]),
        Measured("memory.queued", [each], detail=detail),
    ]


async def _queue(client: AsyncClient, until: int) -> list[asyncio.Task[Result]]:
    """Send requests until so many wait; returns the new calls."""
    waiting = (await client.admin.report()).queue_size
    # The very first one is not queued: it takes the slot.
    missing = until - waiting + (1 if waiting == 0 else 0)
    calls = [
        asyncio.ensure_future(client.generate(PROMPT, model=MODEL, **OPTIONS_STALLED))
        for _ in range(missing)
    ]
    while waiting < until:
        done = [call for call in calls if call.done()]
        if done:
            await done[0]
            raise RuntimeError("a stalled engine answered")
        await asyncio.sleep(0.05)
        waiting = (await client.admin.report()).queue_size
    return calls
