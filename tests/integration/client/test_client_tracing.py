"""One CLIENT span per request where the process traces, and its context in the request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from batchyard import AsyncClient, Client, errors
from batchyard.v1 import Error, InferenceRequest, InferenceResult
from tests.integration.client.scripted_scheduler import (
    ScriptedScheduler,
    ScriptedStream,
    answer,
    refusal,
)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A process that traces. The global provider may be set only once, so it is put in place."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def parent_of(request: InferenceRequest) -> tuple[str, str, bool]:
    """Trace, span, and whether it is sampled: bit 0 of the flags."""
    _, trace_id, span_id, flags = request.trace.traceparent.split("-")
    return trace_id, span_id, bool(int(flags, 16) & 1)


def hexes(span: Any) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


async def test_span_has_the_names_of_the_conventions(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    def rich(stream: ScriptedStream, call: Any) -> None:
        result = answer(call.request, node_id="n1")
        result.usage.input_tokens, result.usage.output_tokens = 3, 7
        result.attempts.add()
        stream.result(call, result)

    scheduler.on_call = rich
    async with AsyncClient(scheduler.address, tenant="acme") as client:
        await client.generate(
            "p", model="m", priority=8, task_type="chat", max_tokens=5, request_id="r"
        )
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind) == ("chat m", SpanKind.CLIENT)
    host, _, port = scheduler.address.partition(":")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "batchyard",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": False,
        "gen_ai.request.max_tokens": 5,
        "batchyard.request.id": "r",
        "batchyard.priority": 8,
        "batchyard.task_type": "chat",
        "batchyard.tenant": "acme",
        "server.address": host,
        "server.port": int(port),
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 7,
        "batchyard.degraded": False,
        "batchyard.attempts": 1,
        "batchyard.node.id": "n1",
    }
    assert dict(span.attributes or {}) == expected
    assert parent_of(scheduler.calls[0].request) == (*hexes(span), True)


async def test_span_is_a_child_of_the_callers(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("test")

    def work() -> None:
        with Client(scheduler.address) as client, tracer.start_as_current_span("caller"):
            client.generate("sync")
            client.stream("sync").wait()

    async with AsyncClient(scheduler.address) as client:
        with tracer.start_as_current_span("caller"):
            await client.generate("async")
            stream = client.stream("async")
        await stream.wait()  # read elsewhere, still the caller's
    await asyncio.to_thread(work)
    finished = spans.get_finished_spans()
    callers = {span.context.span_id for span in finished if span.name == "caller"}
    children = [span for span in finished if span.name == "chat"]
    assert len(children) == 4
    assert {span.parent.span_id for span in children if span.parent} == callers


async def test_failure_and_retry_are_on_the_span(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    full = Error(code=8, reason=20, message="full")  # type: ignore[arg-type]
    full.retry_after.nanos = 1

    def script(stream: ScriptedStream, call: Any) -> None:
        if len(stream.calls) == 1:
            stream.result(call, refusal(call.request, full))
        else:
            lost = Error(code=10, reason=40, message="lost")  # type: ignore[arg-type]
            stream.result(call, refusal(call.request, lost, finish_reason=8))

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(errors.AttemptsExhausted):
            await client.generate("p")
    (span,) = spans.get_finished_spans()
    assert [event.name for event in span.events] == ["retry"]
    assert (span.status.status_code, span.attributes["error.type"]) == (  # type: ignore[index]
        StatusCode.ERROR,
        "NODE_LOST",
    )


async def test_stream_span_ends_with_the_stream_and_is_never_current(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    def script(stream: ScriptedStream, call: Any) -> None:
        stream.delta(call, 0, "a")
        if call.request.text.prompt == "whole":
            stream.result(call, InferenceResult(finish_reason=1))  # type: ignore[arg-type]

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        async for _ in client.stream("whole"):
            assert not trace.get_current_span().get_span_context().is_valid
        (span,) = spans.get_finished_spans()
        assert "gen_ai.response.time_to_first_chunk" in (span.attributes or {})
        async for _ in client.stream("left"):
            break
        await scheduler.until(lambda: scheduler.streams[0].cancelled)
    left = spans.get_finished_spans()[1]
    assert (left.attributes or {})["error.type"] == "CANCELLED_BY_CLIENT"


async def test_cancelled_task_ends_its_span(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    """Behaviour 43: cancelling works the same with tracing."""
    scheduler.on_call = lambda *_: None
    async with AsyncClient(scheduler.address) as client:
        task = asyncio.create_task(client.generate("p"))
        await scheduler.until(lambda: scheduler.calls)
        task.cancel()
        await asyncio.wait([task])
        await scheduler.until(lambda: scheduler.streams[0].cancelled)
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR


async def test_unary_rpc_has_a_span_of_its_own(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    async with AsyncClient(scheduler.address, transport="unary") as client:
        await client.generate("p", model="m")
    rpc, call = spans.get_finished_spans()
    assert rpc.name == "batchyard.v1.SchedulerService/Generate"
    assert rpc.kind is SpanKind.CLIENT
    assert rpc.parent is not None
    assert rpc.parent.span_id == call.context.span_id
    assert (rpc.attributes or {})["rpc.status_code"] == "OK"
    assert parent_of(scheduler.unary[0].request) == (*hexes(rpc), True)
    assert scheduler.metadata[0]["traceparent"] == scheduler.unary[0].request.trace.traceparent


async def test_unsampled_context_travels_without_a_span(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(sampler=ALWAYS_OFF))
    async with AsyncClient(scheduler.address) as client:
        await client.generate("p")
    assert parent_of(scheduler.calls[0].request)[2] is False
    assert not spans.get_finished_spans()


async def test_baggage_and_a_request_with_its_own_context(
    scheduler: ScriptedScheduler, spans: InMemorySpanExporter
) -> None:
    own = InferenceRequest()
    own.text.prompt = "p"
    own.trace.traceparent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    token = context.attach(baggage.set_baggage("batchyard.session", "s1"))
    try:
        async with AsyncClient(scheduler.address) as client:
            await client.generate("p")
            await client.generate(request=own)
    finally:
        context.detach(token)
    first, second = scheduler.calls
    assert first.request.trace.baggage == "batchyard.session=s1"
    assert second.request.trace.traceparent == own.trace.traceparent
    assert len(spans.get_finished_spans()) == 1


async def test_without_a_provider_nothing_is_added(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address) as client:
        await client.generate("p")
    assert not scheduler.calls[0].request.HasField("trace")
