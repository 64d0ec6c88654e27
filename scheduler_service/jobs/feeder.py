"""How do stored items reach the core? Through a window for each model, refilled from the store.

Theory of operation. An item is in the store until its result is; while it is `Taken` it is also
here, in one of three places:

    store --fed--> in the core --its end--> landing --stored--> gone
               ^        | the scheduler could not take it now, or failed itself
               +-- put back, for later

The window of a model is a few times the slots that live nodes have for it, so that a slot never
waits for the store and a job of any length needs little memory. No live node: nothing is fed, and a
job waits for as long as it takes. A model that no node has ever had is waited for, too, but not
for ever (`unknown_model_grace`): then its items are fed, and refused as any request for it.

The order is the core's: by priority, then by age. What is fed is what comes first in that order, of
all that is stored for the model.

Exactly one result: an item is fed only while its row is in the store and it is not taken already;
its row goes with its result. After a restart what has no result is fed again, unless an agent
brings it back (`adopt`).

An item's own timeout begins when it is first fed in. When that is over is stored, so that a
restart does not begin it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from batchyard.v1 import types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import Reason, RequestState
from scheduler_service.core.state import State
from scheduler_service.core.types import NEVER, SECOND, Duration, Instant, Request
from scheduler_service.driver import Driver
from scheduler_service.jobs.kept import ItemKey, ItemResult, StoredItem, split_request_id
from scheduler_service.jobs.landing import Landing
from scheduler_service.jobs.requests import Taken, make_entry, result_of
from scheduler_service.jobs.store import Store, StoreFailed
from scheduler_service.quarantine import Quarantine
from scheduler_service.rpc import status
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.results import ResultBuilder, failed
from scheduler_service.rpc.validate import Refused
from scheduler_service.security.quotas import Quotas

log = logging.getLogger(__name__)

WINDOW_MIN: Final = 4  # items of a model, where it has a live node
LOOK_S: Final = 0.5  # at nodes that came, and items that are due again
PAUSE: Final = 1 * SECOND  # before an item that could not be taken is fed again
PAUSE_MAX: Final = 30 * SECOND
BACK: Final = 10 * SECOND  # for what an agent brings back after its time: its end is on the way
FAULTS_MAX: Final = 3  # of the scheduler itself that an item outlives

# Not the item's end: the scheduler could not take it now, and says when that may change.
_LATER: Final = frozenset(
    {
        Reason.QUEUE_FULL,
        Reason.SHED,
        Reason.QUOTA_EXCEEDED,
        Reason.NO_CAPACITY,
        Reason.RETRY_BUDGET_EXHAUSTED,
        Reason.SCHEDULER_STARTING,
        Reason.SCHEDULER_DRAINING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """How much is fed at a time."""

    window: float = 3.0  # times the slots of a model
    max_window: int = 1_000  # items of a model
    unknown_model_grace: Duration = 600 * SECOND


# The tracer decides whether an item is sampled. The traceparent is of the call that created its
# job: to be linked, not to be its parent.
OnEntry = Callable[[Entry, str], None]


class Feeder:
    """Feeds items in. All methods are for the loop's thread."""

    def __init__(
        self,
        *,
        store: Store,
        landing: Landing,
        driver: Driver,
        converter: Converter,
        clock: Clock,
        next_rid: Callable[[], int],
        due_instant: Callable[[int], Instant],
        wall_ns: Callable[[Instant], int],
        settings: FeedSettings,
        quotas: Quotas | None = None,
        quarantine: Quarantine | None = None,
        on_entry: OnEntry | None = None,
    ) -> None:
        self._store = store
        self._landing = landing
        self._driver = driver
        self._converter = converter
        self._clock = clock
        self._next_rid = next_rid
        self._due_instant = due_instant
        self._wall_ns = wall_ns
        self._ends: dict[ItemKey, int] = {}  # not stored yet: when their own time is over
        self._settings = settings
        self._quotas = quotas
        self._quarantine = quarantine
        self._on_entry = on_entry
        self._taken: dict[ItemKey, Taken] = {}
        self._by_rid: dict[int, Taken] = {}  # those in the core
        self._of_model: Counter[str] = Counter()  # taken, by model
        self._models: dict[str, None] = {}  # for which items may wait in the store
        self._unknown_since: dict[str, Instant] = {}
        self._closed: set[int] = set()  # keys of jobs of which nothing more may start
        self._held_until: dict[int, Instant] = {}  # jobs whose tenants are at a limit, by key
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Begin with what the store has."""
        self._models = dict.fromkeys(await self._store.models())
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="job feeder")

    async def stop(self) -> None:
        """Feed no more, and withdraw what no node has; what runs is left to run."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for taken in list(self._by_rid.values()):
            assert taken.entry is not None
            if taken.entry.request.state is RequestState.QUEUED:
                rid = taken.entry.request.rid
                self._driver.cancel(rid, Reason.SCHEDULER_DRAINING, "the scheduler stops")

    def let_go(self) -> None:
        """Nodes go on with what they have, for the next scheduler: no end counts any more here."""
        for taken in self._by_rid.values():
            taken.entry = None
        self._by_rid.clear()

    def stored(self, models: Sequence[str]) -> None:
        """Items for these models were stored."""
        self._models.update(dict.fromkeys(models))
        self._wake.set()

    def close_job(self, job: int) -> None:
        """It was cancelled: stop what runs of it, and start nothing more."""
        self._closed.add(job)
        for taken in [t for t in self._taken.values() if t.item.key.job == job]:
            if taken.entry is not None:
                rid = taken.entry.request.rid
                self._driver.cancel(rid, Reason.CANCELLED_BY_CLIENT, "its job was cancelled")
            elif taken.not_before:
                self._let_go(taken.item.key)

    def forget_job(self, job: int) -> None:
        """It has ended: none of its items is in the store."""
        self._closed.discard(job)

    def landed(self, results: Sequence[ItemResult]) -> None:
        """These are stored."""
        for result in results:
            self._let_go(result.key)
        self._wake.set()

    def of_job(self, job: int) -> Iterator[Request]:
        """Requests in the core of a job's items."""
        for taken in self._by_rid.values():
            if taken.item.key.job == job and taken.entry is not None:
                yield taken.entry.request

    def jobs(self) -> Iterator[tuple[int, Request]]:
        """All requests in the core, with the keys of their jobs."""
        for taken in self._by_rid.values():
            if taken.entry is not None:
                yield taken.item.key.job, taken.entry.request

    @property
    def taken(self) -> int:
        """Items that are fed, or wait here for another try or to be stored."""
        return len(self._taken)

    # What runs in the core.

    def entry(self, rid: int) -> Entry | None:
        """The entry of an item in the core."""
        taken = self._by_rid.get(rid)
        return None if taken is None else taken.entry

    def finish(self, command: FinishRequest, results: ResultBuilder) -> None:
        """The core ended a request that is no call's."""
        taken = self._by_rid.pop(command.request.rid, None)
        if taken is None or taken.entry is None:
            return
        entry = taken.entry
        if entry.reservation is not None and self._quotas is not None:
            self._quotas.release(entry.reservation, command, self._clock.now())
            entry.reservation = None
        if command.reason is Reason.POISONED and self._quarantine is not None:
            self._quarantine.add(command.request, entry.request_bytes)
        entry.end(command, results)
        taken.entry = None

    def core_lost(self) -> None:
        """The core's state is gone by a fault of ours: what was in it is fed again, a few times."""
        for taken in list(self._by_rid.values()):
            entry, taken.entry = taken.entry, None
            if entry is not None and entry.reservation is not None and self._quotas is not None:
                self._quotas.take_back(entry.reservation, self._clock.now())
            taken.faults += 1
            if taken.faults < FAULTS_MAX:
                self._put_back(taken, 0)
            else:
                text = "a fault of the scheduler itself, each time that it ran; it is logged"
                error = status.error(Reason.INTERNAL, text)
                self._land(taken, failed(error, taken.item.request_id))
        self._by_rid.clear()

    def adopt(self, tenant: str, request_id: str) -> Request | None:
        """The request of an item that an agent brings back after a restart of the scheduler; None:
        it is no item, has its result already, or is wanted no more.

        An item that was fed again meanwhile gives that request. Else it counts as fed from now on;
        its request is not submitted: whoever asks takes it into the core.
        """
        name = split_request_id(request_id)
        if name is None or self._stopping:
            return None
        item = self._store.item_now(tenant, *name)
        if item is None or item.key.job in self._closed:
            return None
        known = self._taken.get(item.key)
        if known is not None:
            return None if known.entry is None else known.entry.request
        taken = self._take(item)
        entry = self._enter(taken, back=True)
        self._wake.set()
        return None if entry is None else entry.request

    # Feeding.

    async def _run(self) -> None:
        while True:
            wait_s = LOOK_S if self._models or self._taken else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait_s)
            self._wake.clear()
            try:
                await self._refill()
                await self._note_ends()
            except StoreFailed as fault:
                log.warning(
                    "stored items cannot be read: %s", fault, extra={"event": "store_failed"}
                )
                await asyncio.sleep(LOOK_S)
            except Exception:  # ours: jobs must not stand still for it
                log.exception(
                    "the feeder of job items failed and goes on", extra={"event": "feeder_failed"}
                )
                await asyncio.sleep(LOOK_S)

    async def _refill(self) -> None:
        now = self._clock.now()
        if self._landing.failing or self._driver.scheduler.state.hold_until > now:
            return  # nobody stores results, or agents may still bring items back
        for taken in list(self._taken.values()):
            if taken.entry is None and 0 < taken.not_before <= now and self._may_feed(taken, now):
                taken_entry = self._enter(taken)
                if taken_entry is not None:
                    self._driver.submit(taken_entry.request)
        for job in [job for job, until in self._held_until.items() if until <= now]:
            del self._held_until[job]
        for model in list(self._models):
            await self._fill(model, self._window(model, now))

    def _may_feed(self, taken: Taken, now: Instant) -> bool:
        return self._window(taken.item.model, now) > 0

    def _window(self, model: str, now: Instant) -> int:
        """Items of the model that may be taken at a time."""
        state: State = self._driver.scheduler.state
        pool = state.pools.get(model)
        if pool is None:
            since = self._unknown_since.setdefault(model, now)
            grace = self._settings.unknown_model_grace
            return WINDOW_MIN if now - since >= grace else 0
        self._unknown_since.pop(model, None)
        slots = sum(engine.spec.slots for engine in pool.engines)
        if not slots:
            return 0
        wanted = int(slots * self._settings.window)
        return min(max(wanted, WINDOW_MIN), self._settings.max_window)

    async def _fill(self, model: str, window: int) -> None:
        room = window - self._of_model[model]
        if room <= 0 or room < window // 4:
            return
        without = [*self._closed, *self._held_until]
        limit = self._of_model[model] + room
        keys = await self._store.waiting(model, limit, without=without)
        if not keys and not self._of_model[model] and not without:
            self._models.pop(model, None)
            self._unknown_since.pop(model, None)
        fresh = [key for key in keys if self._is_free(key)][:room]
        if not fresh:
            return
        for item in await self._store.items(fresh):
            if self._is_free(item.key):
                entry = self._enter(self._take(item))
                if entry is not None:
                    self._driver.submit(entry.request)

    def _is_free(self, key: ItemKey) -> bool:
        job = key.job
        return not (key in self._taken or job in self._closed or job in self._held_until)

    def _take(self, item: StoredItem) -> Taken:
        taken = self._taken[item.key] = Taken(item)
        self._of_model[item.model] += 1
        return taken

    def _let_go(self, key: ItemKey) -> None:
        taken = self._taken.pop(key, None)
        if taken is not None:
            self._of_model[taken.item.model] -= 1

    def _enter(self, taken: Taken, *, back: bool = False) -> Entry | None:
        """Make its request; None: it has its end, or is put back. `back`: an agent has it, and ends
        it in time by its own clock; what it has done already counts.
        """
        item, now = taken.item, self._clock.now()
        due, ends = self._due(item), NEVER
        if item.end_ns:
            ends = self._due_instant(item.end_ns)
            if back:
                ends = max(ends, now + BACK)
            elif ends <= now:
                self._expire(taken)
                return None
        try:
            entry = make_entry(
                taken, self._converter, self._clock, rid=self._next_rid(), due=min(due, ends),
                on_end=self._ended, quarantine=self._quarantine,
            )  # fmt: skip
            if self._quotas is not None:
                entry.reservation = self._quotas.reserve(entry.request, self._clock.now())
        except Refused as refused:
            taken.entry = None
            self._ended(taken, failed(refused.error, item.request_id), refused.error)
            return None
        if not item.end_ns and taken.deadline < due:
            self._ends[item.key] = item.end_ns = self._wall_ns(taken.deadline)
        if self._on_entry is not None:
            self._on_entry(entry, item.traceparent)
        taken.not_before = 0
        self._by_rid[entry.request.rid] = taken
        return entry

    def _expire(self, taken: Taken) -> None:
        error = status.error(Reason.DEADLINE_EXCEEDED, "its time was over before it ended")
        self._ended(taken, failed(error, taken.item.request_id), error)

    async def _note_ends(self) -> None:
        """Store when the time is over of those that were fed in for the first time."""
        if not self._ends:
            return
        ends, self._ends = self._ends, {}
        try:
            await self._store.note_ends(ends)
        except StoreFailed:
            self._ends = {**ends, **self._ends}
            raise

    def _due(self, item: StoredItem) -> Instant:
        return self._due_instant(item.due_ns) if item.due_ns else NEVER

    # Ends.

    def _ended(self, taken: Taken, result: bytes, error: types_pb2.Error | None) -> None:
        """A try has ended: that is the item's end, or it is tried again later."""
        if error is None or not self._is_for_later(taken, error):
            self._land(taken, result)
        elif error.reason == types_pb2.ERROR_REASON_QUOTA_EXCEEDED:
            self._hold_job(taken, _hint(error))
        else:
            if taken.entry is not None:
                taken.preemptions += taken.entry.request.preemptions
            self._put_back(taken, _hint(error))
        self._wake.set()

    def _is_for_later(self, taken: Taken, error: types_pb2.Error) -> bool:
        """Whether this is not yet the item's end."""
        if int(error.reason) in _LATER:
            return True
        # That it would not be done within the job's window is no more than an estimate.
        unreachable = error.reason == types_pb2.ERROR_REASON_DEADLINE_UNREACHABLE
        return unreachable and taken.deadline == self._due(taken.item)

    def _hold_job(self, taken: Taken, hint: Duration) -> None:
        """Its tenant may have no more now: others go meanwhile."""
        key = taken.item.key
        self._let_go(key)
        self._held_until[key.job] = self._clock.now() + max(hint, PAUSE)

    def _put_back(self, taken: Taken, hint: Duration) -> None:
        key = taken.item.key
        if self._stopping or key.job in self._closed:
            self._let_go(key)  # its row is in the store
            return
        pause = min(PAUSE << min(taken.tries, 5), PAUSE_MAX)
        taken.tries += 1
        taken.not_before = max(1, self._clock.now() + max(hint, pause))

    def _land(self, taken: Taken, result: bytes) -> None:
        self._landing.add(result_of(taken.item.key, result, taken.preemptions))


def _hint(error: types_pb2.Error) -> Duration:
    """When it may be tried again, as the error says."""
    if not error.HasField("retry_after"):
        return 0
    return error.retry_after.seconds * SECOND + error.retry_after.nanos
