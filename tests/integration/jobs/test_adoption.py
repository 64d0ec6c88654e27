"""What agents hold when their scheduler dies is taken over by the next one, not run again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.cluster import until
from tests.integration.jobs.job_world import JobWorld, check_each_once, job_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def _holds(world: JobWorld, node_id: str, items: int) -> bool:
    """By its agent's word: what was only sent may die with the scheduler."""
    node = await world.client.admin.node(node_id)
    return sum(len(load.running_dispatch_ids) for load in node.report.engines) == items


async def test_items_that_an_agent_still_runs_are_not_run_again(tmp_path: Path) -> None:
    """A killed scheduler's successor takes over what agents hold, by the ids of before."""
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=4", "latency_per_token=200ms")
        await world.create("held", 6)
        await until(lambda: _holds(world, "n1", 4), what="four items run")
        await world.restart(signal.SIGKILL)
        done = await world.until_done("held")
        assert done.counts.succeeded == 6
        results = await world.results("held")
        check_each_once(results, 6)
        terms = sorted(r.result.attempts[0].dispatch_id >> 40 for r in results)
        assert terms == [1, 1, 1, 1, 2, 2]
        assert all(r.result.outputs[0].text.count(" ") == 16 for r in results), "whole text"
