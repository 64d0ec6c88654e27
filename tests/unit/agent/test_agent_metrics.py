"""An agent's metrics are what it reports, with bounded labels."""

from __future__ import annotations

import re
from pathlib import Path

from batchyard.v1 import node_service_pb2 as node
from node_agent.core import Agent, EngineSpec
from node_agent.telemetry.metrics import AgentMetrics
from service_kit import prometheus
from service_kit.loop_lag import LoopLag
from service_kit.metrics import Family, Kind
from service_kit.tracing import SpanCounts

REPORT = node.NodeReport(
    cpu_utilization=0.25,
    application_utilization=0.5,
    engines=[
        node.EngineLoad(
            engine_id="e", health=node.ENGINE_HEALTH_STALLED, running=3, kv_utilization=0.75
        )
    ],
    gpus=[node.GpuLoad(uuid="GPU-1", utilization=0.9, memory_used_bytes=5, power_watts=300)],
)


def families() -> dict[str, Family]:
    core = Agent([EngineSpec(engine_id="e", slots=4)])
    core.counters.ended["succeeded"] = 7
    made = AgentMetrics(
        "n", core, report=lambda: REPORT, lag=LoopLag(), spans=SpanCounts(dropped=2)
    )
    return {family.name: family for family in made()}


def test_values_are_those_of_the_report_and_what_is_not_known_has_no_series() -> None:
    found = families()
    assert found["batchyard.slots"].series == {("n", "e"): 4}
    assert found["batchyard.engine.running"].series == {("n", "e"): 3}
    assert found["batchyard.engine.waiting"].series == {}
    assert found["batchyard.engine.kv.utilization"].series == {("n", "e"): 0.75}
    health = found["batchyard.engine.health"].series
    assert {labels[2]: value for labels, value in health.items()} == {
        "starting": 0, "serving": 0, "stalled": 1, "down": 0,
    }  # fmt: skip
    assert found["system.cpu.utilization"].series == {("n",): 0.25}
    assert found["system.memory.utilization"].series == {}
    assert found["batchyard.node.utilization"].series == {("n",): 0.5}
    assert found["hw.gpu.utilization"].series == {("n", "GPU-1"): 0.9}
    assert found["hw.gpu.memory.usage"].series == {("n", "GPU-1"): 5}
    assert found["hw.power"].series == {("n", "GPU-1"): 300}
    assert found["hw.temperature"].series == {}
    assert found["batchyard.attempts"].series == {("n", "succeeded"): 7}
    assert found["batchyard.session.up"].series == {("n",): 0}
    assert found["batchyard.telemetry.spans"].series[("dropped",)] == 2


def test_no_label_names_a_request_or_a_model() -> None:
    labels = {label for family in families().values() for label in family.labels}
    assert labels == {"node", "engine", "outcome", "state", "hw.id", "error.type"}


def test_the_document_lists_exactly_the_metrics_that_there_are() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    page = page[page.index("## Agents") :]
    listed = set(re.findall(r"^\| `([a-z_.]+)` \| `([a-z_]+)` \|", page, re.MULTILINE))
    made = {
        (family.name, prometheus.name_of(family) + "_total" * (family.kind is Kind.COUNTER))
        for family in families().values()
    }
    assert listed == made
