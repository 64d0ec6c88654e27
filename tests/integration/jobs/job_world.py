"""A scheduler that keeps jobs, its agents, and their ends: for tests of real processes.

The scheduler can be killed and started anew with the same state folder and the same ports, so that
agents find it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from batchyard import AsyncClient
from batchyard.v1 import (
    CreateJobRequest,
    GetJobRequest,
    InferenceRequest,
    Job,
    JobInput,
    JobItem,
    JobResult,
    JobState,
    ListJobResultsRequest,
    TextInput,
)
from batchyard.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tests.integration.cluster import Cluster, Process, until

DONE = (
    JobState.JOB_STATE_SUCCEEDED,
    JobState.JOB_STATE_PARTIALLY_SUCCEEDED,
    JobState.JOB_STATE_FAILED,
    JobState.JOB_STATE_CANCELLED,
    JobState.JOB_STATE_EXPIRED,
)


def item(prompt: str, **fields: Any) -> JobItem:
    """An item for model m."""
    custom_id = fields.pop("custom_id", "")
    request = InferenceRequest(model="m", text=TextInput(prompt=prompt), **fields)
    return JobItem(custom_id=custom_id, request=request)


class JobWorld(Cluster):
    """A cluster whose scheduler keeps jobs."""

    folder: Path
    options: Sequence[str]
    past: list[Process]
    channel: grpc.aio.Channel

    @classmethod
    async def begin(cls, folder: Path, settings: Sequence[str]) -> JobWorld:
        """Start a scheduler with this state folder."""
        options = [f"state_dir={folder}", *settings]
        world = await cls.start(settings=options)
        assert isinstance(world, JobWorld)
        world.folder, world.options, world.past = folder, options, []
        world.channel = grpc.aio.insecure_channel(world.addresses["client"])
        return world

    @property
    def rpc(self) -> SchedulerServiceStub:
        """The service as its protocol has it."""
        return SchedulerServiceStub(self.channel)

    async def create(
        self, job_id: str, count: int, *, prompt: str = "item {}", **fields: Any
    ) -> Job:
        """A job of so many items."""
        items = [item(prompt.format(n), **fields) for n in range(count)]
        request = CreateJobRequest(job_id=job_id, input=JobInput(items=items))
        return (await self.rpc.CreateJob(request)).job

    async def job(self, job_id: str) -> Job:
        return (await self.rpc.GetJob(GetJobRequest(job_id=job_id))).job

    async def results(self, job_id: str, page_size: int = 200) -> list[JobResult]:
        found: list[JobResult] = []
        request = ListJobResultsRequest(job_id=job_id, page_size=page_size)
        while True:
            page = await self.rpc.ListJobResults(request)
            found.extend(page.results)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def until_done(self, job_id: str, within_s: float = 60.0) -> Job:
        await until(lambda: self._is_done(job_id), within_s=within_s, what=f"{job_id} done")
        return await self.job(job_id)

    async def _is_done(self, job_id: str) -> bool:
        return (await self.job(job_id)).state in DONE

    async def until_finished(self, job_id: str, items: int, within_s: float = 30.0) -> None:
        """Until so many items have their result."""

        async def reached() -> bool:
            counts = (await self.job(job_id)).counts
            return counts.total - counts.pending - counts.running >= items

        await until(reached, within_s=within_s, what=f"{items} items of {job_id}")

    async def create_typed(self, job_id: str, count: int) -> Job:
        """Likewise through the client library, whose errors are typed."""
        return await self.client.jobs.create([item(f"i {n}") for n in range(count)], job_id=job_id)

    async def restart(
        self, number: signal.Signals = signal.SIGKILL, *, keep_client: bool = False
    ) -> None:
        """End the scheduler by a signal, and start it anew: same folder, same ports."""
        self.scheduler.signal(number)
        await asyncio.wait_for(self.scheduler.process.wait(), 30)
        self.past.append(self.scheduler)
        await self.channel.close()
        ports = [
            f"--{kind}-port={self.addresses[kind].rpartition(':')[2]}"
            for kind in ("client", "node", "admin", "http")
        ]
        arguments = [a for s in self.options for a in ("--set", s)]
        self.scheduler = await Process.start("scheduler", "scheduler_service", *ports, *arguments)
        self.addresses = await self.scheduler.until_ready()
        self.channel = grpc.aio.insecure_channel(self.addresses["client"])
        if keep_client:
            return
        await self.client.close()
        addresses = self.addresses
        self.client = AsyncClient(addresses["client"], admin_address=addresses["admin"])

    async def close(self) -> None:
        await self.channel.close()
        await super().close()
        bad = [line for p in self.past for line in p.lines if "Traceback" in line]
        assert not bad, bad


@contextlib.asynccontextmanager
async def job_world(folder: Path, *settings: str) -> AsyncIterator[JobWorld]:
    """A running one, closed and checked at the end."""
    world = await JobWorld.begin(folder, settings)
    try:
        yield world
    finally:
        await world.close()


def check_each_once(results: Sequence[JobResult], count: int) -> None:
    """Every item has exactly one result."""
    indexes = Counter(result.index for result in results)
    twice = [index for index, times in indexes.items() if times > 1]
    lost = sorted(set(range(count)) - set(indexes))
    assert not twice, f"results given twice: {twice}"
    assert not lost, f"items without a result: {lost}"
    assert len(indexes) == count, json.dumps(sorted(indexes))
