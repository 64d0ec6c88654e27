"""The metrics are the report's numbers, with bounded labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_service.config_security import TenantsSection
from scheduler_service.core.events import ReportReceived, SessionBroken
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import SECOND
from scheduler_service.report import histogram
from scheduler_service.report.buckets import ROWS_MAX, Bucket
from scheduler_service.report.queues import PoolWriter
from scheduler_service.rpc.book import Book
from scheduler_service.security.quotas import Quotas
from scheduler_service.security.refusals import Refusals
from scheduler_service.telemetry.metrics import EDGES_NS, OTHERS, SchedulerMetrics
from scheduler_service.telemetry.node_metrics import NodeMetrics
from scheduler_service.telemetry.rpc_times import RpcTimes
from service_kit import prometheus
from service_kit.loop_lag import LoopLag
from service_kit.metrics import Kind
from service_kit.tracing import SpanCounts
from tests.unit.scheduler.small_world import SmallWorld

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def metrics_of(world: SmallWorld) -> SchedulerMetrics:
    return SchedulerMetrics(
        driver=world.driver,
        statistics=world.statistics,
        pools=PoolWriter(world.clock, 3 * SECOND),
        nodes=NodeMetrics(lambda _node, _epoch: None),
        lag=LoopLag(),
        spans=SpanCounts(exported=5, dropped=2),
        clock=world.clock,
        edge=lambda: [
            Refusals(world.clock).family(),
            Quotas(TenantsSection()).family(),
            RpcTimes().family(),
            Book(world.driver, world.clock).family(),
        ],
    )


def scraped(world: SmallWorld) -> Series:
    page = prometheus.text(metrics_of(world)())[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def total(series: Series, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for (n, given), value in series.items() if n == name and wanted <= given)


async def test_counters_add_up_to_the_totals_of_the_report_beyond_its_window() -> None:
    world = SmallWorld()
    await world.join("n0", slots=4)
    for index in range(5):
        good, bad = await world.submit(2, priority=3 + index, max_attempts=1)
        await world.pass_time(1)
        await world.finish(good, output_tokens=7)
        await world.finish(bad, reason=Reason.ENGINE_ERROR)
        await world.pass_time(100)  # the window is 60 s
    seen, totals = scraped(world), world.statistics.totals()
    name = "batchyard_requests_total"
    for outcome in Outcome:
        assert total(seen, name, outcome=outcome.value) == totals.outcomes[outcome]
    assert total(seen, name, priority="4") == 2
    assert total(seen, "batchyard_requests_received_total") == totals.received == 10
    assert total(seen, "batchyard_tokens_output_total") == totals.output_tokens
    assert total(seen, "batchyard_queue_wait_seconds_count") == 10
    assert total(seen, "gen_ai_server_request_duration_seconds_count") == 5
    assert total(seen, "gen_ai_server_request_duration_seconds_sum") == pytest.approx(5.0)
    assert total(seen, "batchyard_dispatch_batch_size_sum") == 10
    assert total(seen, "batchyard_attempts_total", outcome="failed") == 5
    assert total(seen, "batchyard_telemetry_spans_total", outcome="dropped") == 2


async def test_a_lost_node_has_no_series() -> None:
    world = SmallWorld()
    first = await world.join("n0")
    await world.join("n1")
    seen = scraped(world)
    assert total(seen, "batchyard_node_health", node="n0", state="healthy") == 1
    await world.post(SessionBroken("n0", first.epoch, "cut"))
    for _ in range(20):
        await world.pass_time(1)
    seen = scraped(world)
    nodes = {dict(labels)["node"] for _, labels in seen if "node" in dict(labels)}
    assert "n0" not in nodes


async def test_node_whose_engine_hangs_is_not_counted_as_one_that_starts() -> None:
    world = SmallWorld()
    node = await world.join("n0")
    await world.post(ReportReceived("n0", node.epoch, 0, {}, unhealthy={"e0": "stalled"}))
    seen = scraped(world)
    assert total(seen, "batchyard_node_health", node="n0", state="stalled") == 1
    assert total(seen, "batchyard_node_health", node="n0") == 1


async def test_waiting_requests_show_in_the_gauges_of_their_pool() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.submit(4, priority=9)
    await world.pass_time(5)
    seen = scraped(world)
    assert total(seen, "batchyard_queue_depth", pool="m", priority="9") == 3
    assert total(seen, "batchyard_queue_oldest_age_seconds", pool="m") == 5
    assert total(seen, "batchyard_queue_start_bound", pool="m") == 8 * 3


async def test_names_that_callers_choose_make_a_bounded_number_of_series() -> None:
    bucket = Bucket(rows_max=ROWS_MAX)
    for index in range(3 * ROWS_MAX):
        bucket.count_ends((Outcome.SUCCEEDED, "m", 5, f"type-{index}"))
    assert len(bucket.ends) <= ROWS_MAX + 1
    assert sum(bucket.ends.values()) == 3 * ROWS_MAX
    world = SmallWorld()
    world.statistics._ever.absorb_counts(bucket)
    seen = scraped(world)
    assert total(seen, "batchyard_requests_total") == 3 * ROWS_MAX
    assert total(seen, "batchyard_requests_total", task_type=OTHERS) >= 2 * ROWS_MAX - 1


async def test_models_that_nobody_has_take_no_series_from_those_there_are() -> None:
    world = SmallWorld()
    await world.join("n0")
    for index in range(3):
        await world.submit(model=f"unheard-{index}")
    await world.finish(*await world.submit())
    seen = scraped(world)
    assert total(seen, "batchyard_requests_total", outcome="rejected", model=OTHERS) == 3
    assert total(seen, "batchyard_requests_total", outcome="succeeded", model="m") == 1
    assert not any("unheard" in value for _, labels in seen for _, value in labels)


async def test_bins_of_a_metric_hold_what_the_report_counted() -> None:
    bars: histogram.Bars = {}
    lengths = [0, 900_000, 1_100_000, 10**9, 5 * 10**9, 10**13]
    for length in lengths:
        histogram.add(bars, length)
    counted = histogram.cumulative(bars, EDGES_NS)
    assert counted == [sum(length < edge for length in lengths) for edge in EDGES_NS]


async def test_no_label_names_a_request_or_a_trace() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.finish(*await world.submit(1))
    labels = {label for family in metrics_of(world)() for label in family.labels}
    allowed = {
        "outcome", "model", "priority", "task_type", "reason", "from", "to", "pool", "node",
        "engine", "state", "place", "limit", "request_class", "hw.id", "gen_ai.request.model",
        "error.type", "rpc.method", "rpc.status_code",
    }  # fmt: skip
    assert labels <= allowed


async def test_the_document_lists_exactly_the_metrics_that_there_are() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    page = page[: page.index("## Agents")]
    listed = set(re.findall(r"^\| `([a-z_.]+)` \| `([a-z_]+)` \|", page, re.MULTILINE))
    made = {
        (family.name, prometheus.name_of(family) + "_total" * (family.kind is Kind.COUNTER))
        for family in metrics_of(SmallWorld())()
    }
    assert listed == made
