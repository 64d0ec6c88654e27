"""The wall clocks of scheduler and agent are set while work waits, runs and is stored."""

from __future__ import annotations

import asyncio
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from batchyard import AsyncClient
from batchyard.v1 import InferenceRequest, JobItem, TextInput
from node_agent.engines.simulated_text import is_seamless
from tests.chaos.history import History
from tests.chaos.site import SLOTS, Site
from tests.integration.cluster import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROUNDS = 3  # of what the slots hold: some of it waits
JUMPS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2, signal.SIGUSR1)  # +1 h, 0, -1 h, 0


async def test_steps_of_wall_clocks_end_no_request_and_lose_no_node(tmp_path: Path) -> None:
    """Behaviour 132: an hour forth and back under calls, streams and a job with deadlines."""
    async with Site.running(History(), tmp_path, ["n1"]) as site:
        client = AsyncClient(site.client_link.address)
        async with client:
            await until(lambda: _is_up(site))
            item = JobItem(request=InferenceRequest(model="m", text=TextInput(prompt="p")))
            item.request.params.max_tokens = 20
            job = await client.jobs.create([item] * 20, completion_window="60s", ttl="60s")
            calls = [
                asyncio.create_task(
                    client.generate("p", model="m", max_tokens=40, timeout="60s", max_wait="50s")
                )
                for _ in range(ROUNDS * SLOTS)
            ]
            for jump in JUMPS:
                ended = sum(call.done() for call in calls)
                for process in (site.scheduler, site.agents["n1"]):
                    process.signal(jump)
                await until(lambda before=ended: _goes_on(calls, before))
            for result in await asyncio.gather(*calls):
                assert is_seamless(result.text)
                assert [attempt.number for attempt in result.attempts] == [1]
            done = await client.jobs.wait(job.job_id)
            assert done.counts.succeeded == 20
            async for found in client.jobs.results(job.job_id):
                assert not found.result.HasField("error")
        kinds = [event.event async for event in site.admin.events()]
        assert {"node_suspect", "node_lost", "expired", "failover"}.isdisjoint(kinds), kinds
        page = await asyncio.to_thread(_metrics, str(site.addresses["http"]))
        negative = [line for line in page.splitlines() if re.search(r" -[0-9.]", line)]
        assert [line for line in negative if "clock_offset" not in line] == []


async def _is_up(site: Site) -> bool:
    return any([node.summary.can_accept async for node in site.admin.nodes()])


async def _goes_on(calls: list[asyncio.Task[object]], before: int) -> bool:
    return sum(call.done() for call in calls) > min(before + 1, len(calls) - 1)


def _metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        return str(page.read(), "utf-8")
