"""The wheel of timers: never early, at most one bucket late, and nothing left behind."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.timers import BUCKET, TimerWheel
from scheduler_service.core.types import MILLISECOND, NEVER


def test_timer_fires_never_early_and_at_most_one_bucket_late() -> None:
    wheel = TimerWheel()
    wheel.set("a", 12 * MILLISECOND)
    assert wheel.due(12 * MILLISECOND - 1) == []
    wakeup = wheel.next()
    assert wakeup is not None
    assert 12 * MILLISECOND <= wakeup < 12 * MILLISECOND + BUCKET
    assert wheel.due(wakeup) == ["a"]
    assert wheel.next() is None


def test_setting_a_timer_again_replaces_it() -> None:
    wheel = TimerWheel()
    wheel.set("a", 5 * MILLISECOND)
    wheel.set("a", 50 * MILLISECOND)
    assert len(wheel) == 1
    assert wheel.due(49 * MILLISECOND) == []
    assert wheel.due(50 * MILLISECOND) == ["a"]


def test_never_cancels() -> None:
    wheel = TimerWheel()
    wheel.set("a", 5 * MILLISECOND)
    wheel.set("a", NEVER)
    assert "a" not in wheel
    assert wheel.next() is None


def test_timer_in_the_past_is_due_at_once() -> None:
    wheel = TimerWheel()
    wheel.due(1_000 * MILLISECOND)
    wheel.set("a", 3 * MILLISECOND)
    assert wheel.due(1_000 * MILLISECOND) == ["a"]


def test_keys_of_one_bucket_fire_in_the_order_they_were_set() -> None:
    wheel = TimerWheel()
    for key in (3, 1, 2):
        wheel.set(key, 4 * MILLISECOND)
    assert wheel.due(5 * MILLISECOND) == [3, 1, 2]


def test_cancelled_timers_leave_at_most_a_number_per_bucket() -> None:
    """A deadline that is set and cancelled 10,000 times in turn, as requests come and go."""
    wheel = TimerWheel()
    for rid in range(10_000):
        wheel.set(rid, 30_000 * MILLISECOND + rid % (10 * MILLISECOND))
        wheel.cancel(rid)
    assert len(wheel) == 0
    assert len(wheel._order) <= 3
    assert len(wheel._buckets) <= 3
    assert wheel.next() is None
    assert wheel._buckets == {}


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "due"]), st.integers(0, 5), st.integers(0, 80)),
        max_size=60,
    )
)
def test_wheel_does_as_a_dict_of_instants(actions: list[tuple[str, int, int]]) -> None:
    wheel, model, now = TimerWheel(), dict[int, int](), 0
    for what, key, value in actions:
        if what == "set":
            wheel.set(key, now + value * MILLISECOND)
            model[key] = now + value * MILLISECOND
        elif what == "cancel":
            wheel.cancel(key)
            model.pop(key, None)
        else:
            now += value * MILLISECOND
            fired = wheel.due(now)
            assert len(fired) == len(set(fired))
            for one in fired:
                assert model.pop(one) <= now  # type: ignore[arg-type]
            assert all(at > now - BUCKET for at in model.values())
        assert len(wheel) == len(model)
        wakeup = wheel.next()
        assert (wakeup is None) is (not model)
        if wakeup is not None:
            assert min(model.values()) <= wakeup < min(model.values()) + BUCKET


def test_next_is_never_in_an_emptied_bucket() -> None:
    wheel, draw = TimerWheel(), random.Random(7)
    for _ in range(2_000):
        key = draw.randrange(50)
        if draw.random() < 0.5:
            wheel.set(key, draw.randrange(1, 300) * MILLISECOND)
        else:
            wheel.cancel(key)
        at = wheel.next()
        assert (at is None) is (len(wheel) == 0)
