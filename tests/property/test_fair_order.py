"""The order inside of bands beside a naive model of its rules, and what it guarantees.

(a) the floor's bound and the cap of ageing, (b) fairness between users who both wait, (c) no credit
from idling and no debt from spare capacity, (d) the limits: head-of-line priority and deadlines.
"""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.fairness import TAG, FairBand
from scheduler_service.core.interfaces import Discipline, Ordering
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.queues import PoolQueue
from scheduler_service.core.types import NEVER, SECOND, Request
from scheduler_service.policies.ordering import Aged, AgedUncapped, Edf, Fair, Fifo, Strict

WEIGHTS = {"b": 3.0}
WINDOWS = st.sampled_from([0, 4, 20, NEVER])
STARTS = st.sampled_from([NEVER, NEVER, 1, 2, 3, 4, 5])
PUSHES = st.tuples(st.sampled_from("aabc"), st.integers(1, 9), STARTS)


class Naive:
    """The rules, written down plainly: nothing is kept that could be computed, nobody forgotten."""

    def __init__(self, window: int, sjf: bool) -> None:
        self.window, self.sjf = min(NEVER, window * TAG), sjf
        self.virtual = 0
        self.tags: dict[str, tuple[int, int]] = {}  # S and F
        self.waiting: list[Request] = []
        self.out: list[Request] = []  # skipped

    def here(self, user: str) -> list[Request]:
        return [r for r in self.waiting if r.tenant == user]

    def settle(self) -> None:
        starts = [self.tags[r.tenant][0] for r in self.waiting if r not in self.out]
        self.virtual = max(self.virtual, min(starts, default=0))

    def push(self, request: Request) -> None:
        start, finish = self.tags.get(request.tenant, (0, 0))
        if not self.here(request.tenant):
            start = max(self.virtual, finish)
        self.tags[request.tenant] = start, finish
        self.waiting.append(request)
        self.settle()

    def head(self) -> Request | None:
        left = [r for r in self.waiting if r not in self.out]
        if not left:
            return None
        least = min(self.tags[r.tenant][0] for r in left)
        horizon = max(self.virtual, least) + self.window

        def turn(r: Request) -> tuple[int, int, int]:
            return (r.latest_start, int(math.log2(r.cost)) if self.sjf else 0, r.place)

        firsts = [
            min(mine, key=turn) for u in "abc" if (mine := [r for r in left if r.tenant == u])
        ]
        able = [r for r in firsts if self.tags[r.tenant][0] <= horizon]
        return min(able, key=lambda r: (*turn(r)[:2], self.tags[r.tenant][0], r.place))

    def take(self, request: Request, *, floor: bool) -> None:
        self.waiting.remove(request)
        if not request.paid:
            self.waiting.append(request)
            self.settle()
            self.waiting.remove(request)
            start = self.tags[request.tenant][0]
            if floor:
                start = min(start, self.virtual + self.window)
            finish = start + charge(request.tenant, request.cost)
            self.tags[request.tenant] = finish, finish
        self.settle()

    def reconcile(self, request: Request, actual: int) -> None:
        start, finish = self.tags[request.tenant]
        more = charge(request.tenant, actual) - charge(request.tenant, request.cost)
        finish = max(self.virtual, max(self.virtual, finish) + more)
        start = max(start + more, min(start, self.virtual))
        self.tags[request.tenant] = start, finish
        self.settle()


def charge(user: str, cost: int) -> int:
    return int(cost * TAG / WEIGHTS.get(user, 1))


@settings(max_examples=600)
@given(
    WINDOWS,
    st.booleans(),
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), PUSHES),
            st.tuples(st.just("push"), PUSHES),
            st.tuples(
                st.sampled_from(["take", "take", "floor", "cancel", "return", "skip", "settle"]),
                st.integers(0, 20),
            ),
        ),
        max_size=60,
    ),
)
def test_band_chooses_as_the_rules_do(
    window: int, sjf: bool, actions: list[tuple[str, object]]
) -> None:
    """Every choice and every tag, over any history of arrivals, dispatches, skips, cancels,
    returns and corrections; forgetting users changes nothing.
    """
    band, naive = FairBand(Discipline(window=window, sjf=sjf), WEIGHTS), Naive(window, sjf)
    gone: list[Request] = []
    for place, (what, given_) in enumerate(actions, 1):
        if what == "push":
            user, cost, start = given_  # type: ignore[misc]
            request = Request(place, "", "m", tenant=user, place=place)
            request.cost, request.latest_start = cost, start
            band.push(request)
            naive.push(request)
        elif what == "return" and gone:
            request = gone.pop(int(given_) % len(gone))  # type: ignore[call-overload]
            request.paid = True
            band.push(request)
            naive.push(request)
        elif what == "settle" and gone:
            request, actual = gone[-1], int(given_)  # type: ignore[call-overload]
            if not request.paid:
                gone.pop()
                band.reconcile(request, actual + 1)
                naive.reconcile(request, actual + 1)
        elif what == "cancel" and naive.waiting:
            request = naive.waiting[int(given_) % len(naive.waiting)]  # type: ignore[call-overload]
            band.remove(request)
            naive.waiting.remove(request)
            naive.settle()
        elif what == "floor" and naive.waiting:
            request = min(naive.waiting, key=lambda r: r.place)
            band.take(request, floor=True)
            naive.take(request, floor=True)
            gone.append(request)
        elif what in ("take", "skip") and naive.waiting:
            skips = int(given_) % 4 if what == "skip" else 0  # type: ignore[call-overload]
            for step in range(skips + 1):
                head = naive.head()
                assert band.head() is head
                if head is None:
                    break
                if step < skips:
                    band.skip(head)
                    naive.out.append(head)
                else:
                    band.take(head, floor=False)
                    naive.take(head, floor=False)
                    gone.append(head)
            band.restore()
            naive.out.clear()
            naive.settle()
        assert band.head() is naive.head()
        assert band.virtual == naive.virtual
        assert len(band) == len(naive.waiting)
        for user, (start, finish) in naive.tags.items():
            known = band.users.get(user)
            if naive.here(user):
                assert known is not None
                assert known.start == start
            known_finish = 0 if known is None else known.finish
            assert max(known_finish, band.virtual) == max(finish, naive.virtual)
            if known is None:
                assert finish <= naive.virtual, "a record that says something was dropped"
            elif not naive.here(user):
                assert finish > naive.virtual, "a record that says nothing was kept"


# Guarantees.


def requests(
    pushes: list[tuple[str, int, int]], *, first: int = 1, priority: int = 5, at: int = 0
) -> list[Request]:
    made = []
    for place, (user, cost, start) in enumerate(pushes, first):
        request = Request(place, "", "m", priority, tenant=user, place=place, received_at=at)
        request.cost, request.latest_start = cost, start
        made.append(request)
    return made


def pop(queue: PoolQueue, ordering: Ordering, now: int = 0) -> Request:
    """Dispatch the next."""
    walk = queue.walk(ordering, now)
    request = walk.peek()
    assert request is not None
    walk.take(request)
    walk.finish()
    return request


@given(
    st.sampled_from([0, 5, 30]),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9), STARTS), min_size=20, max_size=80),
)
def test_shares_of_two_who_both_wait_differ_by_no_more_than_the_bound(
    window: int, pushes: list[tuple[str, int, int]]
) -> None:
    """(b) On every interval in which both wait, exact predictions, weights 1 and 3."""
    ordering = Aged(window=window)
    queue = PoolQueue(0, ordering.discipline(), WEIGHTS)
    for request in requests(pushes):
        queue.push(request)
    left = {u: sum(p[0] == u for p in pushes) for u in "ab"}
    lead, least, most = 0.0, 0.0, 0.0  # a's charge over weight less b's, since the start
    bound = 2 * window + 9 + 9 / 3
    while all(left.values()):
        request = pop(queue, ordering)
        left[request.tenant] -= 1
        lead += request.cost if request.tenant == "a" else -request.cost / 3
        assert max(lead - least, most - lead) <= bound + 0.01
        least, most = min(least, lead), max(most, lead)


@settings(max_examples=600)
@given(
    st.sampled_from([0, 5, 30]),
    st.integers(0, 3),
    st.lists(
        st.one_of(PUSHES, PUSHES, st.just(None)),
        min_size=6,
        max_size=40,
    ),
)
def test_no_user_gets_far_ahead_of_virtual_time(
    window: int, floor_every: int, actions: list[tuple[str, int, int] | None]
) -> None:
    """(c) F - V <= window + c / w always, floor on or off: nobody is punished for what was idle;
    and S >= V for who comes back: nobody banks credit.
    """
    ordering = Aged(window=window)
    queue = PoolQueue(floor_every, ordering.discipline(), WEIGHTS)
    band = queue.fair_band(Request(0, "", "m", 5))
    assert band is not None
    for place, action in enumerate(actions, 1):
        if action is not None:
            (request,) = requests([action], first=place)
            known = band.users.get(request.tenant)
            came_back = known is None or known.head is None
            virtual = band.virtual
            queue.push(request)
            assert not came_back or band.users[request.tenant].start >= virtual
        elif len(queue):
            pop(queue, ordering)
        for user in band.users.values():
            assert user.finish - band.virtual <= (window + 9 / user.weight) * TAG


@given(
    st.sampled_from([2, 8]),
    st.sampled_from([Aged(), Strict(), Fair(), Edf(), Fifo(), AgedUncapped()]),
    st.lists(
        st.tuples(
            st.integers(1, 10), st.sampled_from("abc"), st.sampled_from(RequestClass), STARTS
        ),
        min_size=5,
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_any_request_starts_within_the_exported_bound(
    floor_every: int,
    ordering: Ordering,
    given_: list[tuple[int, str, RequestClass, int]],
    flood: int,
) -> None:
    """(a) every * (m + 1) dispatches with m older ones, twice that where jobs wait too, whatever
    comes later: here, up to three of priority 10 after every dispatch.
    """
    queue = PoolQueue(floor_every, ordering.discipline())
    jobs = any(cls is RequestClass.JOB for _, _, cls, _ in given_)
    turns = 2 if jobs else 1
    bounds = {}
    for place, (priority, user, cls, start) in enumerate(given_, 1):
        request = Request(place, "", "m", priority, tenant=user, place=place, request_class=cls)
        request.cost, request.latest_start = 5, start
        bounds[place] = floor_every * turns * place
        queue.push(request)
    assert queue.start_bound() == floor_every * len(given_) * (
        2 if queue.interactive and queue.jobs else 1
    )
    place = len(given_)
    for count in range(1, max(bounds.values()) + 1):
        if not len(queue):
            break
        started = pop(queue, ordering)
        assert count <= bounds.pop(started.rid, count)
        for _ in range(flood):
            place += 1
            queue.push(Request(place, "", "m", 10, tenant="z", place=place, received_at=count))
    assert not bounds


@given(
    st.integers(0, 3),
    st.lists(
        st.tuples(st.integers(1, 10), st.sampled_from("ab"), st.integers(0, 100), STARTS),
        min_size=2,
        max_size=40,
    ),
)
def test_nobody_is_passed_by_one_more_than_the_cap_below(
    levels: int, given_: list[tuple[int, str, int, int]]
) -> None:
    """(a) Capped ageing, the floor apart."""
    ordering = Aged(levels=levels)
    queue = PoolQueue(0, ordering.discipline())
    waiting = []
    for place, (priority, user, at, start) in enumerate(sorted(given_, key=lambda g: g[2]), 1):
        request = Request(place, "", "m", priority, tenant=user, place=place)
        request.received_at, request.latest_start = at * SECOND, start
        queue.push(request)
        waiting.append(request)
    while waiting:
        started = pop(queue, ordering, 100 * SECOND)
        waiting.remove(started)
        assert all(r.priority <= started.priority + levels for r in waiting)


@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(0, 60)), min_size=2, max_size=40),
    st.sampled_from([0, 2, 10]),
)
def test_without_a_cap_nothing_that_came_so_much_later_passes(
    given_: list[tuple[int, int]], level_s: int
) -> None:
    """(a) `aged_uncapped`, one tenant: nothing that came per_level * (q - p) later passes."""
    ordering = AgedUncapped(per_level=level_s * SECOND)
    queue, waiting = PoolQueue(0, ordering.discipline()), []
    for place, (priority, at) in enumerate(sorted(given_, key=lambda g: g[1]), 1):
        request = Request(place, "", "m", priority, place=place, received_at=at * SECOND)
        queue.push(request)
        waiting.append(request)
    while waiting:
        started = pop(queue, ordering, 60 * SECOND)
        waiting.remove(started)
        for other in waiting:
            lead = level_s * SECOND * (started.priority - other.priority)
            assert started.received_at - other.received_at <= lead or started.place < other.place


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 9)), min_size=1, max_size=40))
def test_strict_for_one_user_is_head_of_line_priority(given_: list[tuple[int, int]]) -> None:
    """(d) No ageing, no floor, one user, no deadlines."""
    queue, made = PoolQueue(0, Strict().discipline()), []
    for place, (priority, cost) in enumerate(given_, 1):
        request = Request(place, "", "m", priority, place=place)
        request.cost = cost
        queue.push(request)
        made.append(request)
    expected = sorted(made, key=lambda r: (-r.priority, r.place))
    assert [pop(queue, Strict()) for _ in made] == expected


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(1, 50))))
def test_edf_is_earliest_deadline_first_over_all(given_: list[tuple[str, int, int]]) -> None:
    """(d) A window without end, one band: whoever's they are, at whatever priority."""
    queue, made = PoolQueue(0, Edf().discipline()), requests(given_)
    for request in made:
        request.priority = 1 + request.rid % 10
        queue.push(request)
    started = [pop(queue, Edf()).latest_start for _ in made]
    assert started == sorted(started)
