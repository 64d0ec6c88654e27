"""Is a store of jobs sound? SQLite's own check of the file, then what must hold between rows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.jobs.kept import UNFINISHED, ItemEnd
from scheduler_service.jobs.schema import check_kind
from scheduler_service.jobs.sqlite import FILE, FOLDER
from scheduler_service.jobs.store import StoreDamaged

FAULTS_MAX: Final = 100

# What must find nothing: the text for each row that is found.
_RULES: Final = (
    (
        "SELECT job, place FROM items JOIN results USING (job, place)",
        "item {1} of job {0} has a result and is still to run",
    ),
    (
        "SELECT DISTINCT job FROM items WHERE job NOT IN (SELECT key FROM jobs)",
        "items of a job {0} that is not there",
    ),
    (
        "SELECT DISTINCT job FROM results WHERE job NOT IN (SELECT key FROM jobs)",
        "results of a job {0} that is not there",
    ),
)


@dataclass(slots=True)
class Found:
    """What a check has found."""

    path: str
    jobs: int = 0
    unfinished_jobs: int = 0
    items_to_run: int = 0
    results: int = 0
    faults: list[str] = field(default_factory=list)  # at most 100


def check(state_dir: Path) -> Found:
    """Look at all of the store below that folder; it is only read.

    Raises:
        StoreDamaged: there is none, or it cannot be read at all.
    """
    path = state_dir / FOLDER / FILE
    if not path.is_file():
        raise StoreDamaged(f"there is no store of jobs at {path}")
    found = Found(str(path))
    try:
        with contextlib.closing(_open(path)) as connection:
            check_kind(connection, path)
            for fault in _faults(connection):
                found.faults.append(fault)
                if len(found.faults) == FAULTS_MAX:
                    break
            _count(connection, found)
    except sqlite3.Error as fault:
        found.faults.append(f"it cannot be read to its end: {fault}")
    return found


def _open(path: Path) -> sqlite3.Connection:
    """To read one state of it. In a folder that cannot be written, as of a copy, SQLite reads only
    what nobody changes; nobody does where there is no log.
    """
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as fault:
        connection.close()
        is_closed = fault.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN
        if not is_closed or path.with_name(f"{path.name}-wal").exists():
            raise
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        connection.execute("BEGIN")
    return connection


def _faults(connection: sqlite3.Connection) -> Iterator[str]:
    """By SQLite's own word first: where the file is broken, the rows say nothing."""
    words = [word for (word,) in connection.execute("PRAGMA integrity_check(100)")]
    if words != ["ok"]:
        yield from words
        return
    for sql, text in _RULES:
        for row in connection.execute(sql):
            yield text.format(*row)
    yield from _miscounted(connection)


def _miscounted(connection: sqlite3.Connection) -> Iterator[str]:
    """Of the jobs that are not being deleted, which goes in steps."""
    clock = Clock()
    names = [end.name.lower() for end in ItemEnd]
    sums = ", ".join(
        f"(SELECT count(*) FROM results WHERE job = key AND outcome = {int(end)})"
        for end in ItemEnd
    )
    rows = connection.execute(
        "SELECT key, total, (SELECT count(*) FROM items WHERE job = key),"
        f" {', '.join(names)}, {sums} FROM jobs WHERE delete_ns = 0 OR delete_ns > ?",
        (clock.wall_ns(clock.now()),),
    )
    for key, total, to_run, *counts in rows:
        stated, real = counts[: len(names)], counts[len(names) :]
        if total != to_run + sum(real):
            yield f"job {key} has {total} items: {to_run} to run and {sum(real)} results are there"
        for name, said, there in zip(names, stated, real, strict=True):
            if said != there:
                yield f"job {key} says that {said} items {name}; there are {there}"


def _count(connection: sqlite3.Connection, found: Found) -> None:
    def one(sql: str) -> int:
        return int(connection.execute(sql).fetchone()[0])

    states = ", ".join(str(int(state)) for state in sorted(UNFINISHED))
    found.jobs = one("SELECT count(*) FROM jobs")
    found.unfinished_jobs = one(f"SELECT count(*) FROM jobs WHERE state IN ({states})")
    found.items_to_run = one("SELECT count(*) FROM items")
    found.results = one("SELECT count(*) FROM results")
