"""Every attempt fails: how much more than was asked for do the nodes get? Real processes."""

from __future__ import annotations

import asyncio
import time

import pytest

from batchyard.errors import BatchyardError
from tests.integration.cluster import cluster

pytestmark = pytest.mark.slow

FLOOR, BURST, SHARE = 2, 5, 0.2
REQUESTS = 200


async def test_total_failure_is_no_storm() -> None:
    """Behaviour 66: 1.2 times the load plus the floor, and no layer repeats it."""
    settings = [
        f"failover.retry_floor={FLOOR}",
        f"failover.retry_burst={BURST}",
        f"failover.retry_share={SHARE}",
        "failover.backoff_base=10ms",
        "policies.health=trusting",
    ]
    async with cluster(settings=settings) as running:
        await running.fleet("a", "b", options=("slots=8", "failure_rate=1.0"))
        began = time.monotonic()

        async def one() -> BatchyardError:
            with pytest.raises(BatchyardError) as failed:
                await running.client.generate("p", model="m", max_tokens=2)
            return failed.value

        errors = await asyncio.gather(*(one() for _ in range(REQUESTS)))
        took = time.monotonic() - began
        assert {e.code for e in errors} == {"ABORTED"}
        assert "RETRY_BUDGET_EXHAUSTED" in {e.reason for e in errors}
        report = await running.report()
        assert report.totals.received == REQUESTS, "no client repeated what was given up"
        attempts = REQUESTS + report.totals.failovers
        assert REQUESTS < attempts <= (1 + SHARE) * REQUESTS + FLOOR * (took + 1) + BURST
