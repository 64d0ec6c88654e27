"""How do jobs lie in SQLite, and how is a file of them opened?

An item's row exists while it has no result: the transaction that adds the result takes the row
away, so that no item can have two. Counters of a job are kept in its row, in the same transactions.

The file is private (0600, its folder 0700). WAL with synchronous=FULL: a commit is on the disk when
it returns, and a tail of the log that was torn by a crash is recognised by its checksums and left
out; what was committed before it is there.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from scheduler_service.jobs import inputs
from scheduler_service.jobs.store import StoreDamaged

VERSION: Final = 1
APPLICATION_ID: Final = 0x62796A73  # "byjs"
PAGE_BYTES: Final = 4096
_LOCK_WAIT_MS: Final = 1_000
_LOG_BYTES: Final = 64 << 20  # to which the write-ahead log is cut after a checkpoint

_TABLES: Final = (
    """CREATE TABLE jobs (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        state INTEGER NOT NULL,
        body_hash BLOB NOT NULL,
        defaults BLOB NOT NULL,
        labels TEXT NOT NULL,
        traceparent TEXT NOT NULL,
        created_ns INTEGER NOT NULL,
        started_ns INTEGER NOT NULL DEFAULT 0,
        ended_ns INTEGER NOT NULL DEFAULT 0,
        due_ns INTEGER NOT NULL,
        ttl_ns INTEGER NOT NULL,
        delete_ns INTEGER NOT NULL DEFAULT 0,
        closing INTEGER NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '',
        total INTEGER NOT NULL,
        succeeded INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        cancelled INTEGER NOT NULL DEFAULT 0,
        expired INTEGER NOT NULL DEFAULT 0,
        preempted INTEGER NOT NULL DEFAULT 0,
        input_tokens INTEGER NOT NULL DEFAULT 0,
        output_tokens INTEGER NOT NULL DEFAULT 0,
        cached_input_tokens INTEGER NOT NULL DEFAULT 0,
        reasoning_output_tokens INTEGER NOT NULL DEFAULT 0,
        wasted_output_tokens INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant, job_id))""",
    """CREATE TABLE items (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        job INTEGER NOT NULL,
        place INTEGER NOT NULL,
        custom_id TEXT NOT NULL,
        model TEXT NOT NULL,
        priority INTEGER NOT NULL,
        ready INTEGER NOT NULL,
        request BLOB NOT NULL,
        end_ns INTEGER NOT NULL DEFAULT 0,
        UNIQUE (job, place))""",
    """CREATE TABLE results (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        job INTEGER NOT NULL,
        place INTEGER NOT NULL,
        custom_id TEXT NOT NULL,
        outcome INTEGER NOT NULL,
        result BLOB NOT NULL,
        UNIQUE (job, place))""",
    "CREATE UNIQUE INDEX custom_ids ON items (job, custom_id) WHERE custom_id <> ''",
    "CREATE INDEX waiting ON items (model, priority DESC, number, job, place) WHERE ready = 1",
    "CREATE INDEX of_job ON results (job, number)",
    "CREATE INDEX closing ON jobs (key) WHERE closing <> 0 AND ended_ns = 0",
    "CREATE INDEX due ON jobs (due_ns) WHERE due_ns <> 0 AND closing = 0 AND ended_ns = 0",
    "CREATE INDEX deletable ON jobs (delete_ns) WHERE delete_ns <> 0",
)


def open_writer(path: Path, max_bytes: int) -> sqlite3.Connection:
    """The connection that writes; makes the file where there is none.

    Raises:
        StoreDamaged: it is no such store, is damaged, or is of a newer version.
    """
    try:
        _make_private(path)
        connection = _connect(path)
    except (OSError, sqlite3.Error) as fault:
        raise StoreDamaged(f"the store of jobs {path} cannot be opened: {fault}") from fault
    try:
        _prepare(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")
    except sqlite3.Error as fault:
        connection.close()
        raise StoreDamaged(
            f"the store of jobs {path} is damaged ({fault}): look at it with `batchyard jobs "
            "check`, restore it, or move it away to begin without jobs"
        ) from fault
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads; the file exists."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_MS}")
    return connection


def _make_private(path: Path) -> None:
    """SQLite gives its log the rights of the file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; check that an old one is ours, whole and readable."""
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in (*_TABLES, inputs.TABLE):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        return
    check_kind(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(inputs.TABLE)  # younger than the first stores, as is this column
    if all(row[1] != "end_ns" for row in connection.execute("PRAGMA table_info(items)")):
        connection.execute("ALTER TABLE items ADD COLUMN end_ns INTEGER NOT NULL DEFAULT 0")
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if path.stat().st_size < pages * PAGE_BYTES:
        raise sqlite3.DatabaseError(f"it is cut off: {pages} pages are missing in part")


def check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreDamaged where the file is no store of ours, or a newer scheduler's."""
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != APPLICATION_ID:
        raise StoreDamaged(f"{path} is a database, but no store of jobs: move it away")
    if version > VERSION:
        raise StoreDamaged(
            f"the store of jobs {path} has version {version}; this scheduler knows {VERSION}: "
            "start the newer scheduler that wrote it, or move it away to begin without jobs"
        )
