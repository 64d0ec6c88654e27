"""Admission by drain rate, displacement, tenants' shares; degrade under pressure."""

from __future__ import annotations

import pytest

from scheduler_service.core.interfaces import Candidate, PoolLoad, PressureView
from scheduler_service.core.outcomes import Outcome, Reason, RequestClass
from scheduler_service.core.pressure import DrainRate
from scheduler_service.core.types import NEVER, SECOND, Request
from scheduler_service.policies import build
from scheduler_service.policies.admission import Guarded
from scheduler_service.policies.degrade import Pressed
from tests.builders import World, engine, queue, seconds, settings

NOW = 1_000 * SECOND


def load(**fields: object) -> PoolLoad:
    """Twenty wait on four busy slots, two end each second."""
    fields = {
        "waiting": 20, "waiting_bytes": 0, "ahead": 19, "free_inputs": 0, "parallel": 4,
        "live_nodes": 1, "expected_service": 2 * SECOND, "mean_service": 2 * SECOND,
        "max_requests": 100, "max_bytes": 1 << 20, "drain_rate": 2.0, **fields,
    }  # fmt: skip
    return PoolLoad(**fields)  # type: ignore[arg-type]


def request(**fields: object) -> Request:
    return Request(1, "r", "m", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "deadline_s", "reason"),
    [
        # Ten seconds of waiting, of which eight count, and two of work.
        ({}, 10.1, Reason.NONE),
        ({}, 9.9, Reason.DEADLINE_UNREACHABLE),
        # Not measured yet: (19 + 1) * 2 s / 4 slots is the same.
        ({"drain_rate": 0.0}, 10.1, Reason.NONE),
        ({"drain_rate": 0.0}, 9.9, Reason.DEADLINE_UNREACHABLE),
        ({"free_inputs": 30}, 2.1, Reason.NONE),
        # More than 60 s of work waits.
        ({"waiting": 100, "max_requests": 1_000}, 0, Reason.NONE),
        ({"waiting": 120, "max_requests": 1_000}, 0, Reason.QUEUE_FULL),
        ({"waiting": 100}, 0, Reason.QUEUE_FULL),
        # A quarter of 100 places for a tenant, while another waits.
        ({"tenant_waiting": 24, "tenants": 2}, 0, Reason.NONE),
        ({"tenant_waiting": 25, "tenants": 2}, 0, Reason.QUEUE_FULL),
        ({"tenant_waiting": 90, "tenants": 1}, 0, Reason.NONE),
    ],
)
def test_guarded(fields: dict[str, object], deadline_s: float, reason: Reason) -> None:
    deadline = NOW + seconds(deadline_s) if deadline_s else NEVER
    verdict = Guarded().decide(request(deadline=deadline), load(**fields), NOW)
    assert (verdict.reason if verdict else Reason.NONE) is reason


def test_hint_is_the_time_in_which_a_tenth_drains() -> None:
    verdict = Guarded().decide(request(), load(waiting=100), NOW)
    assert verdict is not None
    assert verdict.retry_after == 5 * SECOND


def test_drain_rate_is_measured_while_others_wait() -> None:
    rate = DrainRate()
    for tick in range(400):
        rate.add(NOW + tick * SECOND // 4, busy=True)
    assert rate.per_second == pytest.approx(4, rel=0.05)
    for tick in range(400):
        rate.add(NOW + (100 + tick) * SECOND, busy=False)
    assert rate.per_second == pytest.approx(4, rel=0.05)
    for tick in range(400):
        rate.add(NOW + (500 + tick) * SECOND, busy=True)
    assert rate.per_second == pytest.approx(1, rel=0.05)


def world(max_requests: int = 4) -> World:
    """One busy slot and a queue of four."""
    core = settings(queue=queue(max_requests=max_requests))
    w = World(core, build({"admission": "guarded"}))
    w.agent("a", engine())
    w.submit(priority=10)
    return w


def test_urgent_newcomer_displaces_the_youngest_of_the_least_urgent() -> None:
    w = world()
    old, young = w.submit(2, priority=3)
    middle = w.submit(2, priority=5)
    urgent = w.submit(priority=9)
    assert w.outcome(urgent) is None
    assert w.result(young).reason is Reason.SHED
    assert w.outcome(young) is Outcome.FAILED
    assert w.result(young).retry_after
    (told,) = w.noted("failed")
    assert told.request is young
    assert told.data is not None
    assert told.data["reason"] == "SHED"
    again = w.submit(priority=9)
    assert w.result(old).reason is Reason.SHED
    assert [w.outcome(r) for r in (*middle, urgent, again)] == [None] * 4


def test_nobody_is_displaced_for_an_equal() -> None:
    w = world()
    waiting = w.submit(4, priority=5)
    assert w.result(w.submit(priority=5)).reason is Reason.QUEUE_FULL
    assert w.result(w.submit(priority=4)).reason is Reason.QUEUE_FULL
    assert [w.outcome(r) for r in waiting] == [None] * 4


def test_those_that_left_are_not_displaced() -> None:
    w = world()
    gone = w.submit(2, priority=1)
    w.cancel(*gone)
    low = w.submit(4, priority=2)
    w.submit(priority=9)
    assert w.result(low[-1]).reason is Reason.SHED


def test_tenant_has_a_share_only_while_another_waits() -> None:
    w = world(max_requests=8)
    w.submit(6, tenant="a")
    assert w.outcome(w.submit(tenant="b")) is None
    assert w.result(w.submit(tenant="a")).reason is Reason.QUEUE_FULL
    assert w.outcome(w.submit(tenant="b")) is None
    assert w.result(w.submit(tenant="b")).reason is Reason.QUEUE_FULL
    assert w.outcome(w.submit(tenant="a", request_class=RequestClass.JOB)) is None


# Degrade.


@pytest.mark.parametrize(
    ("degrading", "above_s", "below_s", "then"),
    [
        (False, 1.9, 0, False), (False, 2, 0, True), (True, 0, 9.9, True), (True, 0, 10, False),
    ],
)  # fmt: skip
def test_pressed_takes_time_to_begin_and_to_end(
    degrading: bool, above_s: float, below_s: float, then: bool
) -> None:
    view = PressureView(0, degrading, seconds(above_s), seconds(below_s))
    assert Pressed().overloaded(view) is then


def test_pressed_takes_the_first_that_is_in_time_and_not_pressed_itself() -> None:
    late = Candidate("a", 1, 9, 0, in_time=False)
    pressed = Candidate("b", 1, 0, 9, expected_wait=seconds(2.4))
    dead = Candidate("c", 0, 9, 0)
    good = Candidate("d", 1, 0, 9, expected_wait=seconds(2.3))
    choose = Pressed().choose
    assert choose(request(), [late, pressed, dead, good]) == "d"
    assert choose(request(), [late, pressed, dead]) is None


def overloaded() -> World:
    """A queue of 100 that takes far longer than 3 s, and an idle smaller model."""
    w = World(policies=build({"degrade": "pressed"}))
    w.agent("big", engine())
    w.agent("small", engine(slots=200, models=["s"]))
    first = w.submit()
    w.advance(1)
    w.agents["big"].finish(first)
    return w


def test_overloaded_pool_degrades_the_least_urgent_that_permit_it() -> None:
    w = overloaded()
    low = w.submit(40, priority=2, degrade=("s",))
    no = w.submit(5, priority=2)
    high = w.submit(40, priority=6, degrade=("s",))
    spared = w.submit(5, priority=9, degrade=("s",))
    w.advance(1.9)
    assert not w.noted("degraded")
    w.advance(1)
    assert all(r.degrade_reason == "overload" for r in low[1:])
    assert sum(r.degraded for r in high) > 30
    assert not any(r.degraded for r in [*no, *spared])


def test_short_peak_degrades_nobody() -> None:
    w = overloaded()
    burst = w.submit(10, degrade=("s",))
    w.advance(1.4)
    w.cancel(*burst[1:])
    w.advance(5)
    assert not w.noted("degraded")


def test_overload_ends_after_ten_seconds_without_pressure() -> None:
    w = overloaded()
    w.submit(40, degrade=("s",))
    w.advance(3)
    overload = w.scheduler.state.pools["m"].overload
    assert overload.degrading
    w.cancel(*[r for r in list(w.scheduler.state.requests.values()) if r.in_queue])
    w.advance(9)
    assert overload.degrading
    w.advance(2)
    assert not overload.degrading
    assert ("pressure", "m") not in w.scheduler.state.timers
