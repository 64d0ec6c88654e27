"""Which gRPC code does a reason have, and may the same request succeed later?

The table is the comment of `ErrorReason` in types.proto, for what an agent says.
"""

from __future__ import annotations

from typing import cast

from google.rpc import code_pb2

from batchyard.v1 import types_pb2 as types

_R = types.ErrorReason

CODES: dict[int, int] = {
    _R.ERROR_REASON_INVALID_ARGUMENT: code_pb2.INVALID_ARGUMENT,
    _R.ERROR_REASON_REQUEST_TOO_LARGE: code_pb2.INVALID_ARGUMENT,
    _R.ERROR_REASON_CONTEXT_TOO_LONG: code_pb2.INVALID_ARGUMENT,
    _R.ERROR_REASON_MODEL_NOT_FOUND: code_pb2.NOT_FOUND,
    _R.ERROR_REASON_RESOURCE_NOT_FOUND: code_pb2.NOT_FOUND,
    _R.ERROR_REASON_UNSUPPORTED_FEATURE: code_pb2.UNIMPLEMENTED,
    _R.ERROR_REASON_CANCELLED_BY_CLIENT: code_pb2.CANCELLED,
    _R.ERROR_REASON_CLIENT_TOO_SLOW: code_pb2.CANCELLED,
    _R.ERROR_REASON_CANCELLED_BY_ADMIN: code_pb2.CANCELLED,
    _R.ERROR_REASON_MAX_WAIT_EXCEEDED: code_pb2.RESOURCE_EXHAUSTED,
    _R.ERROR_REASON_DEADLINE_EXCEEDED: code_pb2.DEADLINE_EXCEEDED,
    _R.ERROR_REASON_PREEMPTED: code_pb2.ABORTED,
    _R.ERROR_REASON_REVOKED: code_pb2.ABORTED,
    _R.ERROR_REASON_NODE_DRAINING: code_pb2.UNAVAILABLE,
    _R.ERROR_REASON_ENGINE_BUSY: code_pb2.RESOURCE_EXHAUSTED,
    _R.ERROR_REASON_ENGINE_UNAVAILABLE: code_pb2.UNAVAILABLE,
    _R.ERROR_REASON_ENGINE_OOM: code_pb2.RESOURCE_EXHAUSTED,
    _R.ERROR_REASON_ENGINE_STALLED: code_pb2.DEADLINE_EXCEEDED,
    _R.ERROR_REASON_ENGINE_ERROR: code_pb2.INTERNAL,
    _R.ERROR_REASON_STALE_TERM: code_pb2.FAILED_PRECONDITION,
    _R.ERROR_REASON_INTERNAL: code_pb2.INTERNAL,
}

# The same request, unchanged, may succeed later.
RETRYABLE = {
    _R.ERROR_REASON_MAX_WAIT_EXCEEDED,
    _R.ERROR_REASON_CANCELLED_BY_ADMIN,
    _R.ERROR_REASON_PREEMPTED,
    _R.ERROR_REASON_REVOKED,
    _R.ERROR_REASON_NODE_DRAINING,
    _R.ERROR_REASON_ENGINE_BUSY,
    _R.ERROR_REASON_ENGINE_UNAVAILABLE,
    _R.ERROR_REASON_ENGINE_OOM,
    _R.ERROR_REASON_ENGINE_STALLED,
    _R.ERROR_REASON_ENGINE_ERROR,
    _R.ERROR_REASON_STALE_TERM,
}


def reason_name(reason: int) -> str:
    """The name without its prefix. Unknown numbers get a name, too."""
    try:
        return types.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")
    except ValueError:
        return f"UNKNOWN_{reason}"


def finish_reason_name(finish_reason: int) -> str:
    """The name in lower case without its prefix. Unknown numbers get a name, too."""
    try:
        name = types.FinishReason.Name(finish_reason)
    except ValueError:
        return f"unknown_{finish_reason}"
    return name.removeprefix("FINISH_REASON_").lower()


def reason_value(name: str) -> types.ErrorReason:
    """The number of a name without its prefix; what has no number is INTERNAL."""
    if name.startswith("UNKNOWN_"):
        return cast(types.ErrorReason, int(name.removeprefix("UNKNOWN_")))
    try:
        return cast(types.ErrorReason, types.ErrorReason.Value(f"ERROR_REASON_{name}"))
    except ValueError:
        return types.ERROR_REASON_INTERNAL


def error(
    reason: types.ErrorReason,
    message: str,
    *,
    field: str = "",
    metadata: dict[str, str] | None = None,
) -> types.Error:
    """An Error as the wire has it, its code and `retryable` from the table."""
    return types.Error(
        code=CODES.get(reason, code_pb2.INTERNAL),
        reason=reason,
        message=message,
        retryable=reason in RETRYABLE,
        metadata=metadata or {},
        field=field,
    )
