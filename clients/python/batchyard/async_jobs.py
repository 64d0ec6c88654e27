"""Stored work, for asyncio: `client.jobs`. `jobs.py` has its twin for code without an event loop.

    job = await client.jobs.create_from_file("in.jsonl")
    await client.jobs.wait(job.job_id)
    async for result in client.jobs.results(job.job_id):
        print(result.custom_id, result.result.outputs[0].text)

Answers are the raw messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, Unpack

from batchyard import tracing
from batchyard.channel import MESSAGE_BYTES_MAX, Metadata
from batchyard.durations import Duration, parse_duration, write_duration
from batchyard.errors import BatchyardError, InvalidRequest, Unavailable
from batchyard.rpc import call_stream, call_unary
from batchyard.v1 import (
    AppendJobRequest,
    CancelJobRequest,
    CreateJobRequest,
    GetJobRequest,
    InferenceRequest,
    Job,
    JobItem,
    JobResult,
    JobState,
    ListJobResultsRequest,
    ListJobsRequest,
    WatchJobRequest,
    WatchJobResponse,
)

__all__ = ["FINISHED", "AsyncJobs", "JobOptions"]

FINISHED = frozenset(
    {
        JobState.JOB_STATE_SUCCEEDED,
        JobState.JOB_STATE_PARTIALLY_SUCCEEDED,
        JobState.JOB_STATE_FAILED,
        JobState.JOB_STATE_CANCELLED,
        JobState.JOB_STATE_EXPIRED,
    }
)
_PART_BYTES = 2 << 20  # of input in one message
_PART_ITEMS = 5_000
_ITEM_BYTES_MAX = MESSAGE_BYTES_MAX - (64 << 10)  # what cannot be sent, whatever the server takes
_STORE_S = 120.0  # to check and store a part
_TRIES = 4
_PAUSE_S = 0.5  # before a watch is resumed
_BACK_S = 60.0  # in which a lost scheduler must be back


class JobOptions(TypedDict, total=False):
    """What `create` and `create_from_file` take by keyword."""

    job_id: str
    """The same id with the same items is the same job: after a failure, give it again. Empty: a
    new one."""
    defaults: InferenceRequest | None
    """Fill what items leave unset."""
    completion_window: Duration | None
    """Ends what has not finished by then."""
    ttl: Duration | None
    """How long the job is kept after its end."""
    labels: Mapping[str, str] | None
    tenant: str | None
    """Absent or None: the client's."""


class AsyncJobs:
    """The jobs of one client. A job is stored when `create` returns."""

    def __init__(
        self, stub: Callable[[], Any], metadata: Metadata, address: str, tenant: str
    ) -> None:
        """For AsyncClient, which makes it."""
        self._stub = stub
        self._metadata = metadata
        self._address = address
        self._tenant = tenant

    async def create(
        self, items: Iterable[JobItem | InferenceRequest], **options: Unpack[JobOptions]
    ) -> Job:
        """Stores a job of these items, in several messages where they are many."""
        return await self._send(self._creation(**options), _item_parts(items))

    async def create_from_file(
        self, file: str | os.PathLike[str] | BinaryIO, **options: Unpack[JobOptions]
    ) -> Job:
        """Stores a job from JSON lines: JobItems, or OpenAI's batch format. As `create`."""
        return await self._send(self._creation(**options), _line_parts(_lines(file)))

    def _creation(
        self,
        *,
        job_id: str = "",
        defaults: InferenceRequest | None = None,
        completion_window: Duration | None = None,
        ttl: Duration | None = None,
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
    ) -> CreateJobRequest:
        request = CreateJobRequest(
            job_id=job_id or f"j-{os.urandom(12).hex()}", tenant=self._of(tenant), labels=labels
        )
        if defaults is not None:
            request.defaults.CopyFrom(defaults)
        if completion_window is not None:
            seconds = parse_duration(completion_window, "completion_window")
            write_duration(request.completion_window, seconds)
        if ttl is not None:
            write_duration(request.ttl, parse_duration(ttl, "ttl"))
        return request

    async def _send(self, request: CreateJobRequest, parts: Iterator[tuple[Any, int]]) -> Job:
        """The first part creates, the others are appended; the last one makes it run."""
        part, count = next(parts, (None, 0))
        if part is None:
            raise InvalidRequest("a job has at least one item", field="items")
        following = next(parts, None)
        _put(request.input, part)
        request.more = following is not None
        job: Job = (await self._call("CreateJob", request)).job
        sent = count
        while following is not None:
            part, count = following
            following = next(parts, None)
            more = AppendJobRequest(
                job_id=job.job_id,
                tenant=request.tenant,
                start_index=sent,
                last=following is None,
            )
            _put(more.input, part)
            job = await self._append(more)
            sent += count
        return job

    async def _append(self, request: AppendJobRequest) -> Job:
        """One part; again where the scheduler restarts meanwhile, if it is back within a minute."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _BACK_S
        while True:
            try:
                job: Job = (await self._call("AppendJob", request)).job
            except Unavailable:
                if loop.time() > until:
                    raise
            else:
                return job
            await asyncio.sleep(_PAUSE_S)

    async def get(self, job_id: str, *, tenant: str | None = None) -> Job:
        """The job as it is now."""
        request = GetJobRequest(job_id=job_id, tenant=self._of(tenant))
        job: Job = (await self._call("GetJob", request)).job
        return job

    async def list(
        self,
        *,
        states: Iterable[JobState] = (),
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[Job]:
        """All jobs, the newest first, page by page."""
        request = ListJobsRequest(
            page_size=page_size, tenant=self._of(tenant), states=states, labels=labels
        )
        while True:
            page = await self._call("ListJobs", request)
            for job in page.jobs:
                yield job
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def results(
        self,
        job_id: str,
        *,
        not_succeeded: bool = False,
        tenant: str | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[JobResult]:
        """The results so far, in the order in which they came, page by page."""
        request = ListJobResultsRequest(
            job_id=job_id,
            tenant=self._of(tenant),
            page_size=page_size,
            not_succeeded=not_succeeded,
        )
        while True:
            page = await self._call("ListJobResults", request)
            for result in page.results:
                yield result
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(
        self, job_id: str, *, results: bool = False, tenant: str | None = None
    ) -> AsyncIterator[WatchJobResponse]:
        """The state now, then each change, until it is terminal; `results`: each result, too, once.

        Goes on by itself after a restart of the scheduler, if it is back within a minute.
        """
        request = WatchJobRequest(job_id=job_id, tenant=self._of(tenant), results=results)
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while True:
            try:
                method = self._stub().WatchJob
                async for change in call_stream(method, request, self._metadata, self._address):
                    request.resume_token = change.resume_token
                    heard_at = loop.time()
                    yield change
            except Unavailable:
                if loop.time() - heard_at > _BACK_S:
                    raise
            else:
                return
            await asyncio.sleep(_PAUSE_S)

    async def wait(self, job_id: str, *, tenant: str | None = None) -> Job:
        """Waits until its state is terminal; returns it then."""
        async for change in self.watch(job_id, tenant=tenant):
            if change.job.state in FINISHED:
                return change.job
        return await self.get(job_id, tenant=tenant)

    async def cancel(self, job_id: str, *, reason: str = "", tenant: str | None = None) -> Job:
        """Starts nothing more of it, and stops what runs; what has finished is kept."""
        request = CancelJobRequest(job_id=job_id, tenant=self._of(tenant), reason=reason)
        job: Job = (await self._call("CancelJob", request)).job
        return job

    def _of(self, tenant: str | None) -> str:
        return self._tenant if tenant is None else tenant

    async def _call(self, name: str, request: Any) -> Any:
        """One RPC, again where the server says so: each of them may be repeated."""
        metadata = (*self._metadata, *tracing.current_metadata())
        for attempt in range(1, _TRIES + 1):
            try:
                method = getattr(self._stub(), name)
                return await call_unary(
                    method, request, metadata, self._address, timeout_s=_STORE_S
                )
            except BatchyardError as error:
                if error.retry_after is None or attempt == _TRIES:
                    raise
                await asyncio.sleep(max(error.retry_after, 0.1 * 2**attempt))
        raise AssertionError("unreachable")


def _put(target: Any, part: bytes | list[JobItem]) -> None:
    if isinstance(part, bytes):
        target.json_lines = part
    else:
        target.items.extend(part)


def _item_parts(
    items: Iterable[JobItem | InferenceRequest],
) -> Iterator[tuple[list[JobItem], int]]:
    part: list[JobItem] = []
    size = 0
    for index, given in enumerate(items):
        item = given if isinstance(given, JobItem) else JobItem(request=given)
        _check_size(item.ByteSize(), f"input.items[{index}]")
        if part and (size + item.ByteSize() > _PART_BYTES or len(part) == _PART_ITEMS):
            yield part, len(part)
            part, size = [], 0
        part.append(item)
        size += item.ByteSize()
    if part:
        yield part, len(part)


def _check_size(size: int, field: str) -> None:
    if size > _ITEM_BYTES_MAX:
        raise InvalidRequest(
            f"it has {size} bytes; no message holds more than {_ITEM_BYTES_MAX}", field=field
        )


def _lines(file: str | os.PathLike[str] | BinaryIO) -> Iterator[bytes]:
    if isinstance(file, str | os.PathLike):
        with Path(file).open("rb") as opened:
            yield from opened
    else:
        yield from file


def _line_parts(lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    part: list[bytes] = []
    size = sent = 0
    for line in lines:
        if not line.strip():
            continue
        sent += 1
        _check_size(len(line), f"input.json_lines[{sent}]")
        if part and (size + len(line) > _PART_BYTES or len(part) == _PART_ITEMS):
            yield b"".join(part), len(part)
            part, size = [], 0
        part.append(line if line.endswith(b"\n") else line + b"\n")
        size += len(line)
    if part:
        yield b"".join(part), len(part)
