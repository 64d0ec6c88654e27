"""From what the wire says of a failure to a typed error.

Failures come as an InferenceResult with an Error (Multiplex, the end of a stream), or as an RPC
status with details in the trailer `grpc-status-details-bin`. Both give the same error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import grpc

from batchyard.errors import BatchyardError, error_class
from batchyard.results import Attempt, reason_name
from batchyard.v1 import Error, FinishReason, InferenceResult

if TYPE_CHECKING:
    from google.rpc.status_pb2 import Status

__all__ = ["from_error", "from_result", "from_rpc_error", "is_failure"]

# The enum's wrapper looks a name up each time, which counts when it is done for every result.
_FIRST_FAILURE = FinishReason.Value("FINISH_REASON_CANCELLED")

# Where the call was in its message: of calls that share a stream, no business of their callers.
_PACKED = re.compile(r"calls\[\d+\]\.")

# google.rpc.Code by number.
_CODE_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}

# Reasons that are worth another try later; for statuses that do not carry the flag itself.
_RETRYABLE = frozenset(
    {
        "QUOTA_EXCEEDED",
        "QUEUE_FULL",
        "SHED",
        "MAX_WAIT_EXCEEDED",
        "NO_CAPACITY",
        "SCHEDULER_STARTING",
        "SCHEDULER_DRAINING",
        "CANCELLED_BY_ADMIN",
        "STORE_FAILED",
        "NODE_LOST",
        "ATTEMPTS_EXHAUSTED",
        "RETRY_BUDGET_EXHAUSTED",
        "STREAM_INTERRUPTED",
    }
)


def is_failure(result: InferenceResult) -> bool:
    """Whether the request ended without success."""
    return result.finish_reason >= _FIRST_FAILURE or result.HasField("error")


def from_result(result: InferenceResult, partial_text: str = "") -> BatchyardError:
    """The error of a result that is a failure."""
    error = from_error(result.error)
    error.request_id = result.request_id
    error.trace_id = result.trace_id
    error.attempts = tuple(Attempt.from_proto(attempt) for attempt in result.attempts)
    own_text = result.outputs[0].text if result.outputs else ""
    error.partial_text = partial_text or own_text
    return error


def from_error(error: Error) -> BatchyardError:
    """The typed twin of a stream-borne Error, its field as seen from the call itself."""
    reason = reason_name(error.reason)
    code = _CODE_NAMES.get(error.code, "UNKNOWN")
    after = error.retry_after
    return error_class(reason, code)(
        error.message,
        reason=reason,
        code=code,
        retryable=error.retryable,
        retry_after=after.seconds + after.nanos / 1e9 if error.HasField("retry_after") else None,
        metadata=error.metadata,
        field=_PACKED.sub("", error.field),
    )


def from_rpc_error(rpc: grpc.aio.AioRpcError, *, peer: str = "") -> BatchyardError:
    """The typed twin of an RPC's status. Raise it `from rpc`.

    A status without details is a broken or missing connection, or a server that is not ours.
    """
    code = rpc.code().name
    trailers = dict(rpc.trailing_metadata() or ())
    packed = trailers.get("grpc-status-details-bin")
    if isinstance(packed, bytes):
        error = _from_details(packed, code, rpc.details() or "")
    else:
        error = _without_details(code, rpc.details() or "", peer)
    if error.retry_after is None and error.reason:
        error.retry_after = _push_back_s(trailers.get("grpc-retry-pushback-ms"))
    return error


def _from_details(packed: bytes, code: str, message: str) -> BatchyardError:
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2 as details  # 5 ms, and only when something fails
    from google.rpc.status_pb2 import Status

    try:
        status = Status.FromString(packed)
    except DecodeError:
        return error_class("", code)(message, code=code)
    info, retry = details.ErrorInfo(), details.RetryInfo()
    bad, result = details.BadRequest(), InferenceResult()
    has_info, has_retry = _unpack(status, info), _unpack(status, retry)
    _unpack(status, bad)
    if _unpack(status, result) and result.HasField("error"):
        return from_result(result)
    reason = info.reason if has_info else ""
    delay = retry.retry_delay
    return error_class(reason, code)(
        status.message or message,
        reason=reason,
        code=code,
        retryable=reason in _RETRYABLE or has_retry,
        retry_after=delay.seconds + delay.nanos / 1e9 if has_retry else None,
        metadata=info.metadata,
        field=bad.field_violations[0].field if bad.field_violations else "",
    )


def _unpack(status: Status, target: Any) -> bool:
    for detail in status.details:
        if detail.Is(target.DESCRIPTOR):
            return bool(detail.Unpack(target))
    return False


def _without_details(code: str, message: str, peer: str) -> BatchyardError:
    where = f"{peer}: " if peer else ""
    unavailable = code == "UNAVAILABLE"
    if unavailable:
        where = f"no connection to the scheduler at {peer}: " if peer else "no connection: "
    return error_class("", code)(where + message, code=code, retryable=unavailable)


def _push_back_s(value: str | bytes | None) -> float | None:
    """gRPC's own hint: negative or unreadable means not to try again."""
    if value is None:
        return None
    try:
        delay_ms = int(value)
    except ValueError:
        return None
    return delay_ms / 1000 if delay_ms >= 0 else None
