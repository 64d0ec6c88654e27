"""What does SQLite itself do with the rows of jobs? The limit of the measures of stored work.

The same tables and indexes, opened by the same code (WAL, a commit is on the disk when it returns),
the same rows, no checks, counters or answers: statements and commits alone.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from scheduler_service.jobs.schema import open_writer

Item = tuple[str, str, int, bytes]  # custom id, model, priority, request
_MAX_BYTES = 1 << 34
_ADD_JOB = (
    "INSERT INTO jobs (tenant, job_id, state, body_hash, defaults, labels, traceparent, created_ns,"
    " due_ns, ttl_ns, total) VALUES ('', ?, 2, x'00', x'', '{}', '', 1, 0, 1, ?)"
)
_ADD_ITEM = (
    "INSERT INTO items (job, place, custom_id, model, priority, ready, request)"
    " VALUES (?, ?, ?, ?, ?, 1, ?)"
)
_TAKE_ITEM = "DELETE FROM items WHERE job = ? AND place = ?"
_ADD_RESULT = "INSERT INTO results (job, place, custom_id, outcome, result) VALUES (?, ?, '', 1, ?)"


class PlainSqlite:
    """One file."""

    def __init__(self, path: Path) -> None:
        self._connection: sqlite3.Connection = open_writer(path, _MAX_BYTES)
        self._jobs = 0

    def create(self, items: Sequence[Item]) -> int:
        """One transaction: a job and its items. Returns its key."""
        self._jobs += 1
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        key = connection.execute(_ADD_JOB, (f"job-{self._jobs}", len(items))).lastrowid
        assert key is not None
        connection.executemany(_ADD_ITEM, ((key, n, *item) for n, item in enumerate(items)))
        connection.execute("COMMIT")
        return key

    def create_for(self, seconds: float, items: Sequence[Item]) -> float:
        """Jobs of these items, one after the other, for so long; items a second."""
        began, count = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds:
            self.create(items)
            count += len(items)
        return count / took

    def finish(self, key: int, count: int, group: int, result: bytes) -> float:
        """Results of a job's items, `group` in a transaction; results a second."""
        began = time.perf_counter()
        for start in range(0, count, group):
            places = range(start, min(start + group, count))
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_TAKE_ITEM, ((key, place) for place in places))
            self._connection.executemany(_ADD_RESULT, ((key, place, result) for place in places))
            self._connection.execute("COMMIT")
        return count / (time.perf_counter() - began)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
