"""Is input that comes again the same as before? Jobs whose input comes in several messages.

Each item has a digest of what the caller gave. They are kept until the job is deleted, for a caller
who was cut off sends all of it again, also when items have their results already, and may cut it
differently. Without them another file under the same id would pass for a repeat wherever it is as
long as the first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from scheduler_service.jobs.kept import NewItem

TABLE: Final = """CREATE TABLE IF NOT EXISTS inputs (
    job INTEGER NOT NULL,
    place INTEGER NOT NULL,
    digests BLOB NOT NULL,
    PRIMARY KEY (job, place))"""
DIGEST_BYTES: Final = 8  # of each item, in the order of their places from `place` on


def digest(given: bytes) -> bytes:
    """Of an item as its caller gave it."""
    return blake2b(given, digest_size=DIGEST_BYTES).digest()


def note(connection: sqlite3.Connection, job: int, place: int, items: Sequence[NewItem]) -> None:
    """These items were added from that place on."""
    if items:
        digests = b"".join(item.digest for item in items)
        connection.execute("INSERT INTO inputs VALUES (?, ?, ?)", (job, place, digests))


def is_same(connection: sqlite3.Connection, job: int, place: int, items: Sequence[NewItem]) -> bool:
    """Whether these are the items that were added at these places; true where none is known."""
    given = b"".join(item.digest for item in items)
    rows = connection.execute(
        "SELECT place, digests FROM inputs WHERE job = ? AND place < ? AND place + length(digests)"
        " / ? > ?",
        (job, place + len(items), DIGEST_BYTES, place),
    )
    for begin, digests in rows:
        shift = (begin - place) * DIGEST_BYTES
        theirs = digests[max(0, -shift) :]
        mine = given[max(0, shift) : max(0, shift) + len(theirs)]
        if mine != theirs[: len(mine)]:
            return False
    return True


def forget(connection: sqlite3.Connection, job: int) -> None:
    """The job is deleted."""
    connection.execute("DELETE FROM inputs WHERE job = ?", (job,))
