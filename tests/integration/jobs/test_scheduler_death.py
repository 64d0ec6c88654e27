"""A scheduler dies in the middle of a job: nothing is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchyard.v1 import JobItem, JobState
from tests.integration.jobs.job_world import JobWorld, check_each_once, item, job_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def test_killed_scheduler_loses_no_item_and_repeats_no_result(tmp_path: Path) -> None:
    """Behaviours 125, 131: killed again and again while it works, and while it recovers."""
    moments = random.Random(4)
    async with job_world(tmp_path / "state") as world:
        await world.fleet("n1", "n2", options=("slots=8", "latency_per_token=2500us"))
        job = await world.create("night", 400)
        assert job.counts.total == 400
        stored = 0
        for goal in (30, 120, 200):
            await world.until_finished("night", goal + moments.randrange(20))
            before = await world.results("night")
            assert len(before) >= stored
            stored = len(before)
            await world.restart(signal.SIGKILL)
            after = await world.results("night")
            kept = {(r.index, r.result.SerializeToString(deterministic=True)) for r in after}
            told = {(r.index, r.result.SerializeToString(deterministic=True)) for r in before}
            assert told <= kept, "a result that was told is gone or another"
        done = await world.until_done("night")
        assert done.state == JobState.JOB_STATE_SUCCEEDED
        assert done.counts.succeeded == 400
        check_each_once(await world.results("night"), 400)
        await long_input_goes_on(world)


async def long_input_goes_on(world: JobWorld) -> None:
    """The scheduler dies between two parts of a job's input: the client sends the rest to the next
    one. Nobody could name the job to it again: its id was the client's.
    """
    dead = asyncio.Event()

    def items() -> Iterator[JobItem]:
        for n in range(10_002):  # three parts; the last is made when the first is stored
            if n == 10_001:
                world.scheduler.signal(signal.SIGKILL)
                dead.set()
            yield item(f"i {n}", custom_id=f"c{n}")

    creating = asyncio.create_task(world.client.jobs.create(items()))
    await dead.wait()
    await world.restart(signal.SIGKILL, keep_client=True)
    job = await asyncio.wait_for(creating, 60)
    assert job.counts.total == 10_002
    assert job.state == JobState.JOB_STATE_PENDING
    await world.client.jobs.cancel(job.job_id)
