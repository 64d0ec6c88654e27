"""Stored work, for code without an event loop: `client.jobs`; `async_jobs.py` is for code with one.

job = client.jobs.create_from_file("in.jsonl")
client.jobs.wait(job.job_id)
for result in client.jobs.results(job.job_id):
    print(result.custom_id, result.result.outputs[0].text)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, Unpack

from batchyard.async_jobs import AsyncJobs, JobOptions
from batchyard.background import BackgroundLoop, SyncIterator
from batchyard.v1 import InferenceRequest, Job, JobItem, JobResult, JobState, WatchJobResponse

__all__ = ["Jobs"]


class Jobs:
    """The jobs of one client. The methods are those of AsyncJobs."""

    def __init__(self, core: AsyncJobs, loop: BackgroundLoop) -> None:
        """For Client, which makes it."""
        self._core = core
        self._loop = loop

    def create(
        self, items: Iterable[JobItem | InferenceRequest], **options: Unpack[JobOptions]
    ) -> Job:
        """Stores a job of these items, in several messages where they are many."""
        return self._loop.run(self._core.create(items, **options))

    def create_from_file(
        self, file: str | os.PathLike[str] | BinaryIO, **options: Unpack[JobOptions]
    ) -> Job:
        """Stores a job from JSON lines: JobItems, or OpenAI's batch format. As `create`."""
        return self._loop.run(self._core.create_from_file(file, **options))

    def get(self, job_id: str, *, tenant: str | None = None) -> Job:
        """The job as it is now."""
        return self._loop.run(self._core.get(job_id, tenant=tenant))

    def list(
        self,
        *,
        states: Iterable[JobState] = (),
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
        page_size: int = 0,
    ) -> Iterator[Job]:
        """All jobs, the newest first, page by page."""
        source = self._core.list(states=states, labels=labels, tenant=tenant, page_size=page_size)
        return SyncIterator(self._loop, source)

    def results(
        self,
        job_id: str,
        *,
        not_succeeded: bool = False,
        tenant: str | None = None,
        page_size: int = 0,
    ) -> Iterator[JobResult]:
        """The results so far, in the order in which they came, page by page."""
        source = self._core.results(
            job_id, not_succeeded=not_succeeded, tenant=tenant, page_size=page_size
        )
        return SyncIterator(self._loop, source)

    def watch(
        self, job_id: str, *, results: bool = False, tenant: str | None = None
    ) -> Iterator[WatchJobResponse]:
        """The state now, then each change, until it is terminal; `results`: each result, too."""
        return SyncIterator(self._loop, self._core.watch(job_id, results=results, tenant=tenant))

    def wait(self, job_id: str, *, tenant: str | None = None) -> Job:
        """Waits until its state is terminal; returns it then."""
        return self._loop.run(self._core.wait(job_id, tenant=tenant))

    def cancel(self, job_id: str, *, reason: str = "", tenant: str | None = None) -> Job:
        """Starts nothing more of it, and stops what runs; what has finished is kept."""
        return self._loop.run(self._core.cancel(job_id, reason=reason, tenant=tenant))
