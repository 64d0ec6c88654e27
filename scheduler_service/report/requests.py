"""How does a request read? From the core's books to the messages of the report and AdminService."""

from __future__ import annotations

from typing import Final

from batchyard.v1 import admin_service_pb2, report_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.outcomes import (
    AttemptState,
    Outcome,
    Reason,
    RequestClass,
    RequestState,
)
from scheduler_service.core.types import Attempt, Instant, Request
from scheduler_service.jobs.kept import split_request_id
from scheduler_service.rpc import status

MAX_ATTEMPTS: Final = 32

_FINISH: Final = {
    Outcome.SUCCEEDED: types_pb2.FINISH_REASON_STOP,
    Outcome.FAILED: types_pb2.FINISH_REASON_ERROR,
    Outcome.CANCELLED: types_pb2.FINISH_REASON_CANCELLED,
    Outcome.EXPIRED: types_pb2.FINISH_REASON_EXPIRED,
    Outcome.REJECTED: types_pb2.FINISH_REASON_REJECTED,
}


def summary(request: Request, now: Instant) -> report_pb2.RequestSummary:
    """One row: where it is, or how it ended."""
    attempts = request.attempts
    finished = request.state is RequestState.FINISHED
    built = report_pb2.RequestSummary(
        request_id=request.request_id,
        tenant=request.tenant,
        model=request.model,
        task_type=request.task_type,
        priority=request.priority,
        request_class=int(request.request_class),  # type: ignore[arg-type]
        state=int(request.state),  # type: ignore[arg-type]
        age=status.duration((request.finished_at if finished else now) - request.received_at),
        queue_duration=status.duration(request.waited(now)),
        live_dispatch_ids=list(request.live),
        node_id=attempts[-1].node.node_id if attempts else "",
        attempts=len(attempts),
        output_tokens=status.uint32(_delivered(request)),
        degraded=request.degraded,
        preemptions=request.preemptions,
        trace_id=request.trace_id,
        job_id=job_of(request),
    )
    if request.outcome is not None:
        succeeded = request.outcome is Outcome.SUCCEEDED and request.finish_reason
        reason = request.finish_reason if succeeded else _FINISH[request.outcome]
        built.finish_reason = reason  # type: ignore[assignment]  # the same numbers
    return built


def job_of(request: Request) -> str:
    """The job that it is an item of; empty: none."""
    if request.request_class is not RequestClass.JOB:
        return ""
    name = split_request_id(request.request_id)
    return "" if name is None else name[0]


def details(request: Request, clock: Clock) -> admin_service_pb2.GetRequestResponse:
    """All that is known of it; neither prompt nor output."""
    built = admin_service_pb2.GetRequestResponse(
        request=summary(request, clock.now()),
        attempts=[attempt(a, clock) for a in request.attempts[-MAX_ATTEMPTS:]],
        timings=_timings(request, clock),
    )
    tokens = _delivered(request)
    if tokens:
        built.usage.output_tokens = status.uint32(tokens)
    wasted = sum(a.output_tokens for a in request.attempts if _wasted(a))
    if wasted:
        built.usage.wasted_output_tokens = status.uint32(wasted)
    if request.reason is not Reason.NONE:
        last = request.attempts[-1].message if request.attempts else ""
        built.error.CopyFrom(status.error(request.reason, last))
    return built


def attempt(attempt: Attempt, clock: Clock) -> types_pb2.Attempt:
    """One try."""
    built = types_pb2.Attempt(
        number=attempt.number,
        dispatch_id=attempt.dispatch_id,
        node_id=attempt.node.node_id,
        engine_id=attempt.engine.engine_id,
        model=attempt.model,
        start_time=clock.timestamp(attempt.started_at),
        state=int(attempt.state),  # type: ignore[arg-type]
        batch_id=attempt.batch.batch_id,
        batch_size=len(attempt.batch.attempts),
        output_id=attempt.output_id,
    )
    if attempt.ended_at:
        built.end_time.CopyFrom(clock.timestamp(attempt.ended_at))
    if attempt.output_tokens:
        built.output_tokens = status.uint32(attempt.output_tokens)
    if attempt.reason is not Reason.NONE:
        built.error.CopyFrom(status.error(attempt.reason, attempt.message))
    return built


def _delivered(request: Request) -> int:
    """Output tokens that reached the client, or will with its result."""
    if request.output is not None:
        return request.output.tokens
    return sum(a.output_tokens for a in request.attempts if not _wasted(a))


def _wasted(attempt: Attempt) -> bool:
    return attempt.state not in (AttemptState.RUNNING, AttemptState.SUCCEEDED)


def _timings(request: Request, clock: Clock) -> types_pb2.Timings:
    built = types_pb2.Timings(
        receive_time=clock.timestamp(request.received_at),
        queue_duration=status.duration(request.waited(clock.now())),
    )
    if request.first_dispatch_at:
        built.dispatch_time.CopyFrom(clock.timestamp(request.first_dispatch_at))
    first = getattr(request.context, "first_output_at", 0)
    if first:
        built.first_token_time.CopyFrom(clock.timestamp(first))
    if request.finished_at:
        built.finish_time.CopyFrom(clock.timestamp(request.finished_at))
    return built
