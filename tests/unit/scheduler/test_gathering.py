"""Turns keep a distance only while single calls keep the process busy."""

from __future__ import annotations

from scheduler_service.core.types import MICROSECOND
from scheduler_service.gathering import ALONE, BUSY, CALM, ENOUGH, MOST, STEP, WINDOW, Gathering


class Load:
    """Time, and the processor time of it."""

    def __init__(self) -> None:
        self.now = 1_000 * WINDOW
        self.cpu = 0
        self.rule = Gathering(lambda: self.cpu)
        self.rule.turned(self.now, 0)

    def windows(self, share: float, *, count: int = 1, alone: int = ALONE) -> None:
        """Windows pass, of which `share` is processor time, with so many single calls each."""
        for _ in range(count):
            self.now += WINDOW
            self.cpu += int(share * WINDOW)
            self.rule.turned(self.now, alone)

    def wait(self, after: int = 0, waiting: int = 1) -> int:
        """Of a turn for which the first cause comes so long after the last one."""
        return self.rule.wait(self.now + after, waiting)


def test_turns_keep_a_growing_distance_while_single_calls_keep_the_process_busy() -> None:
    load = Load()
    assert load.wait() == 0
    load.windows(BUSY)
    assert load.wait() == STEP
    load.windows(BUSY)
    assert load.wait() == 2 * STEP
    assert load.wait(after=100 * MICROSECOND) == 2 * STEP - 100 * MICROSECOND
    load.windows(1.0, count=100)
    assert load.wait() == MOST


def test_nothing_waits_after_a_pause_nor_once_enough_are_together() -> None:
    load = Load()
    load.windows(1.0, count=100)
    assert load.wait(after=MOST) == 0
    assert load.wait(after=10 * MOST) == 0
    assert load.wait(waiting=ENOUGH - 1) > 0
    assert load.wait(waiting=ENOUGH) == 0


def test_nothing_waits_where_the_process_is_not_busy() -> None:
    load = Load()
    load.windows(BUSY - 0.01, count=100)
    assert load.wait() == 0


def test_requests_in_messages_of_many_never_make_turns_wait() -> None:
    load = Load()
    load.windows(1.0, alone=ALONE - 1)
    assert load.wait() == 0
    load.windows(1.0, count=100)
    load.windows(1.0, alone=0)
    assert load.wait() == 0


def test_distance_stays_while_it_is_what_the_load_needs_and_shrinks_below() -> None:
    load = Load()
    load.windows(BUSY, count=3)
    load.windows(CALM, count=100)
    assert load.wait() == 3 * STEP
    load.windows(CALM - 0.01)
    assert load.wait() == 2 * STEP
    load.windows(CALM - 0.01, count=100)
    assert load.wait() == 0


def test_calls_of_several_turns_count_together() -> None:
    load = Load()
    for _ in range(ALONE - 1):
        load.rule.turned(load.now, 1)
    load.windows(1.0, alone=1)
    assert load.wait() > 0
