"""What must a store of jobs do? The interface, and what can go wrong with it.

What a method that changes something returns is durable; what raises left nothing behind. Every item
gets one result: the first that is stored, whatever comes later. `tests/contract/test_job_stores.py`
holds every store to this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler_service.jobs.kept import (
    ItemKey,
    ItemResult,
    JobState,
    NewItem,
    NewJob,
    StoredItem,
    StoredJob,
    StoredResult,
)


class StoreFailed(Exception):
    """It could not be done now, and nothing was kept: full, locked, or the disk failed."""


class StoreDamaged(Exception):
    """The store cannot be opened; the message says why and what to do."""


class JobConflict(Exception):
    """The job is not as the caller takes it to be."""


class JobIdTaken(JobConflict):
    """Another job has this id."""


class NotReceiving(JobConflict):
    """All of the job's input has come already."""


class InputGap(JobConflict):
    """Items before these are missing."""

    def __init__(self, next_index: int) -> None:
        super().__init__(f"the next index is {next_index}")
        self.next_index = next_index


class CustomIdTaken(JobConflict):
    """Two items of the job have the same custom id."""

    def __init__(self, custom_id: str) -> None:
        super().__init__(f"custom_id {custom_id!r} is taken by another item of the job")
        self.custom_id = custom_id


@dataclass(slots=True, kw_only=True)
class JobQuery:
    """Which jobs, the newest first."""

    tenants: Sequence[str] | None = None  # None: of all
    states: frozenset[JobState] = frozenset()  # empty: all
    labels: Mapping[str, str] = field(default_factory=dict)  # all must match
    below: int = 0  # keys below this; 0: all


@dataclass(slots=True)
class Swept:
    """What one step of tidying did."""

    changed: list[StoredJob] = field(default_factory=list)
    deleted: int = 0  # jobs
    more: bool = False  # there is more to do at once


class Store(Protocol):
    """Keeps jobs. All methods are for the loop's thread; none of them holds it up, but
    `item_now`."""

    async def create(self, job: NewJob) -> tuple[StoredJob, bool]:
        """Store a job. The same id and body again returns the job as it is; False then.

        Raises:
            JobIdTaken, CustomIdTaken, StoreFailed.
        """

    async def append(
        self, job: StoredJob, start_index: int, items: Sequence[NewItem], *, last: bool, now_ns: int
    ) -> StoredJob:
        """Add items. What is there already must be the same, and is left out; `last` makes it run.

        Raises:
            JobIdTaken: other items are there at these places, or more than until `last`.
            NotReceiving, InputGap, CustomIdTaken, StoreFailed.
        """

    async def get(self, tenant: str, job_id: str) -> StoredJob | None:
        """One job."""

    async def by_keys(self, keys: Sequence[int]) -> list[StoredJob]:
        """Those that there are, by key."""

    async def find(self, query: JobQuery, limit: int) -> list[StoredJob]:
        """The newest that match."""

    async def results(
        self, job: int, *, after: int, limit: int, not_succeeded: bool = False
    ) -> list[StoredResult]:
        """Results of a job with numbers above `after`, in the order in which they were stored;
        at most `limit`, and not much more than a message can hold.
        """

    async def cancel(self, job: int, reason: str, now_ns: int) -> StoredJob:
        """Let nothing more of it start; of a finished one, nothing changes. `sweep` ends what is
        left of it.

        Raises:
            StoreFailed.
        """

    async def note_started(self, jobs: Mapping[int, int]) -> None:
        """When the first item of each of these was dispatched. By key: wall nanoseconds."""

    async def note_ends(self, ends: Mapping[ItemKey, int]) -> None:
        """When the time of each of these items is over, in wall nanoseconds; of one that has an
        end already, nothing changes.

        Raises:
            StoreFailed.
        """

    async def finish(self, results: Sequence[ItemResult], now_ns: int) -> list[StoredJob]:
        """Store results, all or none; those of items that have one are ignored. Returns the jobs
        that changed.

        Raises:
            StoreFailed.
        """

    async def models(self) -> list[str]:
        """For which items wait."""

    async def waiting(
        self, model: str, limit: int, *, without: Sequence[int] = ()
    ) -> list[ItemKey]:
        """Items that may run and have no result: the highest priority first, then the oldest.
        `without`: keys of jobs to leave out.
        """

    async def items(self, keys: Sequence[ItemKey]) -> list[StoredItem]:
        """Those of them that have no result yet, in the order given."""

    def item_now(self, tenant: str, job_id: str, index: int) -> StoredItem | None:
        """Likewise one item, at once: one read by its key, for a node that says hello."""

    async def backlog(self) -> dict[str, int]:
        """By model: items that may run and have no result."""

    async def sweep(self, now_ns: int) -> Swept:
        """One bounded step: close jobs whose window is over, end what is left of closing ones,
        delete those whose time to live is over.

        Raises:
            StoreFailed.
        """

    async def close(self) -> None:
        """Store what was handed in, and let go of the files."""
