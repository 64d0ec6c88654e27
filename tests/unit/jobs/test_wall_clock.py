"""Lengths that outlive the process go by wall time, but a step of the clock moves none of them."""

from __future__ import annotations

from scheduler_service.clock import Clock
from scheduler_service.core.types import SECOND
from scheduler_service.jobs.keeper import WallClock


class Stepped(Clock):
    """A clock whose wall time somebody sets."""

    step_ns = 0

    def wall_ns(self, instant: int) -> int:
        return super().wall_ns(instant) + self.step_ns


def test_step_of_the_wall_clock_changes_no_length() -> None:
    """Behaviour 132: an hour forth, then an hour back."""
    clock = Stepped()
    wall = WallClock(clock)
    before = wall.ns()
    due = before + 10 * SECOND
    for step in (3600 * SECOND, -3600 * SECOND):
        clock.step_ns = step
        assert 0 <= wall.ns() - before < 5 * SECOND
        assert 0 < wall.instant(due) - clock.now() <= 10 * SECOND
