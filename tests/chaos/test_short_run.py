"""A short run of all faults against real processes; a long one: `make chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.run import Settings, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_every_kind_of_fault_breaks_no_promise() -> None:
    """Behaviours 50, 54, 56, 125, 131 and what the checker says, under one of each fault."""
    outcome = await run(Settings(seed=5, seconds=10.0, nodes=2, callers=4))
    assert outcome.verdict.findings == [], outcome.line()
    assert outcome.verdict.counts["ok"] > 20, outcome.line()
    assert outcome.verdict.counts["jobs"] > 0, outcome.line()
    for kind in ("kill_scheduler", "kill_engine", "freeze_engine"):
        assert outcome.faults[kind] > 0, outcome.line()
