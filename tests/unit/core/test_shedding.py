"""An overloaded pool turns away always the same ones, the least urgent first, and only then."""

from __future__ import annotations

import itertools

from scheduler_service.core.interfaces import Shedding
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.shedding import HOUR, Cursor
from scheduler_service.core.types import SECOND, Request
from scheduler_service.policies import build
from tests.builders import World, engine, settings

RULE = Shedding(target=SECOND, window=SECOND, fewer=0.05, more=0.01)


class Pool:
    """A cursor and a clock."""

    def __init__(self) -> None:
        self.cursor = Cursor(RULE, seed=1)
        self.now = 0

    def second(self, waits: int, *, tenants: int = 200, priorities: tuple[int, ...] = (5,)) -> set:
        """One request of each tenant and priority; then dispatches that waited so long. Returns
        (tenant, priority) of those that were admitted.
        """
        admitted = set()
        for tenant in range(tenants):
            for priority in priorities:
                asked = Request(1, "r", "m", priority, self.now, f"t{tenant}")
                if self.cursor.admits(asked, self.now):
                    admitted.add((tenant, priority))
        for wait in (waits, waits + SECOND):
            self.cursor.dispatched(wait)
        self.now += SECOND
        return admitted


def test_nobody_is_turned_away_while_the_shortest_wait_is_short() -> None:
    """Others may wait for long: a full batch of slots that frees late is no overload."""
    pool = Pool()
    for _ in range(50):
        assert len(pool.second(SECOND)) == 200
    assert not pool.cursor.overloaded


def test_each_overloaded_window_admits_a_twentieth_less() -> None:
    pool = Pool()
    counts = [len(pool.second(2 * SECOND)) for _ in range(30)]
    assert counts[0] == 200
    for before, after in itertools.pairwise(counts[:20]):
        assert 0.85 * before - 8 <= after < before
    assert counts[-1] < 80


def test_the_same_tenants_are_taken_as_long_as_it_lasts() -> None:
    pool = Pool()
    former = pool.second(2 * SECOND)
    for _ in range(20):
        admitted = pool.second(2 * SECOND)
        assert admitted <= former
        former = admitted
    assert 0 < len(former) < 120


def test_the_least_urgent_go_first_and_nine_and_ten_never() -> None:
    pool = Pool()
    for _ in range(40):
        admitted = pool.second(2 * SECOND, tenants=100, priorities=(10, 9, 5, 1))
    by_priority = {p: sum(q == p for _, q in admitted) for p in (10, 9, 5, 1)}
    assert by_priority[10] == by_priority[9] == 100
    assert by_priority[1] == 0


def test_all_come_back_when_it_is_over() -> None:
    pool = Pool()
    for _ in range(30):
        pool.second(2 * SECOND)
    few = len(pool.second(0))
    for _ in range(200):
        last = pool.second(0)
    assert few < 100
    assert len(last) == 200
    assert pool.cursor.level == 0


def test_a_quiet_time_ends_it_at_once() -> None:
    pool = Pool()
    for _ in range(30):
        pool.second(2 * SECOND)
    pool.now += 60 * SECOND
    assert len(pool.second(0)) == 200


def test_a_lone_tenant_is_not_shut_out() -> None:
    pool = Pool()
    for _ in range(50):
        assert len(pool.second(2 * SECOND, tenants=1)) == 1


def test_another_hour_takes_other_tenants() -> None:
    pool = Pool()
    for _ in range(20):
        first = pool.second(2 * SECOND)
    pool.now += HOUR - 30 * SECOND  # and quiet
    for _ in range(20 + 30):
        second = pool.second(2 * SECOND)
    assert not second <= first


def world(**fields: object) -> World:
    """A pool that has been overloaded for a minute: its one slot takes 3 s, six come a second."""
    w = World(settings(), build({"admission": "shed"}))
    agent = w.agent("a", engine(models=["m", "s"], slots=1))
    for second in range(60):
        for tenant in range(6):
            w.submit(tenant=f"t{tenant}", priority=3 + tenant % 3)
        w.advance(1)
        if second % 3 == 2:
            agent.finish_ids(list(agent.held))
    assert w.scheduler.state.pools["m"].cursor.overloaded
    return w


def test_who_is_shed_hears_it_at_once_and_when_to_come_again() -> None:
    w = world()
    refused = w.submit(tenant="t1", priority=1)
    assert w.outcome(refused) is Outcome.REJECTED
    assert w.result(refused).reason is Reason.SHED
    assert SECOND <= w.result(refused).retry_after <= 60 * SECOND
    assert w.outcome(w.submit(tenant="t1", priority=9)) is None


def test_who_permits_a_smaller_model_gets_that() -> None:
    w = world()
    request = w.submit(tenant="t1", priority=1, degrade=("s",))
    assert w.outcome(request) is None
    assert request.served_model == "s"
    assert request.degrade_reason == "overload"


def test_other_policies_shed_nobody() -> None:
    for name in ("bounded", "guarded", "open"):
        w = World(settings(), build({"admission": name}))
        w.agent("a", engine())
        assert w.scheduler.state.pools["m"].cursor is None
