"""Report, status, dashboard, metrics and queues say the same, under load and after it.

Under load no two of them can be read at the same instant, so each is read between two reports: what
only grows must lie between. When all is quiet they must be equal. Meanwhile a node dies, and other
policies are put in force: no request is lost or counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchyard import errors
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow
Read = Callable[[Cluster], Awaitable[dict[str, int]]]
OUTCOMES = ("succeeded", "failed", "rejected", "cancelled", "expired")
AGENT = ("slots=4", "latency=5ms", "latency_per_token=1ms")
COUNTED = (*OUTCOMES, "received", "failovers", "batches", "output_tokens", "input_tokens")


async def report(running: Cluster) -> dict[str, int]:
    totals = (await running.report()).totals
    return {name: getattr(totals, name) for name in COUNTED}


async def dashboard(running: Cluster) -> dict[str, int]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{running.addresses['http']}/api/report") as answer,
    ):
        totals = (await answer.json())["totals"]
    return {name: totals[name] for name in COUNTED}


async def status(running: Cluster) -> dict[str, int]:
    """By the command line, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchyard.cli", "status", "-o", "json",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BATCHYARD_ADMIN_ADDRESS": running.addresses["admin"]},
    )  # fmt: skip
    said, _ = await process.communicate()
    totals = json.loads(said)["totals"]
    return {name: totals[name] for name in COUNTED}


async def metrics(running: Cluster) -> dict[str, int]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{running.addresses['http']}/metrics") as answer,
    ):
        page = await answer.text()
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name
            if name == "batchyard_requests_total":
                name = sample.labels["outcome"]
            sums[name] = sums.get(name, 0) + sample.value
    plain = {
        "received": "batchyard_requests_received_total",
        "failovers": "batchyard_failovers_total",
        "batches": "batchyard_batches_total",
        "output_tokens": "batchyard_tokens_output_total",
        "input_tokens": "batchyard_tokens_input_total",
    }
    return {name: int(sums.get(plain.get(name, name), 0)) for name in COUNTED}


async def nodes_of_report(running: Cluster) -> tuple[int, int]:
    return _finished_and_failed((await running.report()).nodes)


async def nodes_of_admin(running: Cluster) -> tuple[int, int]:
    return _finished_and_failed([node.summary async for node in running.admin.nodes()])


def _finished_and_failed(nodes: Any) -> tuple[int, int]:
    (found,) = [node for node in nodes if node.node_id == "a"]
    return found.total_finished, found.total_failed


async def nodes_of_dashboard(running: Cluster) -> tuple[int, int]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{running.addresses['http']}/api/report") as answer,
    ):
        nodes = (await answer.json())["nodes"]
    (found,) = [node for node in nodes if node["node_id"] == "a"]
    return int(found["total_finished"]), int(found.get("total_failed", 0))


async def nodes_of_metrics(running: Cluster) -> tuple[int, int]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{running.addresses['http']}/metrics") as answer,
    ):
        page = await answer.text()
    found = {
        sample.labels["outcome"]: int(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "batchyard_attempts_total" and sample.labels["node"] == "a"
    }
    return found["succeeded"], found["failed"]


async def test_all_that_shows_numbers_shows_the_same() -> None:
    async with cluster() as running:
        _, doomed = await running.fleet("a", "b", options=AGENT)
        stop = asyncio.Event()
        load = [asyncio.create_task(_load(running, n, stop)) for n in range(12)]

        async def busy() -> bool:
            return (await report(running))["succeeded"] > 100

        await until(busy)
        doomed.process.kill()
        for read, order in ((metrics, "fifo"), (dashboard, "edf"), (status, "fair"), (metrics, "")):
            await running.admin.update_policy(f"policies: {{order: {order or 'aged'}}}")
            before = await report(running)
            # What the dashboard gave last is given again for 0.4 s; nobody has asked it since.
            found, after = await read(running), await report(running)
            for name in COUNTED:
                assert before[name] <= found[name] <= after[name], (read.__name__, name)
        stop.set()
        await asyncio.gather(*load)
        await until(running.idle)
        whole = await report(running)
        for read in (metrics, dashboard, status):
            await until(lambda read=read: _is(read, running, whole), what=read.__name__)
        assert len(await running.events("policy_updated")) == 4
        node = await nodes_of_report(running)
        for look in (nodes_of_admin, nodes_of_dashboard, nodes_of_metrics):
            assert await look(running) == node, look.__name__
        assert node[0] > 0
        assert whole["received"] == sum(whole[name] for name in OUTCOMES)
        for name in ("succeeded", "failed", "rejected"):
            assert whole[name] > 0, name


async def _is(read: Read, running: Cluster, wanted: dict[str, int]) -> bool:
    return await read(running) == wanted


async def _load(running: Cluster, number: int, stop: asyncio.Event) -> None:
    bad: list[dict[str, Any]] = [
        {"prompt": "[[fail]]", "model": "m"},
        {"prompt": "hi", "model": "nobody-has-it"},
    ]
    while not stop.is_set():
        number += 1
        good: dict[str, Any] = {"prompt": "hi", "model": "m", "max_tokens": 8}
        asked = dict(bad[number // 6 % 2]) if number % 6 == 0 else good
        with contextlib.suppress(errors.BatchyardError):
            await running.client.generate(asked.pop("prompt"), **asked)
