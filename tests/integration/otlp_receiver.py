"""Receives spans and metrics over OTLP/HTTP, as a collector would. No span is dropped."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}


@dataclass
class SeenSpan:
    """One received span."""

    service: str
    node: str  # of an agent
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    links: list[str]  # span ids
    attributes: dict[str, Any]
    events: list[str]
    failed: bool
    start: int
    end: int


@dataclass
class Receiver:
    """All spans so far."""

    endpoint: str = ""
    spans: list[SeenSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)  # the last one of each name
    raw: list[bytes] = field(default_factory=list)  # all bodies

    def metric(self, name: str) -> float | None:
        """Sum over its points; of a histogram the observations. None: never seen."""
        found = self.metrics.get(name)
        if found is None:
            return None
        if found.HasField("histogram"):
            return sum(point.count for point in found.histogram.data_points)
        data = found.sum if found.HasField("sum") else found.gauge
        return sum(point.as_double or point.as_int for point in data.data_points)

    async def take_metrics(self, request: web.Request) -> web.Response:
        self.raw.append(await request.read())
        body = ExportMetricsServiceRequest.FromString(self.raw[-1])
        for resource in body.resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics.update({metric.name: metric for metric in scope.metrics})
        return web.Response(
            body=ExportMetricsServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    def named(self, name: str, trace_id: str | None = None) -> list[SeenSpan]:
        return [s for s in self.spans if s.name == name and trace_id in (None, s.trace_id)]

    async def take(self, request: web.Request) -> web.Response:
        self.raw.append(await request.read())
        body = ExportTraceServiceRequest.FromString(self.raw[-1])
        for resource in body.resource_spans:
            about = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_seen(span, about) for span in scope.spans]
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )


def _seen(span: Any, about: dict[str, str]) -> SeenSpan:
    attributes = {a.key: _value(a.value) for a in span.attributes}
    return SeenSpan(
        service=about.get("service.name", ""),
        node=str(attributes.get("batchyard.node.id", about.get("batchyard.node.id", ""))),
        name=span.name,
        kind=KINDS[span.kind],
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=[link.span_id.hex() for link in span.links],
        attributes=attributes,
        events=[event.name for event in span.events],
        failed=span.status.code == 2,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


@contextlib.asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver on loopback."""
    seen = Receiver()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", seen.take), web.post("/v1/metrics", seen.take_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    seen.endpoint = f"http://{host}:{port}"
    try:
        yield seen
    finally:
        await runner.cleanup()
