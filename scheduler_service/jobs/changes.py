"""How does each change of the store read in SQL? Each function runs inside a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Final

from scheduler_service.jobs import inputs, reads
from scheduler_service.jobs.kept import (
    Closing,
    ItemEnd,
    ItemKey,
    ItemResult,
    JobState,
    NewItem,
    NewJob,
    StoredJob,
    Used,
)
from scheduler_service.jobs.store import (
    CustomIdTaken,
    InputGap,
    JobIdTaken,
    NotReceiving,
    Swept,
)

SWEEP_ROWS: Final = 1_000  # of items or results in one step
CLOSE_AFTER_NS: Final = 1_000_000_000  # items that run get their own end first
_COUNTER: Final = {
    ItemEnd.SUCCEEDED: "succeeded",
    ItemEnd.FAILED: "failed",
    ItemEnd.CANCELLED: "cancelled",
    ItemEnd.EXPIRED: "expired",
}


def create(connection: sqlite3.Connection, new: NewJob) -> tuple[StoredJob, bool]:
    """A job with its items, or the one that is there already."""
    found = reads.job(connection, new.tenant, new.job_id)
    if found is not None:
        if found.body_hash != new.body_hash:
            raise JobIdTaken(f"job {new.job_id!r} is there with another body")
        return found, False
    state = JobState.RECEIVING if new.receiving else JobState.PENDING
    due = new.created_ns + new.window_ns if new.window_ns else 0
    delete = new.created_ns + new.ttl_ns if new.receiving else 0
    cursor = connection.execute(
        "INSERT INTO jobs (tenant, job_id, state, body_hash, defaults, labels, traceparent,"
        " created_ns, due_ns, ttl_ns, delete_ns, total)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.tenant, new.job_id, state, new.body_hash, new.defaults,
            json.dumps(dict(new.labels)), new.traceparent, new.created_ns, due, new.ttl_ns, delete,
            len(new.items),
        ),
    )  # fmt: skip
    key = cursor.lastrowid
    assert key is not None
    _add_items(connection, key, 0, new.items, ready=not new.receiving)
    if new.receiving:
        inputs.note(connection, key, 0, new.items)
    return _again(connection, key), True


def append(
    connection: sqlite3.Connection,
    key: int,
    start_index: int,
    items: Sequence[NewItem],
    *,
    last: bool,
    now_ns: int,
) -> StoredJob:
    """Add items to a job that is received; what came before is compared, and left out."""
    job = _again(connection, key)
    if start_index > job.total:
        raise InputGap(job.total)
    known = job.total - start_index
    fresh = items[known:]
    ends_early = last and len(items) < known
    if ends_early or not inputs.is_same(connection, key, start_index, items[:known]):
        raise JobIdTaken(f"job {job.job_id!r} is there with other items")
    if job.state is not JobState.RECEIVING:
        if fresh:
            what = "was cancelled" if job.closing is Closing.CANCELLED else "has all its input"
            raise NotReceiving(f"job {job.job_id!r} is there, and {what}")
        return job
    _add_items(connection, key, job.total, fresh, ready=False)
    inputs.note(connection, key, job.total, fresh)
    delete = now_ns + job.ttl_ns
    total = job.total + len(fresh)
    connection.execute(
        "UPDATE jobs SET total = ?, delete_ns = ? WHERE key = ?", (total, delete, key)
    )
    if last:
        connection.execute("UPDATE items SET ready = 1 WHERE job = ?", (key,))
        connection.execute(
            "UPDATE jobs SET state = ?, delete_ns = 0 WHERE key = ?", (JobState.PENDING, key)
        )
    return _again(connection, key)


def _add_items(
    connection: sqlite3.Connection, job: int, start: int, items: Sequence[NewItem], *, ready: bool
) -> None:
    rows = (
        (job, start + n, item.custom_id, item.model, item.priority, ready, item.request)
        for n, item in enumerate(items)
    )
    try:
        connection.executemany(
            "INSERT INTO items (job, place, custom_id, model, priority, ready, request)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    except sqlite3.IntegrityError:
        raise CustomIdTaken(_taken(connection, job, items)) from None


def _taken(connection: sqlite3.Connection, job: int, items: Sequence[NewItem]) -> str:
    """Which custom id was given twice. The statement that failed has added some of them."""
    seen: set[str] = set()
    for item in items:
        if item.custom_id in seen:
            return item.custom_id
        if item.custom_id:
            seen.add(item.custom_id)
    rows = connection.execute("SELECT custom_id FROM items WHERE job = ?", (job,))
    return next((name for (name,) in rows if name in seen), "")


def cancel(connection: sqlite3.Connection, key: int, reason: str, now_ns: int) -> StoredJob:
    """Let nothing more of it start."""
    job = _again(connection, key)
    if job.finished or job.closing is not Closing.NOT:
        return job
    connection.execute(
        "UPDATE jobs SET state = ?, closing = ?, reason = ?, delete_ns = 0 WHERE key = ?",
        (JobState.CANCELLING, Closing.CANCELLED, reason, key),
    )
    return _end(connection, key, now_ns)


def note_started(connection: sqlite3.Connection, jobs: Mapping[int, int]) -> None:
    """The first item of each was dispatched."""
    connection.executemany(
        "UPDATE jobs SET started_ns = ?, state = CASE state WHEN ? THEN ? ELSE state END"
        " WHERE key = ? AND started_ns = 0",
        [(at, JobState.PENDING, JobState.RUNNING, key) for key, at in jobs.items()],
    )


def note_ends(connection: sqlite3.Connection, ends: Mapping[ItemKey, int]) -> None:
    """When the time of each of these is over; what was said first counts."""
    connection.executemany(
        "UPDATE items SET end_ns = ? WHERE job = ? AND place = ? AND end_ns = 0",
        [(end, key.job, key.index) for key, end in ends.items()],
    )


def finish(
    connection: sqlite3.Connection, results: Sequence[ItemResult], now_ns: int
) -> list[StoredJob]:
    """The first result of an item counts."""
    kept: dict[int, list[ItemResult]] = {}
    for result in results:
        place = (result.key.job, result.key.index)
        row = connection.execute(
            "DELETE FROM items WHERE job = ? AND place = ? RETURNING custom_id", place
        ).fetchone()
        if row is None:
            continue
        connection.execute(
            "INSERT INTO results (job, place, custom_id, outcome, result) VALUES (?, ?, ?, ?, ?)",
            (*place, row[0], result.end, result.result),
        )
        kept.setdefault(result.key.job, []).append(result)
    began: dict[int, int] = {}
    for key, mine in kept.items():
        _count(connection, key, mine)
        starts = [result.started_ns for result in mine if result.started_ns]
        if starts:
            began[key] = min(starts)
    note_started(connection, began)
    return [_end(connection, key, now_ns) for key in kept]


def _count(connection: sqlite3.Connection, key: int, results: Sequence[ItemResult]) -> None:
    counts = dict.fromkeys(_COUNTER, 0)
    used = [0] * len(astuple(Used()))
    preempted = 0
    for result in results:
        counts[result.end] += 1
        preempted += result.preemptions
        used = [a + b for a, b in zip(used, astuple(result.used), strict=True)]
    connection.execute(
        "UPDATE jobs SET succeeded = succeeded + ?, failed = failed + ?, cancelled = cancelled + ?,"
        " expired = expired + ?, preempted = preempted + ?, input_tokens = input_tokens + ?,"
        " output_tokens = output_tokens + ?, cached_input_tokens = cached_input_tokens + ?,"
        " reasoning_output_tokens = reasoning_output_tokens + ?,"
        " wasted_output_tokens = wasted_output_tokens + ? WHERE key = ?",
        (*counts.values(), preempted, *used, key),
    )


def _end(connection: sqlite3.Connection, key: int, now_ns: int) -> StoredJob:
    """The job; it has reached its end where no item is left."""
    job = _again(connection, key)
    if job.left or job.finished or job.state is JobState.RECEIVING:
        return job
    connection.execute(
        "UPDATE jobs SET state = ?, ended_ns = ?, delete_ns = ? WHERE key = ?",
        (_final_state(job), now_ns, now_ns + job.ttl_ns, key),
    )
    return _again(connection, key)


def _final_state(job: StoredJob) -> JobState:
    if job.closing is Closing.CANCELLED:
        return JobState.CANCELLED
    if job.closing is Closing.EXPIRED:
        return JobState.EXPIRED
    if job.succeeded == job.total:
        return JobState.SUCCEEDED
    return JobState.PARTIALLY_SUCCEEDED if job.succeeded else JobState.FAILED


def sweep(connection: sqlite3.Connection, now_ns: int) -> Swept:
    """One bounded step of tidying; each can be the last, the next goes on from there."""
    swept = Swept()
    over = now_ns - CLOSE_AFTER_NS
    connection.execute(
        "UPDATE jobs SET closing = ? WHERE due_ns <> 0 AND due_ns <= ? AND closing = 0"
        " AND ended_ns = 0 AND state <> ?",
        (Closing.EXPIRED, over, JobState.RECEIVING),
    )
    connection.execute(
        "UPDATE jobs SET closing = ?, state = ?, delete_ns = 0 WHERE due_ns <> 0 AND due_ns <= ?"
        " AND closing = 0 AND ended_ns = 0 AND state = ?",
        (Closing.EXPIRED, JobState.PENDING, over, JobState.RECEIVING),
    )
    room = SWEEP_ROWS
    closing = connection.execute("SELECT key FROM jobs WHERE closing <> 0 AND ended_ns = 0")
    for (key,) in closing.fetchall():
        if room <= 0:
            swept.more = True
            break
        room -= _end_items(connection, key, room)
        swept.changed.append(_end(connection, key, now_ns))
        swept.more |= not swept.changed[-1].finished
    _delete(connection, now_ns, room, swept)
    return swept


def _end_items(connection: sqlite3.Connection, key: int, room: int) -> int:
    """Give items of a closing job their end; how many."""
    closing = _again(connection, key).closing
    end = ItemEnd.CANCELLED if closing is Closing.CANCELLED else ItemEnd.EXPIRED
    rows = connection.execute(
        "SELECT place, custom_id FROM items WHERE job = ? ORDER BY place LIMIT ?", (key, room)
    ).fetchall()
    if not rows:
        return 0
    connection.executemany(
        "INSERT INTO results (job, place, custom_id, outcome, result) VALUES (?, ?, ?, ?, x'')",
        [(key, place, custom_id, end) for place, custom_id in rows],
    )
    connection.execute("DELETE FROM items WHERE job = ? AND place <= ?", (key, rows[-1][0]))
    _count(connection, key, [ItemResult(ItemKey(key, place), end, b"") for place, _ in rows])
    return len(rows)


def _delete(connection: sqlite3.Connection, now_ns: int, room: int, swept: Swept) -> None:
    """Jobs whose time to live is over, with all that is theirs."""
    old = connection.execute(
        "SELECT key FROM jobs WHERE delete_ns <> 0 AND delete_ns <= ?", (now_ns,)
    ).fetchall()
    for (key,) in old:
        for table in ("results", "items"):
            if room > 0:
                room -= connection.execute(
                    f"DELETE FROM {table} WHERE number IN"
                    f" (SELECT number FROM {table} WHERE job = ? LIMIT ?)",
                    (key, room),
                ).rowcount
        if room <= 0:
            swept.more = True
            return
        inputs.forget(connection, key)
        connection.execute("DELETE FROM jobs WHERE key = ?", (key,))
        swept.deleted += 1
    if swept.deleted:
        connection.execute("PRAGMA incremental_vacuum(1000)").fetchall()


def _again(connection: sqlite3.Connection, key: int) -> StoredJob:
    found: Iterable[StoredJob] = reads.jobs_by_keys(connection, [key])
    job = next(iter(found), None)
    if job is None:
        raise NotReceiving("the job has been deleted meanwhile")
    return job
