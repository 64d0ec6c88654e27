"""Requests that end have a line in the log, up to so many a second."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from scheduler_service.core.outcomes import Reason
from scheduler_service.request_log import RequestLog
from tests.unit.scheduler.small_world import SmallWorld


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [r for r in caplog.records if getattr(r, "event", "") == "request_finished"]


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "scheduler_service.requests")


async def test_a_line_says_what_became_of_it_and_where(caplog: pytest.LogCaptureFixture) -> None:
    world = SmallWorld()
    world.driver.observe(RequestLog(10, world.statistics.totals))
    await world.join("n0", slots=2)
    good, bad = await world.submit(2, max_attempts=1)
    good.trace_id = "ab" * 16
    await world.pass_time(1)
    await world.finish(good)
    await world.finish(bad, reason=Reason.ENGINE_ERROR)
    first, second = lines(caplog)
    assert (first.request_id, first.trace_id) == (good.request_id, "ab" * 16)
    assert (first.outcome, first.model, first.node_id) == ("succeeded", "m", "n0")
    assert first.duration_ms == 1000
    assert not hasattr(first, "reason")
    assert (second.outcome, second.reason) == ("failed", "ATTEMPTS_EXHAUSTED")


async def test_beyond_the_rate_the_next_line_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = SmallWorld()
    world.driver.observe(RequestLog(3, world.statistics.totals))
    await world.join("n0", slots=50)
    await world.finish(*await world.submit(40))
    assert len(lines(caplog)) == 3
    await world.pass_time(1)
    await world.finish(*await world.submit(1))
    assert len(lines(caplog)) == 4
    assert lines(caplog)[-1].suppressed == 37
