"""Load: so many at a time, or so many a second whatever comes back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

TICK_S = 0.002


async def closed_loop(send: Callable[[], Awaitable[object]], *, width: int, seconds: float) -> int:
    """Keep `width` calls open for that long, then let them end; how many there were."""
    end = time.perf_counter() + seconds

    async def caller() -> int:
        count = 0
        while count == 0 or time.perf_counter() < end:
            await send()
            count += 1
        return count

    return sum(await asyncio.gather(*(caller() for _ in range(width))))


async def paced_loop(
    send: Callable[[], Awaitable[object]], *, rate: float, width: int, seconds: float, seed: int
) -> int:
    """Send at random, `rate` a second on average, but never more than `width` at once: what cannot
    keep up gets less. How many were answered.
    """
    draw = random.Random(seed)
    room, count = asyncio.Semaphore(width), 0
    calls: set[asyncio.Task[None]] = set()

    async def caller() -> None:
        nonlocal count
        try:
            await send()
            count += 1
        finally:
            room.release()

    end = (due := time.perf_counter()) + seconds
    while (due := max(due + draw.expovariate(rate), time.perf_counter() - TICK_S)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await room.acquire()
        task = asyncio.ensure_future(caller())
        calls.add(task)
        task.add_done_callback(calls.discard)
    while calls:
        await asyncio.gather(*calls)
    return count


async def open_loop(
    send: Callable[[], Awaitable[object]], *, rate: float, seconds: float, seed: int
) -> list[float]:
    """Send at random, `rate` a second on average, whether answers come or not.

    Returns:
        Seconds from each sending to its answer. All that fall into one tick of 2 ms are sent at
        its start, for the loop's timers are no finer; what waits for the load's own core counts.
    """
    draw = random.Random(seed)
    latencies: list[float] = []
    open_calls: set[asyncio.Task[None]] = set()

    async def caller(began: float) -> None:
        await send()
        latencies.append(time.perf_counter() - began)

    start = time.perf_counter()
    due = start + draw.expovariate(rate)
    tick = start
    while tick < start + seconds:
        tick += TICK_S
        await asyncio.sleep(max(0.0, tick - time.perf_counter()))
        now = time.perf_counter()
        while due <= tick:
            task = asyncio.ensure_future(caller(now))
            open_calls.add(task)
            task.add_done_callback(open_calls.discard)
            due += draw.expovariate(rate)
    while open_calls:
        await asyncio.gather(*open_calls)
    return latencies
