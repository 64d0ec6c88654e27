"""Metrics of real processes: the page for Prometheus, what goes out by OTLP, and the report."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.cluster import Process, cluster, until
from tests.integration.otlp_receiver import receiver


async def page(address: str) -> dict[str, float]:
    """Sums by name of the page scraped there."""
    sums: dict[str, float] = {}
    url = f"http://{address}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        for family in text_string_to_metric_families(await answer.text()):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0) + sample.value
                for key, value in sample.labels.items():
                    name = f"{sample.name}/{key}={value}"
                    sums[name] = sums.get(name, 0) + sample.value
    return sums


def metrics_address(agent: Process) -> str:
    (line,) = [line for line in agent.lines if '"metrics_served"' in line]
    address: str = json.loads(line)["address"]
    return address


@pytest.mark.slow
async def test_page_otlp_and_report_say_the_same_and_a_dead_node_leaves() -> None:
    async with receiver() as collector:
        env = {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{collector.endpoint}/v1/metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        async with cluster(env=env) as running:
            http = running.addresses["http"]
            agent = await running.agent_of(
                "n0", "--set", "metrics.listen=127.0.0.1:0", "--engine", "simulated",
                "--engine-option", "models=[m]", "--engine-option", "slots=2",
            )  # fmt: skip
            calls = [running.client.generate(f"hello {i}", model="m") for i in range(12)]
            await asyncio.gather(*calls)
            await until(running.idle)
            report, seen = await running.report(), await page(http)
            assert seen["batchyard_requests_total/outcome=succeeded"] == 12
            assert report.totals.succeeded == 12
            assert seen["batchyard_tokens_output_total"] == report.totals.output_tokens > 0
            assert seen["batchyard_attempts_total/node=n0"] == 12
            assert seen["batchyard_event_loop_lag_seconds_count"] > 0
            method = "rpc_method=batchyard.v1.AdminService/GetReport"
            assert seen[f"rpc_server_call_duration_seconds_count/{method}"] > 0
            assert not any("Service/Multiplex" in name for name in seen), "it has not ended"

            own = await page(metrics_address(agent))
            assert own["batchyard_attempts_total/outcome=succeeded"] == 12
            assert own["batchyard_slots"] == seen["batchyard_slots"] == 2
            assert own["batchyard_inflight"] == seen["batchyard_inflight"] == 0
            assert own["batchyard_session_up/node=n0"] == 1

            async def told() -> bool:
                sent_by_agent = collector.metric("batchyard.session.up") == 1
                return sent_by_agent and collector.metric("batchyard.requests") == 12

            await until(told)
            assert collector.metric("batchyard.queue.wait") == 12  # a histogram's count
            agent.process.kill()

            async def gone() -> bool:
                names: Any = await page(http)
                return not any("node=n0" in name for name in names)

            await until(gone)
