"""Who waits, and in which order do they go?

A pool's queue is ten bands of interactive requests and ten of job items. A band is an OrderedDict:
push, pop, cancel and oldest are O(1) at any length (a plain dict steps over all that left at its
front: 32 us for the oldest of 100,000, against 0.8). Requests that come back (failover, refusal)
keep their place: they wait in a short list beside it. So much for age. In which order interactive
requests go inside of a band says its `FairBand`; job items, and all where the order is not fair, go
by age. Which band's head goes first, of ten at most, says the ordering's key.

A `Walk` yields requests in dispatch order; those that are skipped keep their place.

THE FLOOR. Of any `floor_every` consecutive dispatches at least one goes to the oldest waiting
request, whatever the order says (alternately interactive and job while both wait), so a request
with m older ones in its pool starts after at most floor_every * (m + 1) dispatches, or twice that
while job items wait too. If the oldest cannot be placed at all now, the next oldest has the turn.
"""

from __future__ import annotations

import bisect
import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Final

from scheduler_service.core.fairness import FairBand
from scheduler_service.core.interfaces import Discipline, Ordering
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import PRIORITIES, Instant, Request

_JOB: Final = RequestClass.JOB
_INTERACTIVE: Final = RequestClass.INTERACTIVE
_JOBS: Final = len(PRIORITIES)  # rank of the first band of job items


class Band:
    """Requests of one class and priority, oldest place first."""

    __slots__ = ("_back", "_main")

    def __init__(self) -> None:
        self._main: OrderedDict[int, Request] = OrderedDict()  # by rid, in order of arrival
        self._back: list[tuple[int, Request]] = []  # (place, request) that came back, sorted

    def __len__(self) -> int:
        return len(self._main) + len(self._back)

    def push(self, request: Request) -> None:
        """Add a newcomer at the end."""
        self._main[request.rid] = request

    def push_back(self, request: Request) -> None:
        """Add one at its old place."""
        bisect.insort(self._back, (request.place, request), key=lambda pair: pair[0])

    def remove(self, request: Request) -> bool:
        """Take it out; whether it was here."""
        if self._main.pop(request.rid, None) is not None:
            return True
        at = bisect.bisect_left(self._back, request.place, key=lambda pair: pair[0])
        if at < len(self._back) and self._back[at][1] is request:
            del self._back[at]
            return True
        return False

    def head(self) -> Request | None:
        """The oldest place."""
        return next(iter(self), None)

    def __iter__(self) -> Iterator[Request]:
        if not self._back:
            yield from self._main.values()
            return
        back = iter(self._back)
        come = next(back, None)
        for request in self._main.values():
            while come is not None and come[0] < request.place:
                yield come[1]
                come = next(back, None)
            yield request
        while come is not None:
            yield come[1]
            come = next(back, None)


class PoolQueue:
    """The waiting requests of one pool, and its floor counters."""

    __slots__ = (
        "_depths", "_discipline", "_fair", "_ranks", "_weights", "bands", "floor_every",
        "interactive", "job_turn", "jobs", "since_floor",
    )  # fmt: skip

    def __init__(
        self,
        floor_every: int,
        discipline: Discipline = Discipline(),  # noqa: B008 - it is frozen
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """`weights`: of users that have another share than 1."""
        self.bands = {(cls, p): Band() for cls in RequestClass for p in reversed(PRIORITIES)}
        self._ranks = list(self.bands.values())  # most urgent first; see `_rank`
        self._depths = [0] * len(self._ranks)  # waiting, by rank
        self._discipline = discipline
        self._weights = weights or {}
        self._fair = self._new_fair()
        self.floor_every = floor_every
        self.since_floor = 0  # dispatches since the floor's last turn
        self.job_turn = False  # whose turn is next while both classes wait
        self.interactive = 0  # waiting
        self.jobs = 0

    def _new_fair(self) -> list[FairBand]:
        """Of each interactive rank; the same one for all where there are no bands; none: by age."""
        discipline = self._discipline
        count = _JOBS if discipline.banded else 1
        fair = [FairBand(discipline, self._weights) for _ in range(count * discipline.fair)]
        return fair * (_JOBS // count)

    def reorder(self, discipline: Discipline, weights: Mapping[str, float]) -> None:
        """Those who wait go by this order from now on, at the places that they have. What users
        have had counts on where the bands stay the same ones.
        """
        if (discipline, weights) == (self._discipline, self._weights):
            return
        former = self._fair if discipline.banded == self._discipline.banded else []
        self._discipline, self._weights = discipline, weights
        self._fair = self._new_fair()
        waiting: dict[FairBand, list[Request]] = {band: [] for band in self._fair}
        for rank, band in enumerate(self._fair):
            waiting[band] += self._ranks[rank]
        for rank, (band, requests) in enumerate(waiting.items()):
            if former:
                band.take_over(former[rank], requests)
            else:
                for request in requests:
                    band.push(request)

    def __len__(self) -> int:
        return self.interactive + self.jobs

    def __iter__(self) -> Iterator[Request]:
        for band in self.filled():
            yield from band

    def filled(self, skipped: int = 0) -> list[Band]:
        """The bands in which any wait, most urgent interactive one first, without `skipped`."""
        return list(compress(self._ranks[skipped:], self._depths[skipped:]))

    def push(self, request: Request, *, returning: bool = False) -> None:
        """Add it; `returning`: at its old place."""
        rank = request.request_class * _JOBS - request.priority  # `_rank`, written out
        if returning:
            self._ranks[rank].push_back(request)
        else:
            self._ranks[rank].push(request)
        self._depths[rank] += 1
        if rank >= _JOBS:
            self.jobs += 1
            return
        self.interactive += 1
        if self._fair:
            self._fair[rank].push(request)

    def remove(self, request: Request) -> bool:
        """Take it out, not dispatched; whether it was here."""
        if not self.drop(request):
            return False
        rank = _rank(request)
        if rank < len(self._fair):
            self._fair[rank].remove(request)
        return True

    def drop(self, request: Request) -> bool:
        """Take it out of its band alone; whether it was there."""
        rank = request.request_class * _JOBS - request.priority  # `_rank`, written out
        if not self._ranks[rank].remove(request):
            return False
        self._depths[rank] -= 1
        if rank < _JOBS:
            self.interactive -= 1
        else:
            self.jobs -= 1
        return True

    def fair_band(self, request: Request) -> FairBand | None:
        """Where its user's tags are; None: it goes by age."""
        rank = request.request_class * _JOBS - request.priority
        return self._fair[rank] if rank < len(self._fair) else None

    def reconcile(self, request: Request, actual: int) -> None:
        """It is done and cost `actual`: correct what its user was charged."""
        band = self.fair_band(request)
        if request.paid and band is not None:
            band.reconcile(request, actual)

    def in_turn(self) -> int:
        """How many wait in fair bands; all interactive ones, where there are any."""
        return sum(len(band) for band in dict.fromkeys(self._fair))

    def open_fair_bands(self) -> list[FairBand]:
        """Those in which any wait."""
        if len(self._fair) and self._fair[0] is self._fair[-1]:
            return self._fair[:1] if self.interactive else []
        return list(compress(self._fair, self._depths))

    def heads(self) -> list[Request]:
        """The oldest of each band that has any, most urgent interactive band first."""
        return [next(iter(band)) for band in self.filled()]

    def oldest(self, request_class: RequestClass | None = None) -> Request | None:
        """The oldest place of the class, or of both."""
        heads = [h for h in self.heads() if request_class in (None, h.request_class)]
        return min(heads, key=lambda r: r.place, default=None)

    def depth(self, request_class: RequestClass, priority: int) -> int:
        """How many wait in one band."""
        return self._depths[request_class * _JOBS - priority]

    def ahead_of(self, request: Request) -> int:
        """How many would go before a newcomer like it; an estimate: equal or more urgent bands."""
        return sum(self._depths[: _rank(request) + 1])

    def who_is_ahead(self, request: Request) -> tuple[tuple[tuple[int, int], ...], int, int]:
        """Of those that would go before one which waits, about: of its class (priority, count) of
        the more urgent; calls, if it is an item of a job; and the older ones of its own priority.
        O(n) in its band: for those who ask.
        """
        rank = _rank(request)
        first = (request.request_class - 1) * _JOBS
        urgent = tuple(
            (first + _JOBS - at, self._depths[at]) for at in range(first, rank) if self._depths[at]
        )
        older = sum(other.place < request.place for other in self._ranks[rank])
        return urgent, sum(self._depths[:first]), older

    def start_bound(self) -> int:
        """Dispatches until the youngest waiting request starts, at most; 0: no bound."""
        turns = 2 if self.interactive and self.jobs else 1
        return self.floor_every * turns * len(self)

    def first(self, ordering: Ordering, now: Instant) -> tuple[int, ...]:
        """Class and key of the request that would go next; there must be one."""
        return self.walk(ordering, now).first_key()

    def walk(self, ordering: Ordering, now: Instant) -> Walk:
        """Look at the requests in dispatch order. End it with `finish`."""
        return Walk(self, ordering, now)


def _rank(request: Request) -> int:
    """Number of its band, from 0, the most urgent interactive one; jobs follow."""
    return request.request_class * _JOBS - request.priority


class Cursor:
    """Goes through a band by age, past all that a walk has dealt with."""

    __slots__ = ("_at", "_passed", "_rest")

    def __init__(self, band: Band, passed: set[int]) -> None:
        self._rest = iter(band)
        self._passed = passed
        self._at = next(self._rest, None)

    def head(self) -> Request | None:
        """The oldest that is left."""
        passed = self._passed
        while self._at is not None and self._at.rid in passed:
            self._at = next(self._rest, None)
        return self._at


# A line of a walk: class and key of its head, the head, and where the next one comes from. No two
# keys are equal, so the rest is never compared.
_Head = tuple[RequestClass, tuple[int, ...], Request, FairBand | Cursor]


class Walk:
    """A pass over a queue in dispatch order. Until `finish` bands stay as they are.

    Keys hold for the whole pass, for `now` does not change in it; what moves is the line whose
    request was dealt with.
    """

    __slots__ = (
        "_cursors", "_heads", "_now", "_ordering", "_passed", "_queue", "_taken", "expired",
        "floor",
    )  # fmt: skip

    def __init__(self, queue: PoolQueue, ordering: Ordering, now: Instant) -> None:
        self._queue = queue
        self._ordering = ordering
        self._now = now
        self._passed: set[int] = set()  # rids, membership only
        self._cursors: list[Cursor] | None = None  # of all bands, once the floor needs them
        lines: list[FairBand | Cursor] = [*queue.open_fair_bands()]
        if queue.jobs or not lines:
            skipped = _JOBS if lines else 0
            lines += [Cursor(band, self._passed) for band in queue.filled(skipped)]
        self._heads: list[_Head] = []
        for line in lines:
            if (entry := self._head(line)) is not None:
                self._heads.append(entry)
        heapq.heapify(self._heads)
        self._taken: list[Request] = []
        self.expired: list[Request] = []  # passed over; their timers are up to a bucket late
        self.floor = False  # whether the last `peek` was the floor's choice

    def peek(self) -> Request | None:
        """Who would be dispatched next; None: nobody is left."""
        queue, heads = self._queue, self._heads
        self.floor = 0 < queue.floor_every <= queue.since_floor + 1
        while heads:
            request = self._oldest() if self.floor else heads[0][2]
            if request.deadline > self._now:
                return request
            self.expired.append(request)
            self.skip(request)
        return None

    def first_key(self) -> tuple[int, ...]:
        """Class and key of the first by the order, floor and expiry aside."""
        cls, key, _, _ = self._heads[0]
        return (cls, *key)

    def take(self, request: Request) -> None:
        """It is dispatched: count it, charge it and go on."""
        queue = self._queue
        self._taken.append(request)
        self._passed.add(request.rid)
        if self.floor:
            queue.since_floor = 0
            queue.job_turn = request.request_class is _INTERACTIVE
        else:
            queue.since_floor += 1
        band = queue.fair_band(request)
        if band is not None:
            band.take(request, floor=self.floor)
            request.paid = True
            heads = self._heads
            if len(heads) == 1 and heads[0][3] is band:
                self._renew_only(band)
                return
        self._renew(request, band)

    def skip(self, request: Request) -> None:
        """It cannot go now; it keeps its place."""
        self._passed.add(request.rid)
        band = self._queue.fair_band(request)
        if band is not None:
            band.skip(request)
        self._renew(request, band)

    def finish(self) -> None:
        """Remove all that were taken, and let those that were skipped wait on."""
        for band in self._queue.open_fair_bands():
            band.restore()
        for request in self._taken:
            self._queue.drop(request)

    def _head(self, line: FairBand | Cursor) -> _Head | None:
        head = line.head()
        if head is None:
            return None
        if head.request_class is _JOB:
            key: tuple[int, ...] = (-head.priority, head.place)
        else:
            key = self._ordering.key(head, self._now)
        return (head.request_class, key, head, line)

    def _renew(self, request: Request, band: FairBand | None) -> None:
        """The line of this request, which was dealt with, has another head, or other tags."""
        heads = self._heads
        if len(heads) == 1 and (heads[0][3] is band or heads[0][2] is request):
            self._renew_only(heads[0][3])
            return
        at = 0
        if not heads or (heads[0][3] is not band and heads[0][2] is not request):
            at = next((i for i, h in enumerate(heads) if h[3] is band or h[2] is request), -1)
            if at < 0:
                return
        entry = self._head(heads[at][3])
        if at == 0 and entry is not None:
            heapq.heapreplace(heads, entry)
        elif at == 0:
            heapq.heappop(heads)
        else:
            heads[at] = entry or heads[-1]
            if entry is None:
                heads.pop()
            heapq.heapify(heads)

    def _renew_only(self, line: FairBand | Cursor) -> None:
        """Likewise of the only line: no other comes, so its key is compared with nothing."""
        head = line.head()
        if head is None:
            self._heads.clear()
        else:
            self._heads[0] = (head.request_class, (), head, line)

    def _oldest(self) -> Request:
        """By place, of the class whose turn it is."""
        if self._cursors is None:
            self._cursors = [Cursor(band, self._passed) for band in self._queue.filled()]
        requests = [head for cursor in self._cursors if (head := cursor.head()) is not None]
        cls = _JOB if self._queue.job_turn else _INTERACTIVE
        mine = [r for r in requests if r.request_class is cls]
        return min(mine or requests, key=lambda r: r.place)
