"""Refusals are all counted; lines about them are few."""

from __future__ import annotations

import logging

import pytest

from scheduler_service.core.types import SECOND
from scheduler_service.security.refusals import LINES_MAX, Place, Refusals


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ns = 1_000 * SECOND

    def now(self) -> int:
        return self.ns


def test_a_flood_is_counted_whole_and_told_in_a_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SetClock()
    refusals = Refusals(clock)  # type: ignore[arg-type]
    for _ in range(500):
        refusals.tell(Place.RPC, "UNAUTHENTICATED", "no", method="/x", address="a")
    refusals.tell(Place.HTTP, "PERMISSION_DENIED", "no")
    assert refusals.total(Place.RPC) == 500
    assert len(caplog.records) == LINES_MAX + 1
    clock.ns += 11 * SECOND
    refusals.tell(Place.RPC, "UNAUTHENTICATED", "no", principal="p")
    last = caplog.records[-1]
    assert last.levelno == logging.WARNING
    assert f"{500 - LINES_MAX} more" in last.getMessage()
    assert last.principal == "p"  # type: ignore[attr-defined]
    assert sum(refusals.family().series.values()) == 502  # type: ignore[arg-type]
