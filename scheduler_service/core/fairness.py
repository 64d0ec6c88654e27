"""Who goes next inside of one band? Fair start tags per user, deadlines within a window.

Theory of operation (start-time fair queueing). A user is a tenant, or a `user_id` where no tenant
is known. One with requests here has a start tag S and a finish tag F in cost per weight; V is the
band's virtual time.

    enqueue of a user with nothing here   S = max(V, F)          idling banks no credit
    dispatch at cost c                    F = S + c / w, S = F   once, however many attempts
    whenever something changed            V = max(V, least S of users with requests)
    completion                            S and F += (actual - predicted) / w, F not below V

Eligible are users with S <= V + window; of them goes the one whose next request has the least
(latest start, size rank, S, place). So for two users that both wait all the time, what they were
charged, over weight, differs by at most 2 * window + c / w of each; a window of 0 is pure
fairness, one without end is earliest deadline first. And F - V never exceeds window + c / w: nobody
pays later for capacity that was idle, nor for all that the floor gave out of turn (it is charged
from V + window at most).

Costs: one user's requests are an insertion-ordered dict as long as they come in their order, and a
heap of the others; heaps are over users only, and not used while one user is alone. Users with
nothing here and F <= V are forgotten: their record says nothing.

A walk over the queue may `skip` requests that cannot go now. They are out of the choice until
`restore`, with their tags as they were: their users catch up once they can be placed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final

from scheduler_service.core.interfaces import Discipline
from scheduler_service.core.types import (
    MILLISECOND,
    NEVER,
    Duration,
    Instant,
    Request,
    ServiceEstimate,
)

OUTPUT_WEIGHT: Final = 2  # of an output token, beside a prompt token
TAG: Final = 1_000  # tags are whole thousandths of cost over weight
SLACK: Final = 64  # stale entries that a heap may hold beside as many as live ones

# (latest start, size rank, place, serial, request): the order within one user
_Turn = tuple[Instant, int, int, int, Request]


def assess(request: Request, estimate: ServiceEstimate, yardstick: ServiceEstimate) -> None:
    """Note what it will probably cost, and when it must start to meet its deadline.

    The cost is in tokens, output counting double; in expected milliseconds where nothing is known
    of tokens. `yardstick`: what was expected when the first of those who wait came. By another for
    each, like requests with like deadlines would pass each other whenever an estimate grows.
    """
    output = request.output_tokens
    cost = request.prompt + OUTPUT_WEIGHT * (output or int(estimate.tokens))
    request.cost = cost or max(1, estimate.mean // MILLISECOND)
    if request.deadline < NEVER:
        request.latest_start = (request.due or request.deadline) - yardstick.expect(output)


def actual_cost(request: Request, input_tokens: int, output_tokens: int, took: Duration) -> int:
    """What it did cost; the prediction, where the engine does not say."""
    cost = input_tokens + OUTPUT_WEIGHT * output_tokens
    if cost:
        return cost
    return request.cost if request.tokens else max(1, took // MILLISECOND)


class User:
    """The tags of one user in one band, and its requests there in the order of their turns."""

    __slots__ = (
        "_heap", "_last", "_run", "_strays", "away", "entries", "finish", "head", "name", "start",
        "weight",
    )  # fmt: skip

    def __init__(self, name: str, weight: float, at: int) -> None:
        self.name = name
        self.weight = weight
        self.start = self.finish = at
        self.head: _Turn | None = None  # its next request
        self.away = 0  # requests that the present walk skipped
        self.entries: list[Any] = [None, None, None, None]  # its own in each `UserHeap`
        self._run: OrderedDict[int, _Turn] = OrderedDict()  # by rid, sorted
        self._last: _Turn | None = None  # nothing in `_run` is greater
        self._strays: dict[int, _Turn] = {}  # that came out of order
        self._heap: list[_Turn] = []  # of them, and of some that left

    def __len__(self) -> int:
        return len(self._run) + len(self._strays)

    def push(self, turn: _Turn) -> None:
        """Add at the end or at the front where it belongs there, else among the strays."""
        run = self._run
        if not run or turn > self._last:  # type: ignore[operator]
            run[turn[4].rid] = self._last = turn
        elif turn < run[next(iter(run))]:
            run[turn[4].rid] = turn
            run.move_to_end(turn[4].rid, last=False)
        else:
            self._strays[turn[4].rid] = turn
            heappush(self._heap, turn)
        if self.head is None or turn < self.head:
            self.head = turn

    def remove(self, request: Request) -> _Turn:
        """Take it out. `head` is then the next."""
        rid = request.rid
        turn = self._run.pop(rid, None)
        if turn is None:
            turn = self._strays.pop(rid)
            if len(self._heap) > 2 * len(self._strays) + SLACK:
                self._heap = list(self._strays.values())
                heapify(self._heap)
        if turn is self.head:
            run = self._run
            self.head = run[next(iter(run))] if run else None
            if self._heap:
                self._compare_strays()
        return turn

    def _compare_strays(self) -> None:
        heap, strays = self._heap, self._strays
        while heap and strays.get(heap[0][4].rid) is not heap[0]:
            heappop(heap)
        if heap and (self.head is None or heap[0] < self.head):
            self.head = heap[0]


class UserHeap:
    """Users by a key that changes. What is stale is dropped when it comes up."""

    __slots__ = ("_heap", "_live", "_serial", "_slot")

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._heap: list[tuple[Any, int, User]] = []
        self._live = 0
        self._serial = 0

    def put(self, user: User, key: Any) -> None:
        """Add it, or give it another key."""
        slot = self._slot
        self._live += user.entries[slot] is None
        self._serial += 1
        entry = user.entries[slot] = (key, self._serial, user)
        heappush(self._heap, entry)
        if len(self._heap) > 2 * self._live + SLACK:
            self._heap = [e for e in self._heap if e[2].entries[slot] is e]
            heapify(self._heap)

    def drop(self, user: User) -> None:
        """Take it out, if it is here."""
        if user.entries[self._slot] is not None:
            user.entries[self._slot] = None
            self._live -= 1

    def least(self) -> tuple[Any, int, User] | None:
        """The entry with the least key."""
        heap, slot = self._heap, self._slot
        while heap and heap[0][2].entries[slot] is not heap[0]:
            heappop(heap)
        return heap[0] if heap else None


class FairBand:
    """The requests of one band by users, in fair order."""

    __slots__ = (
        "_alone",
        "_early",
        "_idle",
        "_promoted",
        "_ready",
        "_serial",
        "_sjf",
        "_skipped",
        "_starts",
        "_waiting",
        "_weights",
        "_window",
        "users",
        "virtual",
    )  # fmt: skip

    def __init__(self, discipline: Discipline, weights: Mapping[str, float]) -> None:
        self._window = min(NEVER, discipline.window * TAG)
        self._sjf = discipline.sjf
        self._weights = weights
        self.virtual = 0  # V
        self.users: dict[str, User] = {}
        self._waiting = 0  # users with requests
        self._alone: User | None = None  # the only one of them, while there never was a second
        self._starts = UserHeap(0)  # users with requests, by S
        self._early = UserHeap(1)  # of them, those beyond the window, by S
        self._ready = UserHeap(2)  # the others, by (latest start, size rank, S, place)
        self._idle = UserHeap(3)  # users without requests, by F
        self._serial = 0
        self._skipped: list[tuple[User, _Turn]] = []
        self._promoted: list[User] = []  # became ready while others were skipped

    def __len__(self) -> int:
        return sum(len(user) for user in self.users.values())

    def take_over(self, former: FairBand, waiting: Iterable[Request]) -> None:
        """Begin where `former` is, of which these wait: its virtual time, the tags of its users."""
        self.virtual = former.virtual
        starts = {}
        for name, known in former.users.items():
            user = self._new(name)
            if known.head is None:
                user.finish = known.finish
                self._rest(user)
            else:
                user.finish = starts[name] = known.start
        # The least first: V follows whoever is alone.
        for request in sorted(waiting, key=lambda r: starts[r.tenant or r.user_id]):
            self.push(request)

    def push(self, request: Request) -> None:
        """It waits, for the first time or again."""
        name = request.tenant or request.user_id
        user = self.users.get(name)
        if user is None:
            user = self._new(name)
        rank = max(1, request.cost).bit_length() - 1 if self._sjf else 0
        self._serial += 1
        turn = (request.latest_start, rank, request.place, self._serial, request)
        idle = user.head is None
        user.push(turn)
        if idle:
            user.start = max(self.virtual, user.finish)
            self._begin(user)
            self._advance()
        elif user.head is turn and user is not self._alone:
            self._rank(user)

    def remove(self, request: Request) -> None:
        """It waits no more, and was not dispatched."""
        user = self.users[request.tenant or request.user_id]
        head = user.head
        user.remove(request)
        if user.head is not head:
            self._changed(user)
            self._advance()

    def take(self, request: Request, *, floor: bool) -> None:
        """It is dispatched: charge its user. `floor`: out of turn."""
        user = self.users[request.tenant or request.user_id]
        user.remove(request)
        if not request.paid:
            if self._skipped:
                self._advance()
            if floor:
                user.start = min(user.start, self.virtual + self._window)
            cost = request.cost or 1
            user.start += cost * TAG if user.weight == 1 else _charge(cost, user.weight)
            user.finish = user.start
        if user is self._alone and user.head is not None:
            self._advance_to(user.start)
            return
        self._changed(user)
        self._advance()

    def head(self) -> Request | None:
        """Who goes next."""
        if self._alone is not None:
            turn = self._alone.head
            return None if turn is None else turn[4]
        least = self._starts.least()
        if least is None:
            return None
        horizon = max(self.virtual, least[0]) + self._window
        early = self._early
        while (entry := early.least()) is not None and entry[0] <= horizon:
            early.drop(entry[2])
            self._make_ready(entry[2])
            if self._skipped:
                self._promoted.append(entry[2])
        ready = self._ready.least()
        assert ready is not None
        turn = ready[2].head
        assert turn is not None
        return turn[4]

    def skip(self, request: Request) -> None:
        """It cannot go in this walk."""
        user = self.users[request.tenant or request.user_id]
        head = user.head
        user.away += 1
        self._skipped.append((user, user.remove(request)))
        if user.head is not head:
            self._changed(user)

    def restore(self) -> None:
        """The walk is over: all that were skipped are back, with the tags they had."""
        if not self._skipped:
            return
        for user, turn in reversed(self._skipped):
            idle = user.head is None
            user.away -= 1
            user.push(turn)
            if idle:
                self._begin(user)
            elif user.head is turn and user is not self._alone:
                self._rank(user)
        for user in self._promoted:
            if user.head is not None and user is not self._alone:
                self._rank(user)
        self._skipped.clear()
        self._promoted.clear()
        self._advance()

    def reconcile(self, request: Request, actual: int) -> None:
        """It cost `actual`, not what it was charged."""
        name = request.tenant or request.user_id
        user = self.users.get(name)
        weight = self._weights.get(name, 1) if user is None else user.weight
        more = _charge(actual, weight) - _charge(request.cost, weight)
        if not more or (user is None and more < 0):
            return
        if user is None:
            user = self._new(name)
        virtual = self.virtual
        user.finish = max(virtual, max(virtual, user.finish) + more)
        if user.head is None:
            self._rest(user)
            return
        user.start = max(user.start + more, min(user.start, virtual))
        if user is not self._alone:
            self._starts.put(user, user.start)
            self._rank(user)
        self._advance()

    def _new(self, name: str) -> User:
        user = self.users[name] = User(name, self._weights.get(name, 1), self.virtual)
        return user

    def _begin(self, user: User) -> None:
        """It has requests, and had none."""
        if user.entries[3] is not None:
            self._idle.drop(user)
        self._waiting += 1
        if self._waiting == 1:
            self._alone = user
            return
        alone, self._alone = self._alone, None
        for each in (user,) if alone is None else (alone, user):
            self._starts.put(each, each.start)
            self._rank(each)

    def _changed(self, user: User) -> None:
        """Its next request, or its tags, are others now; perhaps it has none."""
        if user.head is None:
            self._waiting -= 1
            if user is self._alone:
                self._alone = None
            else:
                self._starts.drop(user)
                self._early.drop(user)
                self._ready.drop(user)
            self._rest(user)
        elif user is not self._alone:
            if user.entries[0][0] != user.start:
                self._starts.put(user, user.start)
            self._rank(user)

    def _rest(self, user: User) -> None:
        """It has no requests: forget it as soon as its record says nothing."""
        if user.away:
            return
        if user.finish <= self.virtual:
            self._idle.drop(user)
            del self.users[user.name]
        else:
            self._idle.put(user, user.finish)

    def _rank(self, user: User) -> None:
        """Among those in the window, or those beyond."""
        if user.start <= self.virtual + self._window:
            self._early.drop(user)
            self._make_ready(user)
        else:
            self._ready.drop(user)
            self._early.put(user, user.start)

    def _make_ready(self, user: User) -> None:
        assert user.head is not None
        latest_start, rank, place, _, _ = user.head
        self._ready.put(user, (latest_start, rank, user.start, place))

    def _advance(self) -> None:
        """Move V on to the least S of users with requests."""
        if self._alone is not None:
            self._advance_to(self._alone.start)
        elif (entry := self._starts.least()) is not None:
            self._advance_to(entry[0])

    def _advance_to(self, virtual: int) -> None:
        if virtual <= self.virtual:
            return
        self.virtual = virtual
        idle = self._idle
        while (entry := idle.least()) is not None and entry[0] <= virtual:
            idle.drop(entry[2])
            del self.users[entry[2].name]


def _charge(cost: int, weight: float) -> int:
    return max(1, int(max(1, cost) * TAG / weight)) if weight != 1 else max(1, cost) * TAG
