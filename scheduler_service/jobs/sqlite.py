"""The store that needs nothing beside it: SQLite, as Python brings it.

One thread writes (`writer.py`), another reads; in WAL mode neither waits for the other.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from scheduler_service.jobs import changes, reads
from scheduler_service.jobs.kept import (
    ItemKey,
    ItemResult,
    NewItem,
    NewJob,
    StoredItem,
    StoredJob,
    StoredResult,
)
from scheduler_service.jobs.schema import open_reader, open_writer
from scheduler_service.jobs.store import JobQuery, StoreFailed, Swept
from scheduler_service.jobs.writer import GroupWriter, describe

FOLDER: Final = "jobs"
FILE: Final = "jobs.sqlite3"
R = TypeVar("R")


class SqliteStore:
    """Jobs in one file. Made on a running loop."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        """Opens the file, and makes it where there is none.

        Raises:
            StoreDamaged: it cannot be used.
        """
        self.path = path
        self.writer = GroupWriter(open_writer(path, max_bytes))
        self._reader = open_reader(path)
        self._at_once = open_reader(path)
        self._readers = ThreadPoolExecutor(1, "job-store-reader")

    async def create(self, job: NewJob) -> tuple[StoredJob, bool]:
        """See `Store`."""
        return await self.writer.write(lambda c: changes.create(c, job))

    async def append(
        self, job: StoredJob, start_index: int, items: Sequence[NewItem], *, last: bool, now_ns: int
    ) -> StoredJob:
        """See `Store`."""
        return await self.writer.write(
            lambda c: changes.append(c, job.key, start_index, items, last=last, now_ns=now_ns)
        )

    async def get(self, tenant: str, job_id: str) -> StoredJob | None:
        """See `Store`."""
        return await self._read(lambda c: reads.job(c, tenant, job_id))

    async def by_keys(self, keys: Sequence[int]) -> list[StoredJob]:
        """See `Store`."""
        return await self._read(lambda c: reads.jobs_by_keys(c, keys))

    async def find(self, query: JobQuery, limit: int) -> list[StoredJob]:
        """See `Store`."""
        return await self._read(lambda c: reads.list_jobs(c, query, limit))

    async def results(
        self, job: int, *, after: int, limit: int, not_succeeded: bool = False
    ) -> list[StoredResult]:
        """See `Store`."""
        return await self._read(lambda c: reads.results(c, job, after, limit, not_succeeded))

    async def cancel(self, job: int, reason: str, now_ns: int) -> StoredJob:
        """See `Store`."""
        return await self.writer.write(lambda c: changes.cancel(c, job, reason, now_ns))

    async def note_started(self, jobs: Mapping[int, int]) -> None:
        """See `Store`."""
        await self.writer.write(lambda c: changes.note_started(c, jobs))

    async def note_ends(self, ends: Mapping[ItemKey, int]) -> None:
        """See `Store`."""
        await self.writer.write(lambda c: changes.note_ends(c, ends))

    async def finish(self, results: Sequence[ItemResult], now_ns: int) -> list[StoredJob]:
        """See `Store`."""
        return await self.writer.write(lambda c: changes.finish(c, results, now_ns))

    async def models(self) -> list[str]:
        """See `Store`."""
        return await self._read(reads.models)

    async def waiting(
        self, model: str, limit: int, *, without: Sequence[int] = ()
    ) -> list[ItemKey]:
        """See `Store`."""
        return await self._read(lambda c: reads.waiting(c, model, limit, without))

    async def items(self, keys: Sequence[ItemKey]) -> list[StoredItem]:
        """See `Store`."""
        return await self._read(lambda c: reads.items(c, keys))

    def item_now(self, tenant: str, job_id: str, index: int) -> StoredItem | None:
        """See `Store`."""
        return reads.item(self._at_once, tenant, job_id, index)

    async def backlog(self) -> dict[str, int]:
        """See `Store`."""
        return await self._read(reads.backlog)

    async def sweep(self, now_ns: int) -> Swept:
        """See `Store`."""
        return await self.writer.write(lambda c: changes.sweep(c, now_ns))

    async def close(self) -> None:
        """See `Store`."""
        await self.writer.close()
        await asyncio.to_thread(self._readers.shutdown)
        self._reader.close()
        self._at_once.close()

    async def _read(self, question: Callable[[sqlite3.Connection], R]) -> R:
        def ask() -> Any:
            return question(self._reader)

        try:
            answer: R = await asyncio.get_running_loop().run_in_executor(self._readers, ask)
        except sqlite3.Error as fault:
            raise StoreFailed(describe(fault)) from fault
        return answer
