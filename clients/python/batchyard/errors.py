"""What can go wrong in a call, as types.

Every error of this library is a `BatchyardError`. `REASONS` maps each reason that the server names
to its class; a reason that this version does not know falls back to the class of its gRPC code
(`CODES`). This file imports nothing, so that `except errors.Overloaded` costs nothing.

    try:
        client.generate("hi", model="small")
    except errors.Overloaded as error:
        print(error.reason, error.retry_after)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "BatchyardError",
    "InvalidRequest",
    "ModelNotFound",
    "NotFound",
    "Conflict",
    "RequestIdConflict",
    "UnsupportedFeature",
    "Unauthenticated",
    "PermissionDenied",
    "QuotaExceeded",
    "Overloaded",
    "DeadlineExceeded",
    "Cancelled",
    "Unavailable",
    "AttemptsExhausted",
    "StreamInterrupted",
    "Poisoned",
    "EngineError",
    "InternalError",
    "ProtocolError",
    "REASONS",
    "CODES",
    "error_class",
]


class BatchyardError(Exception):
    """The call failed.

    - `reason`: for programs, the ErrorReason without its prefix ("QUEUE_FULL"); empty where the
      server named none (a broken connection).
    - `code`: the gRPC code's name ("RESOURCE_EXHAUSTED"); act by it when `reason` is unknown.
    - `retryable`: the same request, unchanged, may succeed later.
    - `retry_after`: seconds after which it may be sent again at once; None where a library must
      not. The client has already done so as far as its `retries` allowed.
    - `metadata`: every variable of the message, by lowerCamelCase key.
    - `field`: the field at fault, where one is.
    - `request_id`, `trace_id`: to find the request on the server.
    - `attempts`: what the scheduler tried (`results.Attempt`), oldest first.
    - `partial_text`: the output that had arrived.
    """

    default_code = "UNKNOWN"

    def __init__(
        self,
        message: str = "",
        *,
        reason: str = "",
        code: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
        metadata: Mapping[str, str] | None = None,
        field: str = "",
        request_id: str = "",
        trace_id: str = "",
        attempts: Sequence[Any] = (),
        partial_text: str = "",
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])
        self.reason = reason
        self.code = code or self.default_code
        self.retryable = retryable
        self.retry_after = retry_after
        self.metadata = dict(metadata or {})
        self.field = field
        self.request_id = request_id
        self.trace_id = trace_id
        self.attempts = tuple(attempts)
        self.partial_text = partial_text

    @property
    def message(self) -> str:
        """The text for people, without the field and the reason."""
        return str(self.args[0])

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{where}{self.message}{reason}"


class InvalidRequest(BatchyardError, ValueError):
    """The request is not valid; `field` says where. Sending it again will not help."""

    default_code = "INVALID_ARGUMENT"


class ModelNotFound(BatchyardError):
    """No such model or route. `Client.list_models()` lists what there is."""

    default_code = "NOT_FOUND"


class NotFound(BatchyardError):
    """No such job, node, request or pool."""

    default_code = "NOT_FOUND"


class Conflict(BatchyardError):
    """The server's state is not what the call assumed; read it again."""

    default_code = "FAILED_PRECONDITION"


class RequestIdConflict(Conflict):
    """The request id is taken by a request with another body. Take a new id."""

    default_code = "ALREADY_EXISTS"


class UnsupportedFeature(BatchyardError):
    """This server does not have the feature; `Client.server_info()` says which it has."""

    default_code = "UNIMPLEMENTED"


class Unauthenticated(BatchyardError):
    """No, wrong or expired credentials. Set `api_key`."""

    default_code = "UNAUTHENTICATED"


class PermissionDenied(BatchyardError):
    """The credentials are good but do not allow this."""

    default_code = "PERMISSION_DENIED"


class QuotaExceeded(BatchyardError):
    """A limit of the tenant is reached."""

    default_code = "RESOURCE_EXHAUSTED"


class Overloaded(BatchyardError):
    """The scheduler refused the request because of load, or it waited longer than `max_wait`."""

    default_code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(BatchyardError):
    """The time budget passed, or cannot be met (DEADLINE_UNREACHABLE). Allow more `timeout`."""

    default_code = "DEADLINE_EXCEEDED"


class Cancelled(BatchyardError):
    """The request was cancelled: by an operator, a full output buffer, or by closing the client."""

    default_code = "CANCELLED"


class Unavailable(BatchyardError):
    """The scheduler cannot be reached, is starting or draining, or no live node has the model."""

    default_code = "UNAVAILABLE"


class AttemptsExhausted(BatchyardError):
    """The scheduler tried and gave up; `attempts` says what happened to each try."""

    default_code = "ABORTED"


class StreamInterrupted(BatchyardError):
    """The output stopped and could not go on where it stopped; `partial_text` is what there is."""

    default_code = "ABORTED"


class Poisoned(BatchyardError):
    """The request was in flight at several node deaths and failed alone too. Do not send it again.

    A request that takes nodes down with it is not tried for ever.
    """

    default_code = "FAILED_PRECONDITION"


class EngineError(BatchyardError):
    """The inference engine failed on this request in a way that no other node would change."""

    default_code = "INTERNAL"


class InternalError(BatchyardError):
    """A fault of the scheduler or of a node agent."""

    default_code = "INTERNAL"


class ProtocolError(BatchyardError):
    """A peer broke a rule of the protocol: versions that do not fit, or a fault of one side."""

    default_code = "INTERNAL"


# Every ErrorReason, without its prefix. A test holds this table complete.
REASONS: dict[str, type[BatchyardError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "REQUEST_TOO_LARGE": InvalidRequest,
    "CONTEXT_TOO_LONG": InvalidRequest,
    "MODEL_NOT_FOUND": ModelNotFound,
    "RESOURCE_NOT_FOUND": NotFound,
    "REQUEST_ID_CONFLICT": RequestIdConflict,
    "UNSUPPORTED_FEATURE": UnsupportedFeature,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "QUOTA_EXCEEDED": QuotaExceeded,
    "CANCELLED_BY_CLIENT": Cancelled,
    "CLIENT_TOO_SLOW": Cancelled,
    "QUEUE_FULL": Overloaded,
    "SHED": Overloaded,
    "MAX_WAIT_EXCEEDED": Overloaded,
    "DEADLINE_UNREACHABLE": DeadlineExceeded,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "NO_CAPACITY": Unavailable,
    "SCHEDULER_STARTING": Unavailable,
    "SCHEDULER_DRAINING": Unavailable,
    "CANCELLED_BY_ADMIN": Cancelled,
    "STORE_FAILED": Overloaded,
    "NODE_LOST": AttemptsExhausted,
    "ATTEMPTS_EXHAUSTED": AttemptsExhausted,
    "RETRY_BUDGET_EXHAUSTED": AttemptsExhausted,
    "STREAM_INTERRUPTED": StreamInterrupted,
    "POISONED": Poisoned,
    "PREEMPTED": AttemptsExhausted,
    "REVOKED": AttemptsExhausted,
    "NODE_DRAINING": Unavailable,
    "ENGINE_BUSY": Overloaded,
    "ENGINE_UNAVAILABLE": Unavailable,
    "ENGINE_OOM": Overloaded,
    "ENGINE_STALLED": DeadlineExceeded,
    "ENGINE_ERROR": EngineError,
    "NODE_ID_IN_USE": Conflict,
    "STALE_TERM": Conflict,
    "SESSION_REPLACED": Conflict,
    "PROTOCOL_VIOLATION": ProtocolError,
    "ETAG_MISMATCH": Conflict,
    "INTERNAL": InternalError,
}

# Where the reason is unknown or missing.
CODES: dict[str, type[BatchyardError]] = {
    "CANCELLED": Cancelled,
    "UNKNOWN": BatchyardError,
    "INVALID_ARGUMENT": InvalidRequest,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": Conflict,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": Overloaded,
    "FAILED_PRECONDITION": Conflict,
    "ABORTED": AttemptsExhausted,
    "OUT_OF_RANGE": InvalidRequest,
    "UNIMPLEMENTED": UnsupportedFeature,
    "INTERNAL": InternalError,
    "UNAVAILABLE": Unavailable,
    "DATA_LOSS": InternalError,
    "UNAUTHENTICATED": Unauthenticated,
}


def error_class(reason: str, code: str) -> type[BatchyardError]:
    """The class for `reason`, else for `code`, else BatchyardError."""
    return REASONS.get(reason) or CODES.get(code, BatchyardError)
