"""Does one trace tell the whole story? The spans of a streamed request that fails over once, as a
collector receives them from the client, the scheduler and both agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from node_agent.engines.simulated_text import is_seamless
from tests.integration.cluster import Cluster, cluster, until
from tests.integration.otlp_receiver import Receiver, SeenSpan, receiver

pytestmark = pytest.mark.slow

AGENT = ("slots=2", "latency=5ms", "latency_per_token=40ms")


class Tree:
    """The spans of one trace, by name and parent."""

    def __init__(self, spans: list[SeenSpan]) -> None:
        self.spans = spans

    def one(self, name: str, **wanted: str) -> SeenSpan:
        found = [
            s for s in self.spans
            if s.name == name and all(getattr(s, k) == v for k, v in wanted.items())
        ]  # fmt: skip
        assert len(found) == 1, f"{name} {wanted}: {[(s.name, s.service) for s in self.spans]}"
        return found[0]

    def under(self, parent: SeenSpan, name: str) -> SeenSpan:
        return self.one(name, parent_id=parent.span_id)


@contextlib.asynccontextmanager
async def client_spans(seen: Receiver) -> AsyncIterator[None]:
    """Trace this process as its user would. The exporter runs in a thread, so that the receiver's
    loop stays free for it; the global provider, which can be set once only, is reset at the end.
    """
    provider = TracerProvider(resource=Resource.create({"service.name": "batchyard-client"}))
    exporter = OTLPSpanExporter(endpoint=f"{seen.endpoint}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        await asyncio.to_thread(provider.shutdown)
        trace._TRACER_PROVIDER = None
        trace._TRACER_PROVIDER_SET_ONCE._done = False


async def test_the_trace_of_a_request_that_fails_over_once() -> None:
    async with receiver() as seen, client_spans(seen):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": seen.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with cluster(env=env) as running:
            trace_id = await _stream_over_a_death(running)
            await until(lambda: _complete(seen, trace_id), what="all spans have come")
        _check(Tree([s for s in seen.spans if s.trace_id == trace_id]), seen)


async def _stream_over_a_death(running: Cluster) -> str:
    a = await running.agent("a", *AGENT)
    stream = running.client.stream("p", model="m", max_tokens=40, task_type="chat", priority=8)
    async with stream:
        count = 0
        async for _ in stream:
            count += 1
            if count == 5:
                await running.agent("b", *AGENT)
                a.signal(signal.SIGKILL)
    assert is_seamless(stream.text)
    assert stream.result is not None
    return stream.result.trace_id


async def _complete(seen: Receiver, trace_id: str) -> bool:
    names = {s.name for s in seen.spans if s.trace_id == trace_id}
    return {"chat m", "schedule m", "attempt 2", "process m", "deliver", "decode"} <= names


def _check(tree: Tree, seen: Receiver) -> None:
    client = tree.one("chat m", kind="CLIENT", service="batchyard-client")
    schedule = tree.under(client, "schedule m")
    assert (schedule.kind, schedule.service) == ("SERVER", "batchyard-scheduler")
    assert {"admitted", "failover"} <= set(schedule.events)
    assert schedule.attributes["batchyard.request.id"] == client.attributes["batchyard.request.id"]
    assert schedule.attributes["batchyard.priority"] == 8
    assert schedule.attributes["batchyard.attempts"] == 2

    first, second = tree.under(schedule, "attempt 1"), tree.under(schedule, "attempt 2")
    assert first.failed
    assert first.attributes["error.type"] == "NODE_LOST"
    assert first.attributes["batchyard.node.id"] == "a"
    assert {"running", "first_token", "node_suspect", "node_lost"} <= set(first.events)
    assert not second.failed
    assert second.attributes["batchyard.node.id"] == "b"
    assert second.attributes["batchyard.resume.mode"] == "continue"
    assert second.attributes["batchyard.resume.bytes"] > 0
    assert first.span_id in second.links

    waits = [s for s in tree.spans if s.name == "queue wait"]
    assert [w.parent_id for w in waits] == [schedule.span_id] * 2
    assert [
        w.attributes["batchyard.queue.reason"] for w in sorted(waits, key=lambda w: w.start)
    ] == [
        "submit",
        "failover",
    ]

    for attempt in (first, second):
        (batch,) = [
            s for s in seen.spans
            if s.name == "send batch m" and attempt.span_id in s.links
        ]  # fmt: skip
        assert batch.kind == "PRODUCER"
        assert batch.parent_id == ""
        assert batch.trace_id != attempt.trace_id
        assert batch.span_id in attempt.links
        assert batch.attributes["batchyard.batch.id"] == attempt.attributes["batchyard.batch.id"]

    process = tree.under(second, "process m")
    assert (process.kind, process.service) == ("SERVER", "batchyard-agent")
    engine = tree.under(process, "engine chat m")
    assert engine.kind == "CLIENT"
    prefill, decode = tree.under(engine, "prefill"), tree.under(engine, "decode")
    assert prefill.end <= decode.end
    assert decode.attributes["gen_ai.usage.output_tokens"] > 0
    assert "first_token" in decode.events

    deliver = tree.under(schedule, "deliver")
    assert deliver.attributes["batchyard.bytes"] > 0
    for span in tree.spans:
        assert span.start <= span.end, span
