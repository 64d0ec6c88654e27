"""Who waits, and in which order do they go?

A pool's queue is ten bands of interactive requests and ten of job items. A band is an OrderedDict:
push, pop, cancel and oldest are O(1) at any length (a plain dict steps over all that left at its
front: 32 us for the oldest of 100,000, against 0.8). Requests that come back (failover, refusal)
keep their place: they wait in a short list beside it.

A `Walk` yields requests in dispatch order without removing them, so that a batch can be formed,
unlike ones skipped, and all that were taken removed in one go.

THE FLOOR. Of any `floor_every` consecutive dispatches at least one goes to the oldest waiting
request, whatever the order says (alternately interactive and job while both wait), so a request
with m older ones in its pool starts after at most floor_every * (m + 1) dispatches, or twice that
while job items wait too. If the oldest cannot be placed at all now, the next oldest has the turn.
"""

from __future__ import annotations

import bisect
import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import compress

from scheduler_service.core.interfaces import Ordering
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import PRIORITIES, Instant, Request


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
        "_depths", "_ranks", "bands", "floor_every", "interactive", "job_turn", "jobs",
        "since_floor",
    )  # fmt: skip

    def __init__(self, floor_every: int) -> None:
        self.bands = {(cls, p): Band() for cls in RequestClass for p in reversed(PRIORITIES)}
        self._ranks = list(self.bands.values())  # most urgent first; see `_rank`
        self._depths = [0] * len(self._ranks)  # waiting, by rank
        self.floor_every = floor_every
        self.since_floor = 0  # dispatches since the floor's last turn
        self.job_turn = False  # whose turn is next while both classes wait
        self.interactive = 0  # waiting
        self.jobs = 0

    def __len__(self) -> int:
        return self.interactive + self.jobs

    def __iter__(self) -> Iterator[Request]:
        for band in self.filled():
            yield from band

    def filled(self) -> list[Band]:
        """The bands in which any wait, most urgent interactive one first."""
        return list(compress(self._ranks, self._depths))

    def push(self, request: Request, *, returning: bool = False) -> None:
        """Add it; `returning`: at its old place."""
        rank = _rank(request.request_class, request.priority)
        if returning:
            self._ranks[rank].push_back(request)
        else:
            self._ranks[rank].push(request)
        self._count(request, rank, 1)

    def remove(self, request: Request) -> bool:
        """Take it out; whether it was here."""
        rank = _rank(request.request_class, request.priority)
        if not self._ranks[rank].remove(request):
            return False
        self._count(request, rank, -1)
        return True

    def _count(self, request: Request, rank: int, by: int) -> None:
        self._depths[rank] += by
        if request.request_class is RequestClass.INTERACTIVE:
            self.interactive += by
        else:
            self.jobs += by

    def heads(self) -> list[Request]:
        """The oldest of each band that has any, most urgent interactive band first."""
        return [next(iter(band)) for band in self.filled()]

    def oldest(self, request_class: RequestClass | None = None) -> Request | None:
        """The oldest place of the class, or of both."""
        heads = [h for h in self.heads() if request_class in (None, h.request_class)]
        return min(heads, key=lambda r: r.place, default=None)

    def depth(self, request_class: RequestClass, priority: int) -> int:
        """How many wait in one band."""
        return self._depths[_rank(request_class, priority)]

    def ahead_of(self, request: Request) -> int:
        """How many would go before a newcomer like it; an estimate: equal or more urgent bands."""
        return sum(self._depths[: _rank(request.request_class, request.priority) + 1])

    def start_bound(self) -> int:
        """Dispatches until the youngest waiting request starts, at most; 0: no bound."""
        turns = 2 if self.interactive and self.jobs else 1
        return self.floor_every * turns * len(self)

    def walk(self, ordering: Ordering, now: Instant) -> Walk:
        """Look at the requests in dispatch order. End it with `finish`."""
        return Walk(self, ordering, now)


def _rank(request_class: RequestClass, priority: int) -> int:
    """Number of a band, from 0, the most urgent interactive one; jobs follow."""
    return request_class * len(PRIORITIES) - priority


# The head of a band in a walk: class and key to order by, then the request, then those behind it.
# No two keys are equal, so the rest is never compared.
_Head = tuple[RequestClass, tuple[int, ...], Request, Iterator[Request]]


class Walk:
    """A pass over a queue in dispatch order; nothing is removed before `finish`.

    The heads are a heap. Their keys hold for the whole pass, for `now` does not change in it.
    """

    __slots__ = ("_heads", "_now", "_ordering", "_queue", "_taken", "expired", "floor")

    def __init__(self, queue: PoolQueue, ordering: Ordering, now: Instant) -> None:
        self._queue = queue
        self._ordering = ordering
        self._now = now
        cursors = [iter(band) for band in queue.filled()]
        self._heads: list[_Head] = [self._head(next(cursor), cursor) for cursor in cursors]
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
            self._advance(request)
        return None

    def take(self, request: Request) -> None:
        """It is dispatched: count it and go on."""
        queue = self._queue
        self._taken.append(request)
        if self.floor:
            queue.since_floor = 0
            queue.job_turn = request.request_class is RequestClass.INTERACTIVE
        else:
            queue.since_floor += 1
        self._advance(request)

    def skip(self, request: Request) -> None:
        """It cannot go now; it keeps its place."""
        self._advance(request)

    def finish(self) -> None:
        """Remove all that were taken."""
        for request in self._taken:
            self._queue.remove(request)

    def _head(self, request: Request, cursor: Iterator[Request]) -> _Head:
        return (request.request_class, self._ordering.key(request, self._now), request, cursor)

    def _oldest(self) -> Request:
        """By place, of the class whose turn it is."""
        requests = [head[2] for head in self._heads]
        cls = RequestClass.JOB if self._queue.job_turn else RequestClass.INTERACTIVE
        mine = [r for r in requests if r.request_class is cls]
        return min(mine or requests, key=lambda r: r.place)

    def _advance(self, request: Request) -> None:
        """Move on in the band whose head this was."""
        heads = self._heads
        if heads[0][2] is not request:  # the floor takes it out of turn: bring it to the front
            at = next(i for i, head in enumerate(heads) if head[2] is request)
            heads.insert(0, heads.pop(at))
        cursor = heads[0][3]
        following = next(cursor, None)
        if following is not None:
            heads[0] = self._head(following, cursor)
        else:
            del heads[0]
        heapq.heapify(heads)
