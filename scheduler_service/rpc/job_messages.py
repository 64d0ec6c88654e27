"""How do stored jobs and results read on the wire?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.jobs.keeper import Live
from scheduler_service.jobs.kept import ItemEnd, JobState, StoredJob, StoredResult
from scheduler_service.rpc import status

_TEXT: Final = {
    ItemEnd.CANCELLED: (Reason.CANCELLED_BY_CLIENT, "its job was cancelled before it ran"),
    ItemEnd.EXPIRED: (Reason.DEADLINE_EXCEEDED, "the job's completion window ended first"),
}
_FINISH: Final = {
    ItemEnd.CANCELLED: types_pb2.FINISH_REASON_CANCELLED,
    ItemEnd.EXPIRED: types_pb2.FINISH_REASON_EXPIRED,
}


def job_message(job: StoredJob, live: Live) -> scheduler_service_pb2.Job:
    """The job as it is now: what is stored, and what is in motion."""
    state = job.state
    started_ns = job.started_ns or live.started_at
    if state is JobState.PENDING and (started_ns or live.running):
        state = JobState.RUNNING
    running = min(live.running, job.left)
    built = scheduler_service_pb2.Job(
        job_id=job.job_id,
        state=int(state),  # type: ignore[arg-type]  # the same numbers
        tenant=job.tenant,
        counts=scheduler_service_pb2.JobCounts(
            total=job.total,
            pending=job.left - running,
            running=running,
            succeeded=job.succeeded,
            failed=job.failed,
            cancelled=job.cancelled,
            expired=job.expired,
            preempted=job.preempted + live.preempted,
        ),
        labels=job.labels,
    )
    _time(built.create_time, job.created_ns)
    for name, at in (
        ("start_time", job.started_ns),
        ("end_time", job.ended_ns),
        ("due_time", job.due_ns),
        ("delete_time", job.delete_ns),
    ):
        if at:
            _time(getattr(built, name), at)
    for name, tokens in asdict(job.used).items():
        if tokens:
            setattr(built.usage, name, min(tokens, 2**32 - 1))
    if state is JobState.FAILED:
        text = f"none of the job's {job.total} items succeeded; their results say why"
        built.error.CopyFrom(status.error(Reason.ATTEMPTS_EXHAUSTED, text))
    return built


def result_message(job_id: str, stored: StoredResult) -> scheduler_service_pb2.JobResult:
    """One result; of an item that was ended with its job, one that says so."""
    built = scheduler_service_pb2.JobResult(index=stored.index, custom_id=stored.custom_id)
    if stored.result:
        built.result.ParseFromString(stored.result)
        return built
    reason, text = _TEXT[stored.end]
    built.result.CopyFrom(
        inference_pb2.InferenceResult(
            request_id=f"{job_id}/{stored.index}",
            finish_reason=_FINISH[stored.end],
            error=status.error(reason, text),
        )
    )
    return built


def _time(into: object, wall_ns: int) -> None:
    into.seconds, into.nanos = divmod(wall_ns, 1_000_000_000)  # type: ignore[attr-defined]
