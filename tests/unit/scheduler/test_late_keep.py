"""Unsampled requests that went wrong are traced after all, at a bounded rate."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

from scheduler_service.core.events import SessionBroken
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import SECOND
from scheduler_service.telemetry.late_keep import KEPT_PER_S, SLOW
from scheduler_service.telemetry.sampling import RootSampler
from scheduler_service.telemetry.span_contexts import written
from scheduler_service.telemetry.tracer import RequestTracer
from tests.unit.scheduler.small_world import SmallWorld


def traced(world: SmallWorld, sampler: str = "traceidratio") -> tuple[RequestTracer, Any]:
    """A tracer that samples nothing by itself."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    env = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": "0.000000001"}
    tracer = RequestTracer(
        provider, world.clock, lambda: world.driver.scheduler.state, RootSampler(env)
    )
    world.driver.observe(tracer)
    return tracer, exporter


async def test_a_request_that_failed_over_is_told_whole_with_a_link_to_its_caller() -> None:
    world = SmallWorld()
    tracer, exporter = traced(world)
    first = await world.join("n0", slots=1)
    (request,) = await world.submit()
    caller = SpanContext(7 << 90, 9, True, TraceFlags(0))
    tracer._callers[request.rid] = written(caller)
    await world.join("n1", slots=1)
    await world.pass_time(1)
    await world.post(SessionBroken("n0", first.epoch))
    await world.pass_time(4)
    await world.finish(request)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"schedule m", "queue wait", "attempt 1", "attempt 2"}
    schedule = spans["schedule m"]
    assert schedule.attributes["batchyard.trace.partial"] is True
    assert schedule.attributes["batchyard.trace.kept_for"] == "failed_over"
    assert [link.context for link in schedule.links] == [caller]
    assert spans["attempt 1"].attributes["error.type"] == "NODE_LOST"
    assert spans["attempt 2"].links[0].context == spans["attempt 1"].context
    for name in ("queue wait", "attempt 1", "attempt 2"):
        assert spans[name].parent == schedule.context
        assert schedule.start_time <= spans[name].start_time <= spans[name].end_time
    assert request.trace_id == f"{schedule.context.trace_id:032x}"
    assert not tracer._callers


async def test_what_went_well_makes_no_span_and_what_took_long_does() -> None:
    world = SmallWorld()
    _, exporter = traced(world)
    await world.join("n0", slots=2)
    good, slow = await world.submit(2)
    await world.finish(good)
    assert not exporter.get_finished_spans()
    await world.pass_time(SLOW / SECOND + 1)
    await world.finish(slow)
    kept = [
        span.attributes.get("batchyard.trace.kept_for") for span in exporter.get_finished_spans()
    ]
    assert kept.count("slow") == 1


async def test_a_storm_of_errors_is_kept_at_a_bounded_rate() -> None:
    world = SmallWorld()
    _, exporter = traced(world)
    await world.join("n0", slots=100)
    for _ in range(10):
        requests = await world.submit(50, max_attempts=1)
        await world.finish(*requests, reason=Reason.CONTEXT_TOO_LONG)
        await world.pass_time(1)
    roots = [span for span in exporter.get_finished_spans() if span.parent is None]
    assert 10 <= len(roots) <= KEPT_PER_S * 10 + 2 * KEPT_PER_S
    assert all(span.attributes["error.type"] == "CONTEXT_TOO_LONG" for span in roots)


async def test_always_off_is_off() -> None:
    world = SmallWorld()
    tracer, exporter = traced(world, "always_off")
    await world.join("n0")
    (request,) = await world.submit(max_attempts=1)
    await world.finish(request, reason=Reason.ENGINE_ERROR)
    assert tracer._late is None
    assert not exporter.get_finished_spans()
