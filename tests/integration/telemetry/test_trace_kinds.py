"""The trace of every kind of request, as a collector receives it from real processes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from opentelemetry import trace

from batchyard import AsyncClient, errors
from tests.integration.cluster import Cluster, cluster, until
from tests.integration.otlp_receiver import Receiver, SeenSpan, receiver
from tests.integration.test_trace_tree import client_spans

pytestmark = pytest.mark.slow

MODELS = ("slots=2", "latency=20ms", "latency_per_token=5ms")
# Behind the client's own span: what each kind must have, and how its `schedule` ends.
WANTED = {
    "unary": ({"schedule m", "queue wait", "attempt 1", "process m", "engine chat m"}, False),
    "streamed": ({"schedule m", "attempt 1", "process m", "decode", "deliver"}, False),
    "multiplexed": ({"schedule m", "attempt 1", "process m", "engine chat m"}, False),
    "degraded": ({"schedule away", "queue wait", "attempt 1", "process m"}, False),
    "cancelled": ({"schedule m", "attempt 1", "process m"}, False),
    "rejected": ({"schedule nobody-has-it"}, True),
}


async def test_every_kind_has_a_whole_tree() -> None:
    async with receiver() as seen, client_spans(seen):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": seen.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with cluster(env=env) as running:
            await running.agent("a", *MODELS)
            await running.agent("b", models="away")
            await running.admin.cordon("b")
            ids = await _one_of_each(running)
            await until(lambda: _all_there(seen, ids), what="all spans have come")
        for kind, trace_id in ids.items():
            _check(kind, [s for s in seen.spans if s.trace_id == trace_id])


async def _one_of_each(running: Cluster) -> dict[str, str]:
    """Trace ids by kind; each request runs below a span of its caller."""
    address, ids = running.addresses["client"], {}
    tracer = trace.get_tracer("caller")
    async with (
        AsyncClient(address, transport="unary") as unary,
        AsyncClient(address, transport="multiplex") as multiplex,
    ):
        for kind in WANTED:
            with tracer.start_as_current_span(f"caller of {kind}") as span:
                ids[kind] = f"{span.get_span_context().trace_id:032x}"
                await _call(kind, unary, multiplex)
    return ids


async def _call(kind: str, unary: AsyncClient, multiplex: AsyncClient) -> None:
    if kind == "unary":
        await unary.generate("hi", model="m", max_tokens=4, task_type="chat")
    elif kind == "streamed":
        async with unary.stream("hi", model="m", max_tokens=4, task_type="chat") as stream:
            async for _ in stream:
                pass
    elif kind == "multiplexed":
        await multiplex.generate("hi", model="m", max_tokens=4, task_type="chat")
    elif kind == "degraded":
        found = await unary.generate("hi", model="away", degrade=["m"], max_wait="100ms")
        assert found.degraded
    elif kind == "cancelled":
        async with unary.stream("[[stall]]", model="m", task_type="chat") as stream:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    async for _ in stream:
                        pass
    else:
        with pytest.raises(errors.BatchyardError):
            await unary.generate("hi", model="nobody-has-it")


async def _all_there(seen: Receiver, ids: dict[str, str]) -> bool:
    for kind, trace_id in ids.items():
        names = {s.name for s in seen.spans if s.trace_id == trace_id}
        if not WANTED[kind][0] | {f"caller of {kind}"} <= names:
            return False
    return True


def _check(kind: str, spans: list[SeenSpan]) -> None:
    by_id = {span.span_id: span for span in spans}
    roots = [span for span in spans if span.parent_id not in by_id]
    assert [span.name for span in roots] == [f"caller of {kind}"], (kind, roots)
    (schedule,) = [span for span in spans if span.name.startswith("schedule")]
    assert schedule.failed == WANTED[kind][1], kind
    for span in spans:
        assert span.start <= span.end, (kind, span)
    if kind in ("unary", "streamed", "multiplexed"):
        _check_cover(kind, schedule, [s for s in spans if s.parent_id == schedule.span_id])


def _check_cover(kind: str, schedule: SeenSpan, parts: list[SeenSpan]) -> None:
    """Queue waits and attempts tell where the time went: within 5 % or 5 ms."""
    told = sum(s.end - s.start for s in parts if s.name == "queue wait" or "attempt" in s.name)
    whole = schedule.end - schedule.start
    assert abs(whole - told) <= max(0.05 * whole, 5e6), (kind, whole, told)
