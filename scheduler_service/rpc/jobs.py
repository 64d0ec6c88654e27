"""What can be asked about jobs? The RPCs of SchedulerService for stored work.

A job is answered for only when it is stored. Callers see the jobs of their tenants, and learn
nothing of others, not even that they are there.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final, TypeVar

from google.protobuf.message import Message

from batchyard.v1 import inference_pb2, scheduler_service_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import SECOND
from scheduler_service.jobs.intake import ItemIntake, check_defaults
from scheduler_service.jobs.keeper import JobKeeper
from scheduler_service.jobs.kept import JobState, NewJob, StoredJob
from scheduler_service.jobs.store import (
    CustomIdTaken,
    InputGap,
    JobConflict,
    JobIdTaken,
    JobQuery,
    NotReceiving,
    StoreFailed,
)
from scheduler_service.rpc import paging, status
from scheduler_service.rpc.convert import Converter, parse
from scheduler_service.rpc.intake import Context, principal_of
from scheduler_service.rpc.job_messages import job_message, result_message
from scheduler_service.rpc.traced_calls import BeginCall, traced, untraced
from scheduler_service.rpc.validate import Refused, nanoseconds
from scheduler_service.security.permits import tenant_of
from scheduler_service.security.principals import Principal

pb = scheduler_service_pb2
M = TypeVar("M")
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_ROWS_MAX: Final = (1 << 63) - 1  # that a store can number
_WATCH_PAUSE_S: Final = 0.05
_WATCH_ROWS: Final = 256  # results of one message of WatchJob
_LABELS: Final = (16, 63, 256)  # how many, characters of a key, of a value


class JobPort:
    """The job RPCs."""

    def __init__(
        self, keeper: JobKeeper, converter: Converter, begin_call: BeginCall = untraced
    ) -> None:
        self._keeper = keeper
        self._converter = converter
        self._begin_call = begin_call

    async def create_job(self, message: pb.CreateJobRequest, context: Context) -> Message:
        """Store a job; the same id with the same body is the same job."""
        with traced(self._begin_call, "CreateJob", context) as traceparent:
            return await self._create(message, context, traceparent)

    async def _create(
        self, message: pb.CreateJobRequest, context: Context, traceparent: str
    ) -> Message:
        principal = principal_of(context)
        tenant = tenant_of(principal, message.tenant)
        _check_header(message)
        window = _length(message, "completion_window")
        keeper = self._keeper
        items = await self._intake(principal, tenant, message.defaults, 0).read(message.input)
        if not items and not message.more:
            raise Refused("a job has at least one item", field="input")
        job, _ = await kept(
            keeper.create(
                NewJob(
                    tenant=tenant,
                    job_id=message.job_id or f"j-{os.urandom(12).hex()}",
                    body_hash=_body_hash(message),
                    items=items,
                    receiving=message.more,
                    defaults=message.defaults.SerializeToString(),
                    labels=dict(message.labels),
                    traceparent=traceparent,
                    created_ns=keeper.wall.ns(),
                    window_ns=window,
                    ttl_ns=min(_length(message, "ttl") or keeper.limits.ttl, keeper.limits.max_ttl),
                )
            )
        )
        return pb.CreateJobResponse(job=self._message(job))

    async def append_job(self, message: pb.AppendJobRequest, context: Context) -> Message:
        """Add input to a job that was created with `more`."""
        principal = principal_of(context)
        job = await self._find(principal, message)
        defaults = inference_pb2.InferenceRequest.FromString(job.defaults)
        intake = self._intake(principal, job.tenant, defaults, message.start_index)
        items = await intake.read(message.input)
        if message.last and not job.total and not items:
            raise Refused("a job has at least one item", field="input")
        grown = await kept(self._keeper.append(job, message.start_index, items, last=message.last))
        return pb.AppendJobResponse(job=self._message(grown), next_index=grown.total)

    async def get_job(self, message: pb.GetJobRequest, context: Context) -> Message:
        """One job."""
        job = await self._find(principal_of(context), message)
        return pb.GetJobResponse(job=self._message(job))

    async def list_jobs(self, message: pb.ListJobsRequest, context: Context) -> Message:
        """Newest first."""
        principal = principal_of(context)
        size = paging.page_size(message.page_size)
        query = JobQuery(
            tenants=_tenants(principal, message.tenant),
            states=_states(message.states),
            labels=dict(message.labels),
            below=_number(paging.cursor(message)),
        )
        found = await kept(self._keeper.store.find(query, size + 1))
        rows, token = paging.page(message, found, size, lambda job: str(job.key))
        jobs = [self._message(job) for job in rows]
        return pb.ListJobsResponse(jobs=jobs, next_page_token=token)

    async def list_job_results(
        self, message: pb.ListJobResultsRequest, context: Context
    ) -> Message:
        """In the order in which they were stored."""
        job = await self._find(principal_of(context), message)
        size = paging.page_size(message.page_size)
        after = _number(paging.cursor(message))
        rows = await kept(
            self._keeper.store.results(
                job.key, after=after, limit=size, not_succeeded=message.not_succeeded
            )
        )
        answer = pb.ListJobResultsResponse(results=[result_message(job.job_id, r) for r in rows])
        more = rows and await kept(
            self._keeper.store.results(
                job.key, after=rows[-1].number, limit=1, not_succeeded=message.not_succeeded
            )
        )
        if more:
            answer.next_page_token = paging.token_after(message, str(rows[-1].number))
        return answer

    async def watch_job(self, data: bytes, context: Context) -> None:
        """The state now, then each change; ends after a terminal state."""
        try:
            message = parse(pb.WatchJobRequest, data)
            after = _number(_resume(message))
            job = await self._find(principal_of(context), message)
            await self._watch(job, message, after, context)
        except Refused as refused:
            await status.abort_with(context, refused.error)

    async def _watch(
        self, job: StoredJob, message: pb.WatchJobRequest, after: int, context: Context
    ) -> None:
        store = self._keeper.store
        said = b""
        with self._keeper.watchers.watch(job.key) as changed:
            while True:
                changed.clear()
                found = await kept(store.by_keys([job.key]))
                if not found:
                    raise _not_found(job.job_id)
                answer = pb.WatchJobResponse(job=self._message(found[0]))
                more = False
                if message.results:
                    rows = await kept(store.results(job.key, after=after, limit=_WATCH_ROWS))
                    answer.results.extend(result_message(job.job_id, row) for row in rows)
                    more = bool(rows)
                    after = rows[-1].number if rows else after
                answer.resume_token = f"{after:x}"
                state = answer.job.SerializeToString(deterministic=True)
                if more or state != said:
                    said = state
                    await context.write(answer.SerializeToString())
                if more:
                    continue
                if found[0].finished:
                    return
                if self._keeper.stopping:
                    raise Refused(
                        "this scheduler is stopping; the job goes on with the next one",
                        reason=Reason.SCHEDULER_DRAINING, retry_after=SECOND,
                    )  # fmt: skip
                await changed.wait()
                await asyncio.sleep(_WATCH_PAUSE_S)  # what changes meanwhile goes in one message

    async def cancel_job(self, message: pb.CancelJobRequest, context: Context) -> Message:
        """Nothing more of it starts; what runs is stopped. A finished job stays as it is."""
        if len(message.reason) > 256:
            raise Refused("at most 256 characters", field="reason")
        job = await self._find(principal_of(context), message)
        cancelled = await kept(self._keeper.cancel(job, message.reason))
        return pb.CancelJobResponse(job=self._message(cancelled))

    def _message(self, job: StoredJob) -> pb.Job:
        return job_message(job, self._keeper.live(job))

    def _intake(
        self,
        principal: Principal,
        tenant: str,
        defaults: inference_pb2.InferenceRequest,
        start: int,
    ) -> ItemIntake:
        limit = self._keeper.limits.max_items
        return ItemIntake(
            converter=self._converter,
            principal=principal,
            tenant=tenant,
            defaults=defaults,
            room=max(0, limit - start),
            limit=limit,
            start=start,
        )

    async def _find(
        self,
        principal: Principal,
        message: pb.GetJobRequest
        | pb.AppendJobRequest
        | pb.ListJobResultsRequest
        | pb.WatchJobRequest
        | pb.CancelJobRequest,
    ) -> StoredJob:
        tenant = tenant_of(principal, message.tenant)
        if not message.job_id:
            raise Refused("job_id is missing", field="job_id")
        job = await kept(self._keeper.store.get(tenant, message.job_id))
        if job is None:
            raise _not_found(message.job_id)
        return job


async def kept(asked: Awaitable[M]) -> M:
    """What the store answers.

    Raises:
        Refused: it could not do it, typed.
    """
    try:
        return await asked
    except StoreFailed as fault:
        raise Refused(
            f"the store of jobs failed, and nothing was changed: {fault}",
            reason=Reason.STORE_FAILED,
        ) from None
    except JobConflict as fault:
        raise _CONFLICTS[type(fault)](fault) from None


def _not_found(job_id: str) -> Refused:
    return Refused(
        f"there is no job {job_id[:64]!r} here",
        reason=Reason.RESOURCE_NOT_FOUND,
        metadata={"resource": f"job/{job_id[:64]}"},
    )


_CONFLICTS: Final[dict[type[JobConflict], Callable[[JobConflict], Refused]]] = {
    JobIdTaken: lambda fault: Refused(
        str(fault), field="job_id", reason=Reason.REQUEST_ID_CONFLICT
    ),
    CustomIdTaken: lambda fault: Refused(str(fault), field="input"),
    NotReceiving: lambda fault: Refused(
        str(fault), field="job_id", reason=Reason.REQUEST_ID_CONFLICT
    ),
    InputGap: lambda fault: Refused(
        f"items before these are missing: {fault}", field="start_index"
    ),
}


def _check_header(message: pb.CreateJobRequest) -> None:
    if message.job_id and not _ID.match(message.job_id):
        raise Refused("job_id must be 1..64 of A-Z a-z 0-9 . _ : -", field="job_id")
    check_defaults(message.defaults)
    most, key_most, value_most = _LABELS
    if len(message.labels) > most:
        raise Refused(f"at most {most} labels", field="labels")
    for key, value in message.labels.items():
        if not key or len(key) > key_most or len(value) > value_most:
            raise Refused("a label's key has 1..63 characters, its value up to 256", field="labels")


def _length(message: pb.CreateJobRequest, name: str) -> int:
    """Nanoseconds; 0: absent."""
    if not message.HasField(name):
        return 0
    return nanoseconds(getattr(message, name), name, zero=False)


def _body_hash(message: pb.CreateJobRequest) -> bytes:
    """What a job id stands for: all that the caller sent, but the id and the tenant's name."""
    body = pb.CreateJobRequest()
    body.CopyFrom(message)
    body.job_id = body.tenant = ""
    return blake2b(body.SerializeToString(deterministic=True), digest_size=16).digest()


def _tenants(principal: Principal, tenant: str) -> tuple[str, ...] | None:
    """Whose jobs are listed; None: everybody's."""
    if tenant:
        return (tenant_of(principal, tenant),)
    return principal.tenants


def _states(numbers: object) -> frozenset[JobState]:
    found = set()
    for number in numbers:  # type: ignore[attr-defined]
        if number not in iter(JobState):
            raise Refused(f"{number} is no state of a job", field="states")
        found.add(JobState(number))
    return frozenset(found)


def _number(cursor: str) -> int:
    """The row that a token of ours names; 0: none."""
    try:
        return min(int(cursor or "0", 10), _ROWS_MAX)
    except ValueError:
        raise Refused("page_token is none that this list gave", field="page_token") from None


def _resume(message: pb.WatchJobRequest) -> str:
    try:
        return str(int(message.resume_token or "0", 16))
    except ValueError:
        raise Refused("resume_token is none that WatchJob gave", field="resume_token") from None
