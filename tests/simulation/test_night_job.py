"""A night job against chat: stored items fill the slots, fresh urgent requests still start soon."""

from __future__ import annotations

from simulator.experiments.night import Night, anew, measure, p99, play
from simulator.experiments.verdicts import render


def test_the_night_s_promises_hold_in_a_short_one() -> None:
    """Short items without preemption; long ones with it, without, and with a slot of headroom."""
    rows = measure(short=True).rows
    assert all(row.passed for row in rows), "\n" + render(rows)


def test_items_that_start_anew_hold_chat_up_no_longer() -> None:
    """They lose what they did; chat does not care."""
    _, waits = play(Night(items=400, item_s=30, rate=2.0, until_s=600, make=anew))
    assert p99(waits.all(first=1)) <= 1
