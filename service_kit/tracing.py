"""Is tracing on, and where do spans go? By the standard OTEL_* variables alone.

No exporter and no endpoint named: off, and nothing of OpenTelemetry's SDK is even imported. Else
OTLP over HTTP, unless the protocol variable says gRPC. Spans leave by a thread of their own: a
collector that is down or slow delays neither start nor work, and the exit by two seconds at most.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from service_kit.metrics import Family, Kind
from service_kit.version import package_version

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

HTTP: Final = "http/protobuf"
FLUSH_S: Final = 2.0
_QUEUE_SPANS: Final = 16_384  # the SDK's own 2,048 are gone in a second under load
_BATCH_SPANS: Final = 2_048
_CONFIG_EVENT: Final = {"event": "telemetry_config"}


@dataclass(slots=True)
class SpanCounts:
    """Of spans, since the start. `ended - taken` wait for the exporter."""

    ended: int = 0  # and let into the queue
    taken: int = 0  # by the exporter
    exported: int = 0
    failed: int = 0  # the exporter gave up on them
    dropped: int = 0  # no room in the queue

    @property
    def lost(self) -> int:
        """That no collector will see."""
        return self.failed + self.dropped


def spans_family(counts: SpanCounts) -> Family:
    """As a metric."""
    spans = Family(
        "batchyard.telemetry.spans",
        Kind.COUNTER,
        "Spans that left, or were lost",
        "{span}",
        ("outcome",),
    )
    for outcome in ("exported", "failed", "dropped"):
        spans.add(getattr(counts, outcome), outcome)
    return spans


class SpanIds(Protocol):
    """Where ids come from, as the SDK asks for them."""

    def generate_span_id(self) -> int:
        """Of the next span."""

    def generate_trace_id(self) -> int:
        """Of the next trace."""

    def is_trace_id_random(self) -> bool:
        """Whether samplers may take a trace id for random."""


def is_on(environ: Mapping[str, str]) -> bool:
    """Whether anybody is to receive spans."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter:
        return exporter != "none"
    return bool(
        environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )


def start(
    service: str,
    *,
    instance_id: str,
    environ: Mapping[str, str],
    attributes: Mapping[str, str] | None = None,
    ids: SpanIds | None = None,
    sample_all: bool = False,
    counts: SpanCounts | None = None,
) -> TracerProvider | None:
    """A provider that exports; None: tracing is off, or its packages are missing.

    Args:
        service: the name, unless a variable names it.
        instance_id: of this process.
        environ: the process's environment.
        attributes: more, of the resource.
        ids: where ids come from; None: the SDK's own.
        sample_all: spans are made only of what is sampled; False: the sampler variables decide.
        counts: where to count what leaves and what is lost.
    """
    if not is_on(environ):
        return None
    try:
        return make_provider(
            service,
            _exporter(environ),
            instance_id=instance_id,
            environ=environ,
            attributes=attributes,
            ids=ids,
            sample_all=sample_all,
            counts=counts,
        )
    except ImportError as missing:
        text = "no traces, for %s is missing: install batchyard[otlp], and for OTLP over gRPC %s"
        grpc = "opentelemetry-exporter-otlp-proto-grpc"
        log.warning(text, missing.name, grpc, extra=_CONFIG_EVENT)
        return None


def make_provider(
    service: str,
    exporter: SpanExporter,
    *,
    instance_id: str,
    environ: Mapping[str, str],
    attributes: Mapping[str, str] | None = None,
    ids: SpanIds | None = None,
    sample_all: bool = False,
    counts: SpanCounts | None = None,
) -> TracerProvider:
    """A provider that hands spans to this exporter, from a thread of its own."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    from service_kit.span_counts import CountingProcessor

    provider = TracerProvider(
        resource=make_resource(
            service, instance_id=instance_id, environ=environ, attributes=attributes
        ),
        id_generator=ids,  # type: ignore[arg-type]
        sampler=ALWAYS_ON if sample_all else None,
        shutdown_on_exit=False,
    )
    queue_max = _number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", _QUEUE_SPANS)
    batch_max = _number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH_SPANS)
    processor = CountingProcessor(exporter, counts or SpanCounts(), queue_max, batch_max)
    provider.add_span_processor(processor)
    return provider


def make_resource(
    service: str,
    *,
    instance_id: str,
    environ: Mapping[str, str],
    attributes: Mapping[str, str] | None = None,
) -> Resource:
    """What this process is: the same for its traces and its metrics."""
    from opentelemetry.sdk.resources import Resource

    described: dict[str, str | int] = {
        "service.namespace": "batchyard",
        "service.instance.id": instance_id,
        "service.version": package_version(),
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        **(attributes or {}),
    }
    if "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        described["service.name"] = environ.get("OTEL_SERVICE_NAME") or service
    return Resource.create(described)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    """A variable that is a count, at least one."""
    text = environ.get(name, "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    if text:
        log.warning("%s=%s is no count; taking %d", name, text, default, extra=_CONFIG_EVENT)
    return default


def stop(provider: TracerProvider, timeout_s: float = FLUSH_S) -> bool:
    """Flush what is left, but wait no longer than this. False: spans may be lost.

    The exporter retries with back-off for as long as it likes, so it gets a thread that is left
    behind when the time is up.
    """
    done = threading.Event()

    def flush() -> None:
        provider.shutdown()
        done.set()

    threading.Thread(target=flush, name="telemetry flush", daemon=True).start()
    if done.wait(timeout_s):
        return True
    log.warning("spans may be lost", extra={"event": "telemetry_flush_timeout"})
    return False


def _exporter(environ: Mapping[str, str]) -> SpanExporter:
    name = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if name != "otlp":
        text = "OTEL_TRACES_EXPORTER=%s is not known; taking otlp (known: otlp, console, none)"
        log.warning(text, name, extra=_CONFIG_EVENT)
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found, unused-ignore]
            OTLPSpanExporter as GrpcExporter,
        )

        exporter: SpanExporter = GrpcExporter()
        return exporter
    if protocol not in (None, "", HTTP):
        text = "OTEL_EXPORTER_OTLP_PROTOCOL=%s is not known; taking %s (known: %s, grpc)"
        log.warning(text, protocol, HTTP, HTTP, extra=_CONFIG_EVENT)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
