"""How does each question to the store read in SQL?"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from scheduler_service.jobs.kept import (
    Closing,
    ItemEnd,
    ItemKey,
    JobState,
    StoredItem,
    StoredJob,
    StoredResult,
    Used,
)
from scheduler_service.jobs.store import JobQuery

RESULT_BYTES: Final = 4 << 20  # of results read at once, and one more
_JOB: Final = (
    "SELECT key, tenant, job_id, state, body_hash, defaults, labels, created_ns, started_ns,"
    " ended_ns, due_ns, ttl_ns, delete_ns, closing, reason, total, succeeded, failed, cancelled,"
    " expired, preempted, input_tokens, output_tokens, cached_input_tokens,"
    " reasoning_output_tokens, wasted_output_tokens FROM jobs"
)


def _job(row: Sequence[Any]) -> StoredJob:
    return StoredJob(
        key=row[0],
        tenant=row[1],
        job_id=row[2],
        state=JobState(row[3]),
        body_hash=row[4],
        defaults=row[5],
        labels=json.loads(row[6]),
        created_ns=row[7],
        started_ns=row[8],
        ended_ns=row[9],
        due_ns=row[10],
        ttl_ns=row[11],
        delete_ns=row[12],
        closing=Closing(row[13]),
        reason=row[14],
        total=row[15],
        succeeded=row[16],
        failed=row[17],
        cancelled=row[18],
        expired=row[19],
        preempted=row[20],
        used=Used(*row[21:26]),
    )


def job(connection: sqlite3.Connection, tenant: str, job_id: str) -> StoredJob | None:
    """One job, by its name."""
    row = connection.execute(f"{_JOB} WHERE tenant = ? AND job_id = ?", (tenant, job_id)).fetchone()
    return None if row is None else _job(row)


def jobs_by_keys(connection: sqlite3.Connection, keys: Sequence[int]) -> list[StoredJob]:
    """Those that there are."""
    rows = (connection.execute(f"{_JOB} WHERE key = ?", (key,)).fetchone() for key in keys)
    return [_job(row) for row in rows if row is not None]


def list_jobs(connection: sqlite3.Connection, query: JobQuery, limit: int) -> list[StoredJob]:
    """The newest that match."""
    found: list[StoredJob] = []
    for candidate in _newest(connection, query):
        if all(candidate.labels.get(key) == value for key, value in query.labels.items()):
            found.append(candidate)
            if len(found) == limit:
                break
    return found


def _newest(connection: sqlite3.Connection, query: JobQuery) -> Iterator[StoredJob]:
    conditions: list[str] = ["1"]
    values: list[Any] = []
    if query.below:
        conditions.append("key < ?")
        values.append(query.below)
    for column, among in (("tenant", query.tenants), ("state", sorted(query.states) or None)):
        if among is not None:
            conditions.append(f"{column} IN ({', '.join('?' * len(among))})")
            values += among
    sql = f"{_JOB} WHERE {' AND '.join(conditions)} ORDER BY key DESC"
    return map(_job, connection.execute(sql, values))


def results(
    connection: sqlite3.Connection, key: int, after: int, limit: int, not_succeeded: bool
) -> list[StoredResult]:
    """The next results of a job."""
    condition = f" AND outcome <> {int(ItemEnd.SUCCEEDED)}" if not_succeeded else ""
    rows = connection.execute(
        "SELECT number, place, custom_id, outcome, result FROM results WHERE job = ?"
        f" AND number > ?{condition} ORDER BY number LIMIT ?",
        (key, after, limit),
    )
    found: list[StoredResult] = []
    size = 0
    for number, place, custom_id, outcome, result in rows:
        found.append(StoredResult(number, place, custom_id, ItemEnd(outcome), result))
        size += len(result)
        if size >= RESULT_BYTES:
            break
    return found


def models(connection: sqlite3.Connection) -> list[str]:
    """For which items wait; by jumps through the index."""
    found: list[str] = []
    least = ""
    while True:
        row = connection.execute(
            "SELECT model FROM items INDEXED BY waiting WHERE ready = 1 AND model > ?"
            " ORDER BY model LIMIT 1",
            (least,),
        ).fetchone()
        if row is None:
            return found
        found.append(row[0])
        least = row[0]


def waiting(
    connection: sqlite3.Connection, model: str, limit: int, without: Sequence[int]
) -> list[ItemKey]:
    """What goes next."""
    rows = connection.execute(
        "SELECT job, place FROM items INDEXED BY waiting WHERE ready = 1 AND model = ?"
        f" AND job NOT IN ({', '.join('?' * len(without))})"
        " ORDER BY priority DESC, number LIMIT ?",
        (model, *without, limit),
    )
    return [ItemKey(*row) for row in rows]


def items(connection: sqlite3.Connection, keys: Sequence[ItemKey]) -> list[StoredItem]:
    """All about these."""
    found = []
    for key in keys:
        row = connection.execute(
            "SELECT tenant, job_id, model, request, due_ns, end_ns, traceparent"
            " FROM items JOIN jobs ON key = job WHERE job = ? AND place = ? AND closing = 0",
            (key.job, key.index),
        ).fetchone()
        if row is not None:
            found.append(StoredItem(key, *row))
    return found


def item(connection: sqlite3.Connection, tenant: str, job_id: str, index: int) -> StoredItem | None:
    """One item, by its names."""
    row = connection.execute(
        "SELECT key FROM jobs WHERE tenant = ? AND job_id = ?", (tenant, job_id)
    ).fetchone()
    if row is None:
        return None
    return next(iter(items(connection, [ItemKey(row[0], index)])), None)


def backlog(connection: sqlite3.Connection) -> dict[str, int]:
    """Waiting items by model."""
    rows = connection.execute(
        "SELECT model, count(*) FROM items INDEXED BY waiting WHERE ready = 1 GROUP BY model"
    )
    return dict(rows.fetchall())
