"""How do store, feeder and those who ask come together? One keeper for all jobs of a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core.outcomes import RequestState
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from scheduler_service.jobs.feeder import Feeder
from scheduler_service.jobs.kept import (
    ItemResult,
    JobState,
    NewItem,
    NewJob,
    StoredJob,
)
from scheduler_service.jobs.landing import Landing
from scheduler_service.jobs.store import JobQuery, Store, StoreFailed
from scheduler_service.jobs.telling import Teller
from scheduler_service.jobs.watchers import Watchers

log = logging.getLogger(__name__)

TIDY_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 0.25  # at what runs, for those who watch
_PENDING: Final = 10_000  # jobs whose start is noted after a restart
STORE_S: Final = 5.0  # at the end, for results that wait to be stored
_RUNS: Final = (RequestState.DISPATCHED, RequestState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What is accepted."""

    max_items: int = 100_000  # of one job
    ttl: Duration = 7 * 24 * 3600 * SECOND
    max_ttl: Duration = 30 * 24 * 3600 * SECOND


@dataclass(slots=True)
class Live:
    """What of a job is in motion: known here, and not in the store."""

    running: int = 0  # items on a node
    preempted: int = 0  # times that items in the core made room
    started_at: Instant = 0  # of the first item, where the store does not know it yet; 0: none


class WallClock:
    """Wall time that goes evenly: read once, and monotonic from then on.

    Lengths of days that outlive the process (time to live, completion window) are kept as wall
    time. A step of the system's clock while this runs must neither end a job nor delete it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._offset = clock.wall_ns(now) - now

    def ns(self) -> int:
        """Now."""
        return self._clock.now() + self._offset

    def instant(self, wall_ns: int) -> Instant:
        """The monotonic instant of a wall time."""
        return max(1, wall_ns - self._offset)

    def at(self, instant: Instant) -> int:
        """The wall time of a monotonic instant."""
        return instant + self._offset


@dataclass(slots=True, kw_only=True)
class JobKeeper:
    """Everything about jobs. All methods are for the loop's thread."""

    store: Store
    feeder: Feeder
    landing: Landing
    clock: Clock
    wall: WallClock
    limits: JobLimits
    teller: Teller
    watchers: Watchers = field(default_factory=Watchers)
    _open_items: int = 0  # stored, may run, and without a result
    stopping: bool = False
    _tidy: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _unstarted: dict[int, None] = field(default_factory=dict)  # keys: no item was dispatched yet

    async def start(self) -> None:
        """Go on with what the store has."""
        self.landing.start()
        pending = await self.store.find(JobQuery(states=frozenset({JobState.PENDING})), _PENDING)
        self._unstarted = {job.key: None for job in pending if not job.started_ns}
        self._open_items = sum((await self.store.backlog()).values())
        await self.feeder.start()
        for work, name in ((self._keep_tidy, "tidying of jobs"), (self._look, "watch of jobs")):
            self._tasks.append(asyncio.create_task(_for_ever(work), name=name))

    async def stop_feeding(self) -> None:
        """Nothing new starts; what runs goes on."""
        self.stopping = True
        self.watchers.wake_all()
        await self.feeder.stop()

    async def close(self) -> None:
        """Store what has ended, and close the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.landing.stop(STORE_S)
        await self.store.close()

    # Jobs.

    async def create(self, job: NewJob) -> tuple[StoredJob, bool]:
        """Store a job, and let it run. See `Store.create`."""
        stored, new = await self.store.create(job)
        if new and stored.state is not JobState.RECEIVING:
            self._begin(stored, job.items)
        return stored, new

    async def append(
        self, job: StoredJob, start_index: int, items: Sequence[NewItem], *, last: bool
    ) -> StoredJob:
        """Add input to a job. See `Store.append`."""
        grown = await self.store.append(job, start_index, items, last=last, now_ns=self.wall.ns())
        if last and grown.state is JobState.PENDING:
            self._begin(grown, ())
            self.feeder.stored(await self.store.models())
        self.watchers.changed([grown.key])
        return grown

    def _begin(self, job: StoredJob, items: Sequence[NewItem]) -> None:
        self.teller.created(job)
        self._unstarted[job.key] = None
        self.feeder.stored(list(dict.fromkeys(item.model for item in items)))
        self._open_items += job.total
        if not job.total or job.due_ns:
            self._tidy.set()

    async def cancel(self, job: StoredJob, reason: str) -> StoredJob:
        """Start nothing more of it, stop what runs; the rest ends as cancelled."""
        cancelled = await self.store.cancel(job.key, reason, self.wall.ns())
        if not job.finished:
            self.teller.cancelled(cancelled, reason)
        if cancelled.finished:
            self.teller.finished(cancelled)
        else:
            self.feeder.close_job(job.key)
            self._tidy.set()
        self.watchers.changed([job.key])
        return cancelled

    def live(self, job: StoredJob) -> Live:
        """What of it is in motion."""
        live = Live()
        if job.finished:
            return live
        for request in self.feeder.of_job(job.key):
            _add(live, request)
        return live

    def landed(self, results: Sequence[ItemResult], jobs: Sequence[StoredJob]) -> None:
        """These results are stored; of these jobs."""
        self.feeder.landed(results)
        self._open_items -= len(results)
        self._changed(jobs)

    def _changed(self, jobs: Sequence[StoredJob]) -> None:
        for job in jobs:
            if job.finished:
                self.teller.finished(job)
                self.feeder.forget_job(job.key)
                self._unstarted.pop(job.key, None)
        self.watchers.changed(job.key for job in jobs)

    def waiting_items(self) -> int:
        """Items in the store that may run and are not fed in; counted anew every few seconds."""
        return max(0, self._open_items - self.feeder.taken)

    # What goes on by itself.

    async def _keep_tidy(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tidy.wait(), TIDY_EVERY_S)
        self._tidy.clear()
        more = True
        while more:
            swept = await self.store.sweep(self.wall.ns())
            self._changed(swept.changed)
            more = swept.more
        self._open_items = sum((await self.store.backlog()).values())

    async def _look(self) -> None:
        """Note first dispatches, and tell those who watch what only shows here."""
        await asyncio.sleep(LOOK_EVERY_S)
        if self._unstarted:
            began: dict[int, int] = {}
            for key, request in self.feeder.jobs():
                at = request.first_dispatch_at
                if key in self._unstarted and at:
                    wall = self.wall.ns() - (self.clock.now() - at)
                    began[key] = min(began.get(key, wall), wall)
            if began:
                await self.store.note_started(began)
                for key in began:
                    self._unstarted.pop(key, None)
        self.watchers.changed(self.watchers.watched())


def _add(live: Live, request: Request) -> None:
    live.running += request.state in _RUNS
    live.preempted += request.preemptions
    at = request.first_dispatch_at
    if at and (not live.started_at or at < live.started_at):
        live.started_at = at


async def _for_ever(work: Callable[[], object]) -> None:
    """Do it again and again; a store that fails now may work later."""
    while True:
        try:
            await work()  # type: ignore[misc]
        except StoreFailed as fault:
            log.warning("jobs: %s", fault, extra={"event": "store_failed"})
            await asyncio.sleep(TIDY_EVERY_S)
        except Exception:  # ours: jobs must not stand still for it
            log.exception("care of jobs failed and goes on", extra={"event": "keeper_failed"})
            await asyncio.sleep(TIDY_EVERY_S)
