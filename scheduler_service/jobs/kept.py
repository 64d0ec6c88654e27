"""What is kept of a job, its items and their results? Plain values, the same for every store.

Times are wall clock in nanoseconds since 1970, since they outlive the process; 0: not so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class JobState(IntEnum):
    """The protocol's numbers."""

    RECEIVING = 1  # more input is to come; nothing runs yet
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    PARTIALLY_SUCCEEDED = 5
    FAILED = 6
    CANCELLING = 7
    CANCELLED = 8
    EXPIRED = 9


UNFINISHED = frozenset(
    {JobState.RECEIVING, JobState.PENDING, JobState.RUNNING, JobState.CANCELLING}
)


class ItemEnd(IntEnum):
    """How an item ended, once."""

    SUCCEEDED = 1
    FAILED = 2
    CANCELLED = 3
    EXPIRED = 4


class Closing(IntEnum):
    """Why a job's remaining items are ended without running."""

    NOT = 0
    CANCELLED = 1
    EXPIRED = 2  # its completion window is over


@dataclass(slots=True)
class NewItem:
    """An item to be stored; its index is its place."""

    custom_id: str
    model: str  # that was resolved when it was taken in: the pool it waits for
    priority: int
    request: bytes  # InferenceRequest, defaults of the job filled in
    digest: bytes = b""  # of what the caller gave; empty: it is not compared with a repeat


@dataclass(slots=True, kw_only=True)
class NewJob:
    """A job to be stored."""

    tenant: str
    job_id: str
    body_hash: bytes  # of what the caller sent: the same id with another one conflicts
    items: list[NewItem]
    receiving: bool = False
    defaults: bytes = b""  # InferenceRequest, for items that are appended
    labels: Mapping[str, str] = field(default_factory=dict)
    traceparent: str = ""  # of the call that created it; empty: none
    created_ns: int
    window_ns: int = 0  # in which it is to complete, from its creation; 0: no limit
    ttl_ns: int  # kept for so long after its end, or while nothing more is received


@dataclass(slots=True)
class Used:
    """Sums of tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_output_tokens: int = 0
    wasted_output_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class StoredJob:
    """A job as it is in the store now."""

    key: int  # the store's own, growing with each job
    tenant: str
    job_id: str
    state: JobState
    body_hash: bytes
    defaults: bytes
    labels: Mapping[str, str]
    created_ns: int
    started_ns: int
    ended_ns: int
    due_ns: int  # 0: no limit
    ttl_ns: int
    delete_ns: int  # 0: not known yet
    closing: Closing
    reason: str  # of a cancel
    total: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    preempted: int
    used: Used

    @property
    def left(self) -> int:
        """Items without a result."""
        return self.total - self.succeeded - self.failed - self.cancelled - self.expired

    @property
    def finished(self) -> bool:
        """Whether its state is terminal."""
        return self.state not in UNFINISHED


@dataclass(slots=True, frozen=True)
class ItemKey:
    """Which item."""

    job: int  # StoredJob.key
    index: int


@dataclass(slots=True)
class StoredItem:
    """An item without a result, with all that running it needs."""

    key: ItemKey
    tenant: str
    job_id: str
    model: str
    request: bytes
    due_ns: int  # 0: no limit
    end_ns: int  # by its own timeout, from when it was first fed in; 0: not fed yet, or it has none
    traceparent: str  # of the call that created the job; empty: none

    @property
    def request_id(self) -> str:
        """Under which it runs."""
        return f"{self.job_id}/{self.key.index}"


@dataclass(slots=True)
class ItemResult:
    """An item's end, to be stored."""

    key: ItemKey
    end: ItemEnd
    result: bytes  # InferenceResult
    preemptions: int = 0
    started_ns: int = 0  # wall time of its first dispatch; 0: it was never dispatched
    used: Used = field(default_factory=Used)


@dataclass(slots=True)
class StoredResult:
    """A result as it is in the store."""

    number: int  # grows in the order in which results were stored, over all jobs
    index: int
    custom_id: str
    end: ItemEnd
    result: bytes  # InferenceResult; empty: the item was ended with its job, without running


def split_request_id(request_id: str) -> tuple[str, int] | None:
    """Job id and index of an item's request id; None: it is no item's."""
    job_id, slash, index = request_id.rpartition("/")
    if not slash or not index.isdecimal():
        return None
    return job_id, int(index)
