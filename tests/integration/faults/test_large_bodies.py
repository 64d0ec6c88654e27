"""Many large requests at one slow node: memory is bounded by bytes, and who is refused is told."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from batchyard import AsyncClient, Result
from batchyard.errors import Overloaded
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow

BODY = "x" * 50_000
COUNT = 3_000  # 150 MB
QUEUE_MB, GROWTH_MB = 5, 60  # what may wait; what it, gRPC's buffers and replays may cost in all


async def test_burst_of_large_requests_is_bounded_in_bytes_and_what_is_accepted_ends() -> None:
    """Behaviour 99: the queue takes what it may hold; all others are refused, with a hint."""
    async with cluster(settings=(f"queue.max_bytes={QUEUE_MB}MB",)) as running:
        await running.agent("a", "slots=1", "latency=1ms")
        await running.client.generate(BODY, model="m", max_tokens=1)
        scheduler = psutil.Process(running.scheduler.pid)
        before, most = scheduler.memory_info().rss, 0
        async with AsyncClient(running.addresses["client"], retries=0) as client:
            holder = asyncio.create_task(client.generate("[[sleep=60s]]", model="m"))
            await until(lambda: _runs(running))

            async def one() -> Result | Overloaded:
                try:
                    return await client.generate(BODY, model="m", max_tokens=1)
                except Overloaded as refused:
                    return refused

            calls = [asyncio.create_task(one()) for _ in range(COUNT)]
            room = QUEUE_MB * 1_000_000 // len(BODY)

            async def refused() -> bool:
                nonlocal most
                most = max(most, scheduler.memory_info().rss)
                return sum(call.done() for call in calls) >= COUNT - room

            await until(refused, within_s=60)
            holder.cancel()
            ends = await asyncio.gather(*calls)
        accepted = [end for end in ends if isinstance(end, Result)]
        refusals = [end for end in ends if isinstance(end, Overloaded)]
        assert room * 0.9 < len(accepted) <= room
        assert all(end.reason == "QUEUE_FULL" and end.retry_after for end in refusals)
        assert most - before < GROWTH_MB * 1_000_000
        await until(running.idle)


async def _runs(running: Cluster) -> bool:
    return bool((await running.report()).nodes[0].running)
