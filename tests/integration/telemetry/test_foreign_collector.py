"""A trace through somebody else's collector: rotel takes it and sends on what it understood.

What is asserted is what came out at its other end: links, kinds, parents and events must survive a
foreign implementation of OTLP. `make tools` fetches it; where it cannot be had, this is skipped.
Jaeger itself is in no package registry and was not run against.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from scripts.fetch_test_tools import ROTEL
from tests.integration.cluster import cluster, until
from tests.integration.otlp_receiver import Receiver, SeenSpan, receiver

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ROTEL.exists(), reason="no rotel here: run `make tools`"),
]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def foreign(seen: Receiver) -> AsyncIterator[str]:
    """A running rotel that forwards to `seen`; its endpoint for OTLP over HTTP."""
    http, grpc = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        str(ROTEL), "start", "--exporter", "otlp",
        "--otlp-http-endpoint", f"127.0.0.1:{http}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
        "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", seen.endpoint,
        "--batch-timeout", "100ms",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await until(lambda: _listens(http), what="rotel listens")
        yield f"http://127.0.0.1:{http}"
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_the_tree_survives_a_foreign_collector() -> None:
    async with receiver() as seen, foreign(seen) as endpoint:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with cluster(env=env) as running:
            await running.agent("a", "slots=2", "latency_per_token=5ms")
            stream = running.client.stream("hi", model="m", max_tokens=4, task_type="chat")
            async with stream:
                async for _ in stream:
                    pass
            assert stream.result is not None
            trace_id = stream.result.trace_id
            await until(lambda: _complete(seen, trace_id), what="all spans have come")
        _check({s.name: s for s in seen.spans if s.trace_id == trace_id}, seen)


async def _complete(seen: Receiver, trace_id: str) -> bool:
    names = {s.name for s in seen.spans if s.trace_id == trace_id}
    batches = any(s.name == "send batch m" for s in seen.spans)
    return batches and {"schedule m", "attempt 1", "process m", "decode", "deliver"} <= names


def _check(spans: dict[str, SeenSpan], seen: Receiver) -> None:
    schedule, attempt = spans["schedule m"], spans["attempt 1"]
    process, engine = spans["process m"], spans["engine chat m"]
    (batch,) = [s for s in seen.spans if s.name == "send batch m"]
    assert (schedule.service, schedule.kind) == ("batchyard-scheduler", "SERVER")
    assert "admitted" in schedule.events
    assert (attempt.parent_id, attempt.kind) == (schedule.span_id, "CLIENT")
    assert (process.parent_id, process.service) == (attempt.span_id, "batchyard-agent")
    assert engine.parent_id == process.span_id
    assert batch.span_id in attempt.links
    assert attempt.span_id in batch.links
    assert batch.kind == "PRODUCER"
    assert attempt.attributes["batchyard.batch.id"] == batch.attributes["batchyard.batch.id"]
