"""Is tracing on, and where do spans go?

Decided by the standard OTEL_* variables alone. No exporter and no endpoint named: off, and nothing
of OpenTelemetry's SDK is even imported. OTLP over HTTP unless the protocol variable says gRPC.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("node_agent.telemetry")

SERVICE_NAME = "batchyard-agent"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
FLUSH_S = 2.0
QUEUE_SPANS = "16384"
BATCH_SPANS = "2048"


def is_on(environ: Mapping[str, str]) -> bool:
    """Whether anybody is to receive spans."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporters:
        return exporters != "none"
    return bool(
        environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )


class PlannedIds:
    """Span ids told before their spans are made.

    An engine is given the id of its span when it starts; the span itself is made when it has ended.
    """

    def __init__(self) -> None:
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        self._random = RandomIdGenerator()
        self._planned: deque[int] = deque()

    def reserve(self) -> int:
        """A fresh span id."""
        return self._random.generate_span_id()

    def plan(self, span_id: int) -> None:
        """The next span that is made has this id."""
        self._planned.append(span_id)

    def generate_span_id(self) -> int:
        """As the SDK asks for it."""
        return self._planned.popleft() if self._planned else self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        """As the SDK asks for it."""
        return self._random.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """As the SDK asks for it."""
        return True


def make_provider(
    ids: PlannedIds,
    *,
    version: str,
    node_id: str,
    boot_id: str,
    environ: Mapping[str, str],
    exporter: SpanExporter | None = None,
) -> TracerProvider:
    """A provider that exports from a thread of its own. `exporter` is for tests."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    instance = uuid.uuid5(uuid.NAMESPACE_OID, f"{node_id}/{boot_id}")
    attributes = {
        "service.namespace": "batchyard",
        "service.instance.id": str(instance),
        "service.version": version,
        "batchyard.node.id": node_id,
    }
    if "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = environ.get("OTEL_SERVICE_NAME") or SERVICE_NAME
    resource = Resource.create(attributes)
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)  # type: ignore[arg-type]
    processor = BatchSpanProcessor(
        exporter or _otlp_exporter(environ),
        max_queue_size=int(environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or QUEUE_SPANS),
        max_export_batch_size=int(environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE") or BATCH_SPANS),
    )
    provider.add_span_processor(processor)
    return provider


def _otlp_exporter(environ: Mapping[str, str]) -> SpanExporter:
    name = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if name == "console":
        import sys

        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if name != "otlp":
        text = "OTEL_TRACES_EXPORTER=%s is not known; taking otlp (known: otlp, console, none)"
        log.warning(text, name, extra={"event": "telemetry_config"})
    protocol = (
        environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol == "grpc":
        try:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found]
                OTLPSpanExporter as GrpcExporter,
            )
        except ImportError:
            text = (
                "OTLP over gRPC needs opentelemetry-exporter-otlp-proto-grpc; taking http/protobuf"
            )
            log.warning(text, extra={"event": "telemetry_config"})
        else:
            exporter: SpanExporter = GrpcExporter()
            return exporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def shut_down(provider: TracerProvider, timeout_s: float = FLUSH_S) -> bool:
    """Flush what is left, but wait no longer than this. False: spans may be lost.

    The exporter retries with back-off for as long as it likes, so it gets a thread that is left
    behind when the time is up.
    """
    done = threading.Event()

    def flush() -> None:
        provider.shutdown()
        done.set()

    threading.Thread(target=flush, name="telemetry-flush", daemon=True).start()
    return done.wait(timeout_s)
