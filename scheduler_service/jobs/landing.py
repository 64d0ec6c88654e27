"""How do results come into the store, and what waits until they are there?

An agent may forget a job item's result only when it is stored. So acknowledgements go through here:
each waits for the results that came before it, in order. While the store fails, results are kept
and tried again, and no new items are fed in, so they are as many as the window at most. An
acknowledgement waits no longer than `HOLD`: after that a result is the scheduler's alone to keep,
and should it end before the store is well again, the item runs once more; none is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core.types import SECOND, Instant
from scheduler_service.jobs.kept import ItemResult, StoredJob
from scheduler_service.jobs.store import Store, StoreFailed

log = logging.getLogger(__name__)

GROUP_MAX: Final = 512  # results of one change
HOLD: Final = 30 * SECOND
AGAIN_S: Final = 1.0  # after a failure

Stored = Callable[[Sequence[ItemResult], Sequence[StoredJob]], None]


class Landing:
    """Results on their way into the store. All methods are for the loop's thread."""

    def __init__(self, store: Store, clock: Clock, *, wall_ns: Callable[[], int]) -> None:
        self.on_stored: Stored | None = None  # told of results that are stored, and their jobs
        self.failing = ""  # why the last try failed; empty: it did not
        self._store = store
        self._clock = clock
        self._wall_ns = wall_ns
        self._waiting: deque[ItemResult] = deque()
        self._came = 0  # results so far
        self._stored = 0
        self._held: deque[tuple[int, Instant, Callable[[], None]]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to store."""
        self._task = asyncio.create_task(self._run(), name="job results")

    async def stop(self, within_s: float) -> None:
        """Store what is there, unless that takes longer; what is left runs again one day."""
        if self._task is None:
            return
        try:
            await asyncio.wait_for(self._idle.wait(), within_s)
        except TimeoutError:
            log.warning(
                "%d results were not stored: %s",
                len(self._waiting),
                self.failing,
                extra={"event": "results_not_stored"},
            )
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def add(self, result: ItemResult) -> None:
        """Store it as soon as possible."""
        self._came += 1
        self._waiting.append(result)
        self._idle.clear()
        self._wake.set()

    def after(self, act: Callable[[], None]) -> None:
        """Do it when all results that came so far are stored; at once, if they are."""
        if self._stored == self._came and not self._held:
            act()
        else:
            self._held.append((self._came, self._clock.now(), act))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                group = [self._waiting[n] for n in range(min(GROUP_MAX, len(self._waiting)))]
                if not await self._save(group):
                    await asyncio.sleep(AGAIN_S)

    async def _save(self, group: Sequence[ItemResult]) -> bool:
        try:
            jobs = await self._store.finish(group, self._wall_ns())
        except StoreFailed as fault:
            self._note(str(fault))
            self._release(self._clock.now() - HOLD)
            return False
        except Exception:  # ours: the results must not be lost for it
            log.exception("results cannot be stored", extra={"event": "results_not_stored"})
            self._note("a fault of the scheduler itself")
            return False
        self._note("")
        for _ in group:
            self._waiting.popleft()
        self._stored += len(group)
        if not self._waiting:
            self._idle.set()
        if self.on_stored is not None:
            self.on_stored(group, jobs)
        self._release(0)
        return True

    def _note(self, failing: str) -> None:
        if failing != self.failing:
            if failing:
                text = "results of job items cannot be stored: %s"
                log.error(text, failing, extra={"event": "store_failed"})
            else:
                log.info("results of job items are stored again", extra={"event": "store_works"})
        self.failing = failing

    def _release(self, before: Instant) -> None:
        """What has waited for what is stored by now, or since before that instant."""
        held = self._held
        while held and (held[0][0] <= self._stored or held[0][1] < before):
            act = held.popleft()[2]
            try:
                act()
            except Exception:  # an edge's fault must not stop the results of others
                log.exception("an acknowledgement failed", extra={"event": "effect_failed"})
