"""How can a request, an attempt or a node end up, and why?

The numbers are those of the protocol's enums (`tests/unit/core/test_numbers.py` compares them), so
that the edge passes them on without a table. `Outcome` is for metrics: few, stable names.
"""

from enum import IntEnum, StrEnum


class Outcome(StrEnum):
    """The terminal outcomes; each accepted request has exactly one."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REJECTED = "rejected"  # never queued


class RequestClass(IntEnum):
    """Ten bands of open calls, or stored job items below every band."""

    INTERACTIVE = 1
    JOB = 2


class RequestState(IntEnum):
    """Where a request is. QUEUED may still have a live attempt (see `sessions.py`)."""

    QUEUED = 1
    DISPATCHED = 2
    RUNNING = 3
    FINISHED = 4


class AttemptState(IntEnum):
    """How one try stands or ended."""

    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4
    LOST = 5
    REFUSED = 6
    PREEMPTED = 7
    REVOKED = 8


class NodeHealth(IntEnum):
    """Whether a node can work."""

    STARTING = 1
    HEALTHY = 2
    SUSPECT = 3
    PROBATION = 4
    EJECTED = 5
    LOST = 6


class NodeAvailability(IntEnum):
    """Whether operators let a node work."""

    ACTIVE = 1
    CORDONED = 2
    DRAINING = 3
    DRAINED = 4


class EngineMode(IntEnum):
    """A static batch starts and ends together; continuous items join and leave at any step."""

    STATIC = 1
    CONTINUOUS = 2


class ResumeMode(IntEnum):
    """After partial output: how a next attempt may go on. DEFAULT: CONTINUE if right, else FAIL."""

    DEFAULT = 0
    FAIL = 1
    CONTINUE = 2
    RESTART = 3


class FinishReason(IntEnum):
    """Why output ended; the rest of the protocol's values pass through unread."""

    STOP = 1
    CANCELLED = 6
    EXPIRED = 7
    ERROR = 8
    REJECTED = 9


class Reason(IntEnum):
    """Why something failed: the protocol's ErrorReason."""

    NONE = 0
    INVALID_ARGUMENT = 1
    REQUEST_TOO_LARGE = 2
    CONTEXT_TOO_LONG = 3
    MODEL_NOT_FOUND = 4
    RESOURCE_NOT_FOUND = 5
    REQUEST_ID_CONFLICT = 6
    UNSUPPORTED_FEATURE = 7
    UNAUTHENTICATED = 8
    PERMISSION_DENIED = 9
    QUOTA_EXCEEDED = 10
    CANCELLED_BY_CLIENT = 11
    CLIENT_TOO_SLOW = 12
    QUEUE_FULL = 20
    SHED = 21
    MAX_WAIT_EXCEEDED = 22
    DEADLINE_UNREACHABLE = 23
    DEADLINE_EXCEEDED = 24
    NO_CAPACITY = 25
    SCHEDULER_STARTING = 26
    SCHEDULER_DRAINING = 27
    CANCELLED_BY_ADMIN = 28
    STORE_FAILED = 29
    NODE_LOST = 40
    ATTEMPTS_EXHAUSTED = 41
    RETRY_BUDGET_EXHAUSTED = 42
    STREAM_INTERRUPTED = 43
    POISONED = 44
    PREEMPTED = 60
    REVOKED = 61
    NODE_DRAINING = 62
    ENGINE_BUSY = 63
    ENGINE_UNAVAILABLE = 64
    ENGINE_OOM = 65
    ENGINE_STALLED = 66
    ENGINE_ERROR = 67
    NODE_ID_IN_USE = 80
    STALE_TERM = 81
    SESSION_REPLACED = 82
    PROTOCOL_VIOLATION = 83
    ETAG_MISMATCH = 84
    INTERNAL = 85
