"""Make the pictures of docs/tracing.md: from the spans of real processes, as a collector got them.

A scheduler and two agents with simulated engines run here for a few seconds. One streamed request
loses its node in mid-stream; three others share a batch. What `draw_trace.py` makes of the OTLP
JSON is written to docs/tracing/.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from opentelemetry import trace

from batchyard.cli.demo.traces import Collector
from scripts.draw_trace import Row, Span, draw, of_request, read, rows_of
from service_kit import tracing
from tests.integration.cluster import Cluster, cluster, until

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "tracing"
ENV: Final = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_TRACES_SAMPLER": "always_on"}


async def pictures() -> None:
    """Run, and draw."""
    collector = Collector()
    os.environ |= {**ENV, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    provider = tracing.start("batchyard-client", instance_id="pictures", environ=os.environ)
    assert provider is not None
    trace.set_tracer_provider(provider)
    try:
        async with cluster(env=dict(os.environ)) as running:
            await lose_a_node(running)
            await share_a_batch(running)

            def seen() -> list[Span]:
                provider.force_flush()
                return read(collector.document())

            for request_id, model in (("lost", "m"), ("together-2", "b")):
                for name in ("decode", f"chat {model}"):
                    have = functools.partial(_have, seen, request_id, name)
                    await until(have, what=f"{name} of {request_id}")
    finally:
        collector.close()
    spans = read(collector.document())
    FOLDER.mkdir(exist_ok=True)
    (lost,) = of_request(spans, "lost")
    _write("failover.svg", rows_of(spans, lost), "a stream whose node was lost")
    (batch,) = [s for s in spans if s.name == "send batch b"]
    rows = rows_of(spans, batch.trace_id)
    for number in range(3):
        (mine,) = of_request(spans, f"together-{number}")
        rows += rows_of(spans, mine)
    _write("batch.svg", rows, "three requests in one batch")


def _write(name: str, rows: list[Row], title: str) -> None:
    (FOLDER / name).write_text(draw(rows, title), encoding="utf-8")
    print(f"docs/tracing/{name}: {len(rows)} spans")


async def lose_a_node(running: Cluster) -> None:
    """The node that speaks is killed after a few words; another goes on."""
    slow = ("slots=2", "latency_per_token=20ms")
    for name in ("n1", "n2"):
        await running.agent(name, *slow)
    stream = running.client.stream(
        "tell me", model="m", max_tokens=24, task_type="chat", request_id="lost"
    )
    async with stream:
        words = 0
        async for _ in stream:
            words += 1
            if words == 5:
                busy = next(n for n in (await running.report()).nodes if n.running)
                running.agents[busy.node_id].signal(signal.SIGKILL)


async def share_a_batch(running: Cluster) -> None:
    """An engine that starts a batch together."""
    await running.agent("n3", "mode=static", "slots=4", "latency_per_token=5ms", models="b")
    calls = [
        running.client.generate("hi", model="b", max_tokens=8, request_id=f"together-{n}")
        for n in range(3)
    ]
    await asyncio.gather(*calls)


async def _have(seen: Callable[[], list[Span]], request_id: str, name: str) -> bool:
    spans = seen()
    traces = of_request(spans, request_id)
    return any(s.name == name and s.trace_id in traces for s in spans)


if __name__ == "__main__":
    asyncio.run(pictures())
    sys.exit(0)
