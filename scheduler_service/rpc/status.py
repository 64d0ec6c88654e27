"""Which status does a reason become? The one table from our reasons to gRPC, and its builders.

Every error carries exactly one ErrorInfo; what may be sent again carries RetryInfo, and everything
else tells the channel not to (`grpc-retry-pushback-ms: -1`), so that no client layer multiplies
what the scheduler has retried already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.duration_pb2 import Duration as DurationProto
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from batchyard.v1 import inference_pb2, types_pb2
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Duration

DOMAIN: Final = "batchyard.dev"
DETAILS_KEY: Final = "grpc-status-details-bin"
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"

UINT32_MAX: Final = (1 << 32) - 1
_LONGEST: Final = 315_576_000_000 * 1_000_000_000  # ns; the protocol's Duration holds no more

MAX_MESSAGE: Final = 1024  # characters
MAX_DETAILS: Final = 3500  # bytes; a peer refuses trailers above 8 KiB, and these grow by a third

Code = grpc.StatusCode

CODES: Final[dict[Reason, grpc.StatusCode]] = {
    Reason.INVALID_ARGUMENT: Code.INVALID_ARGUMENT,
    Reason.REQUEST_TOO_LARGE: Code.INVALID_ARGUMENT,
    Reason.CONTEXT_TOO_LONG: Code.INVALID_ARGUMENT,
    Reason.MODEL_NOT_FOUND: Code.NOT_FOUND,
    Reason.RESOURCE_NOT_FOUND: Code.NOT_FOUND,
    Reason.REQUEST_ID_CONFLICT: Code.ALREADY_EXISTS,
    Reason.UNSUPPORTED_FEATURE: Code.UNIMPLEMENTED,
    Reason.UNAUTHENTICATED: Code.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: Code.PERMISSION_DENIED,
    Reason.QUOTA_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    Reason.CANCELLED_BY_CLIENT: Code.CANCELLED,
    Reason.CLIENT_TOO_SLOW: Code.CANCELLED,
    Reason.QUEUE_FULL: Code.RESOURCE_EXHAUSTED,
    Reason.SHED: Code.RESOURCE_EXHAUSTED,
    Reason.MAX_WAIT_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    Reason.DEADLINE_UNREACHABLE: Code.DEADLINE_EXCEEDED,
    Reason.DEADLINE_EXCEEDED: Code.DEADLINE_EXCEEDED,
    Reason.NO_CAPACITY: Code.UNAVAILABLE,
    Reason.SCHEDULER_STARTING: Code.UNAVAILABLE,
    Reason.SCHEDULER_DRAINING: Code.UNAVAILABLE,
    Reason.CANCELLED_BY_ADMIN: Code.CANCELLED,
    Reason.STORE_FAILED: Code.RESOURCE_EXHAUSTED,
    Reason.NODE_LOST: Code.ABORTED,
    Reason.ATTEMPTS_EXHAUSTED: Code.ABORTED,
    Reason.RETRY_BUDGET_EXHAUSTED: Code.ABORTED,
    Reason.STREAM_INTERRUPTED: Code.ABORTED,
    Reason.POISONED: Code.FAILED_PRECONDITION,
    Reason.PREEMPTED: Code.ABORTED,
    Reason.REVOKED: Code.ABORTED,
    Reason.NODE_DRAINING: Code.UNAVAILABLE,
    Reason.ENGINE_BUSY: Code.RESOURCE_EXHAUSTED,
    Reason.ENGINE_UNAVAILABLE: Code.UNAVAILABLE,
    Reason.ENGINE_OOM: Code.RESOURCE_EXHAUSTED,
    Reason.ENGINE_STALLED: Code.DEADLINE_EXCEEDED,
    Reason.ENGINE_ERROR: Code.INTERNAL,
    Reason.NODE_ID_IN_USE: Code.ALREADY_EXISTS,
    Reason.STALE_TERM: Code.FAILED_PRECONDITION,
    Reason.SESSION_REPLACED: Code.ABORTED,
    Reason.PROTOCOL_VIOLATION: Code.INVALID_ARGUMENT,
    Reason.ETAG_MISMATCH: Code.ABORTED,
    Reason.INTERNAL: Code.INTERNAL,
}

_CODES_BY_NUMBER: Final = {code.value[0]: code for code in Code}
_SHORT: Final = 256  # characters of a text that each become up to nine in trailers

# The same request, unchanged, may succeed later; a library only acts on `retry_after`.
RETRYABLE: Final = frozenset(
    {
        Reason.QUOTA_EXCEEDED,
        Reason.QUEUE_FULL,
        Reason.SHED,
        Reason.MAX_WAIT_EXCEEDED,
        Reason.NO_CAPACITY,
        Reason.SCHEDULER_STARTING,
        Reason.SCHEDULER_DRAINING,
        Reason.CANCELLED_BY_ADMIN,
        Reason.STORE_FAILED,
        Reason.NODE_LOST,
        Reason.ATTEMPTS_EXHAUSTED,
        Reason.RETRY_BUDGET_EXHAUSTED,
        Reason.STREAM_INTERRUPTED,
    }
)


def code_number(reason: Reason) -> int:
    """The google.rpc.Code of a reason."""
    return int(CODES.get(reason, Code.UNKNOWN).value[0])


def code_name(error: types_pb2.Error) -> str:
    """The status of an error as the wire has it, as gRPC calls it."""
    return _CODES_BY_NUMBER.get(error.code, Code.UNKNOWN).name


def uint32(number: int) -> int:
    """A count for the wire. Sums of what nodes say may be above what it holds: such a one is cut
    down, for to refuse it would end the stream of a client that is not to blame.
    """
    return min(number, UINT32_MAX)


def duration(nanoseconds: Duration) -> DurationProto:
    """A length for the wire; an estimate beyond what a Duration may say is cut down to that."""
    seconds, nanos = divmod(min(nanoseconds, _LONGEST), 1_000_000_000)
    return DurationProto(seconds=seconds, nanos=nanos)


def error(
    reason: Reason,
    message: str,
    *,
    field: str = "",
    metadata: Mapping[str, str] | None = None,
    retry_after: Duration | None = None,
) -> types_pb2.Error:
    """The error as it rides in a result."""
    built = types_pb2.Error(
        code=code_number(reason),
        reason=int(reason),  # type: ignore[arg-type]
        message=message[:MAX_MESSAGE],
        retryable=reason in RETRYABLE,
        metadata=metadata or {},
        field=field,
    )
    if retry_after is not None:
        built.retry_after.CopyFrom(duration(retry_after))
    return built


def rich_status(
    failure: types_pb2.Error, result: inference_pb2.InferenceResult | None = None
) -> status_pb2.Status:
    """google.rpc.Status with one ErrorInfo and, where they apply, RetryInfo and BadRequest."""
    name = types_pb2.ErrorReason.Name(failure.reason).removeprefix("ERROR_REASON_")
    built = status_pb2.Status(code=failure.code, message=failure.message)
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=name, domain=DOMAIN, metadata=dict(failure.metadata))
    ]
    if failure.HasField("retry_after"):
        details.append(error_details_pb2.RetryInfo(retry_delay=failure.retry_after))
    if name == "QUOTA_EXCEEDED":
        subject = f"tenant:{failure.metadata.get('tenant', '')}"
        exceeded = error_details_pb2.QuotaFailure.Violation(
            subject=subject, description=failure.message
        )
        details.append(error_details_pb2.QuotaFailure(violations=[exceeded]))
    if failure.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=failure.field, description=failure.message
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if failure.code == Code.NOT_FOUND.value[0]:
        details.append(
            error_details_pb2.ResourceInfo(
                resource_type=name.removesuffix("_NOT_FOUND").lower(),
                resource_name=next(iter(failure.metadata.values()), ""),
                description=failure.message,
            )
        )
    if result is not None:
        details.append(result)
    for detail in details:
        built.details.add().Pack(detail)
    return built


def fitting_status(
    failure: types_pb2.Error, result: inference_pb2.InferenceResult | None
) -> status_pb2.Status:
    """`rich_status`, less what trailers cannot carry: first the outputs go, then the result."""
    rich = rich_status(failure, result)
    if result is not None and rich.ByteSize() > MAX_DETAILS:
        slim = inference_pb2.InferenceResult()
        slim.CopyFrom(result)
        slim.ClearField("outputs")
        slim.ClearField("labels")
        del slim.attempts[:-1]
        rich = rich_status(failure, slim)
    if rich.ByteSize() > MAX_DETAILS:
        rich = rich_status(failure)
    if rich.ByteSize() > MAX_DETAILS:
        bare = types_pb2.Error()
        bare.CopyFrom(failure)
        bare.ClearField("metadata")
        bare.message, bare.field = failure.message[:_SHORT], failure.field[:_SHORT]
        rich = rich_status(bare)
    return rich


def trailers(failure: types_pb2.Error, rich: status_pb2.Status) -> tuple[tuple[str, Any], ...]:
    """Trailing metadata of a failed RPC."""
    pushback = -1
    if failure.HasField("retry_after"):
        after = failure.retry_after
        pushback = after.seconds * 1000 + after.nanos // 1_000_000
    return ((DETAILS_KEY, rich.SerializeToString()), (PUSHBACK_KEY, str(pushback)))


async def abort_with(
    context: grpc.aio.ServicerContext[Any, Any],
    failure: types_pb2.Error,
    result: inference_pb2.InferenceResult | None = None,
) -> NoReturn:
    """End the RPC with this error. Raises, as `context.abort` does."""
    rich = fitting_status(failure, result)
    message = failure.message if failure.message.isascii() else failure.message[:_SHORT]
    code = _CODES_BY_NUMBER.get(failure.code, Code.UNKNOWN)
    await context.abort(code, message, trailers(failure, rich))
    raise AssertionError("abort returns")  # pragma: no cover


async def abort(
    context: grpc.aio.ServicerContext[Any, Any],
    reason: Reason,
    message: str,
    *,
    field: str = "",
    metadata: Mapping[str, str] | None = None,
    retry_after_ns: Duration | None = None,
) -> NoReturn:
    """End the RPC with `reason`. Raises."""
    await abort_with(
        context,
        error(reason, message, field=field, metadata=metadata, retry_after=retry_after_ns),
    )
