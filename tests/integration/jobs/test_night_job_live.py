"""A night job against chat, with the live service: items fill the slots, calls still start soon."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.integration.jobs.job_world import job_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SLOTS = 8
CALLS = 20
RATE = 4.0  # calls a second
MOST_S = 2.0  # that nearly all of them may wait


async def test_calls_start_soon_though_a_job_fills_every_slot(tmp_path: Path) -> None:
    draw = Random(3)
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", f"slots={SLOTS}", "latency_per_token=62ms")
        await world.create("night", 120)
        await world.until_finished("night", SLOTS)

        async def call(number: int) -> float:
            answer = await world.client.generate(f"call {number}", model="m", priority=10)
            assert answer.timings.queue is not None
            return answer.timings.queue.total_seconds()

        calls = []
        for number in range(CALLS):
            calls.append(asyncio.create_task(call(number)))
            await asyncio.sleep(draw.expovariate(RATE))
        waits = sorted(await asyncio.gather(*calls))
        assert waits[-1] <= MOST_S, f"waits of calls: {waits}"
        counts = (await world.job("night")).counts
        finished = counts.succeeded
        assert finished >= 3 * SLOTS, f"the job got on: {counts}"
        assert counts.failed == counts.cancelled == counts.expired == 0
        await world.client.jobs.cancel("night")
        assert (await world.until_done("night")).counts.succeeded >= finished
