"""How do many small changes share a commit? One thread writes, and takes all that waits at once.

While a commit is on its way to the disk, further changes gather; the next transaction takes them
all, so that the rate does not fall with the disk's latency. If a transaction of several fails, each
is tried alone, so that a change fails for its own fault only.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from scheduler_service.jobs.store import JobConflict, StoreFailed

log = logging.getLogger(__name__)

Change = Callable[[sqlite3.Connection], Any]
R = TypeVar("R")
GROUP_MAX: Final = 256  # changes of one transaction
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class _Asked:
    """A change and who waits for it."""

    __slots__ = ("change", "error", "future", "value")

    def __init__(self, change: Change, future: asyncio.Future[Any]) -> None:
        self.change = change
        self.future = future
        self.value: Any = None
        self.error: Exception | None = None


class GroupWriter:
    """The one writer of a store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.commits = 0
        self.changes = 0  # that were committed
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="job-store", daemon=True)
        self._thread.start()

    async def write(self, change: Callable[[sqlite3.Connection], R]) -> R:
        """Carry out the change in a transaction; durable when this returns.

        Raises:
            StoreFailed: it could not be stored, and nothing of it was.
            JobConflict: what the change raised.
        """
        if self._closed:
            raise StoreFailed("the store is closed")
        future: asyncio.Future[R] = self._loop.create_future()
        self._queue.put(_Asked(change, future))
        # What has begun is carried out, also when whoever asked is gone.
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Carry out what was asked for, and end."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ending = False
        while not ending:
            asked = [self._queue.get()]
            while len(asked) < GROUP_MAX and not self._queue.empty():
                asked.append(self._queue.get())
            group = [each for each in asked if each is not None]
            ending = len(group) < len(asked)
            if group:
                self._carry_out(group)
                self._answer(group)
        self._connection.close()

    def _carry_out(self, group: Sequence[_Asked]) -> None:
        error = self._commit(group)
        if error is None:
            return
        if len(group) > 1 and not _is_locked(error):
            for each in group:
                each.error = self._commit([each])
        else:
            for each in group:
                each.error = error

    def _commit(self, group: Sequence[_Asked]) -> Exception | None:
        """One transaction; what went wrong with it, if anything."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for each in group:
                each.value = each.change(connection)
            connection.execute("COMMIT")
        except Exception as fault:  # of the disk, of the change, or ours: whoever asked is told
            self._roll_back()
            return fault
        self.commits += 1
        self.changes += len(group)
        return None

    def _roll_back(self) -> None:
        """Some faults have rolled it back already."""
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as fault:
                log.warning(
                    "a rollback of the job store failed: %s", fault, extra={"event": "store_failed"}
                )

    def _answer(self, group: Sequence[_Asked]) -> None:
        try:
            self._loop.call_soon_threadsafe(_tell, list(group))
        except RuntimeError:  # the loop has ended: nobody waits any more
            log.debug("%d changes were stored after the loop had ended", len(group))


def _tell(group: Sequence[_Asked]) -> None:
    for each in group:
        future = each.future
        if future.done():
            continue
        if each.error is None:
            future.set_result(each.value)
        else:
            future.set_exception(_as_ours(each.error))
            future.exception()  # whoever asked may have gone


def _is_locked(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in _LOCKED


def _as_ours(error: Exception) -> Exception:
    """Of the store or of the change; a fault of ours stays what it is."""
    if isinstance(error, JobConflict) or not isinstance(error, sqlite3.Error):
        return error
    failed = StoreFailed(describe(error))
    failed.__cause__ = error
    return failed


def describe(error: sqlite3.Error) -> str:
    """What is wrong, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "it is full: free disk space, or raise jobs.max_bytes"
    if code in _LOCKED:
        return "it is locked by another process"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"it is damaged ({error}); look at it with `batchyard jobs check`"
    return f"it cannot be written ({error})"
