"""A night job against chat, with the live service: items fill the slots, calls still start soon.

The configurations of the experiment `night-live`, with all times divided by ten. Limits are wide,
for they hold on a machine that is busy with other tests; the experiment has the promised ones.
"""

from __future__ import annotations

import pytest

from benchmarks.night import Played, cases, play_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SHRINK = 10.0
ITEM_S = 30.0  # of a long item, before it is shrunk; so are all times here


def median(played: Played) -> float:
    """Of the waits of all calls, in seconds."""
    waits = sorted(wait for night in played.nights for _, wait in night.waits)
    return waits[len(waits) // 2]


async def test_calls_start_soon_though_a_job_fills_every_slot() -> None:
    """Short items let calls in as they end, long ones are stopped for them, and none is lost."""
    wanted = {case.name: case for case in cases(60, shrink=SHRINK)}
    played = await play_all([wanted["short items"], wanted["preemption"]])
    (short,), (long,) = (one.nights for one in played.values())
    assert median(played["short items"]) < ITEM_S / 3, "before 4,000 items of a second"
    assert median(played["preemption"]) < ITEM_S / 3, "before any item has ended"
    assert short.preempted == 0
    assert long.preempted > 0
    for night in (short, long):
        first, second = night.ended
        assert second > first, "the job gets on in each window in which items can end"
        assert night.failed == 0
