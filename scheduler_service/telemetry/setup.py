"""Is tracing on, and where do spans go? By the standard OTEL_* variables only.

Off unless an exporter or an endpoint is named. Spans leave by a thread of the SDK's batch
processor: a collector that is down or slow never blocks start, work or exit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Final

log = logging.getLogger(__name__)

EXIT_FLUSH_MS: Final = 2_000
ROOT_TRACES_PER_S: Final = 10.0

_SAMPLERS: Final = {"always_on", "always_off", "traceidratio", "parentbased_always_on",
                    "parentbased_always_off", "parentbased_traceidratio"}  # fmt: skip


def tracing_wanted(env: Mapping[str, str]) -> bool:
    """Whether the environment asks for traces."""
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = env.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return exporter != "none"
    return bool(
        env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    )


def start_tracing(service: str, version: str, instance_id: str) -> Any:
    """An SDK TracerProvider, or None where tracing is off or its packages are missing."""
    env = os.environ
    if not tracing_wanted(env):
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("traces are asked for; install batchyard[otlp] to get them")
        return None
    exporter = _exporter(env)
    if exporter is None:
        return None
    env.setdefault("OTEL_BSP_MAX_QUEUE_SIZE", "16384")
    env.setdefault("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2048")
    resource = Resource.create(
        {
            "service.name": env.get("OTEL_SERVICE_NAME", service),
            "service.namespace": "batchyard",
            "service.version": version,
            "service.instance.id": instance_id,
        }
    )
    # Whether a request is sampled is decided by `RootSampler` before any span exists.
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    provider = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter(env: Mapping[str, str]) -> Any:
    kind = env.get("OTEL_TRACES_EXPORTER", "otlp")
    protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found,unused-ignore]
                OTLPSpanExporter as GrpcExporter,
            )

            return GrpcExporter()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    except ImportError as missing:
        log.warning("no traces: the exporter for %s is not installed (%s)", protocol, missing)
        return None


def stop_tracing(provider: Any) -> None:
    """Flush, bounded, and stop. Call it off the event loop."""
    if provider is not None:
        provider.force_flush(EXIT_FLUSH_MS)
        provider.shutdown()


class RootSampler:
    """Shall this request be traced? Callers' own decisions are followed.

    Without a caller's context: by OTEL_TRACES_SAMPLER where it is set, else all requests up to
    `ROOT_TRACES_PER_S` a second, and that many beyond (a token bucket holding one second's worth).
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        name = env.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_")
        self._ratio: float | None = None
        if name == "always_on":
            self._ratio = 1.0
        elif name == "always_off":
            self._ratio = 0.0
        elif name == "traceidratio":
            self._ratio = float(env.get("OTEL_TRACES_SAMPLER_ARG", "1"))
        elif name:
            log.warning("OTEL_TRACES_SAMPLER %r is not known; known: %s", name, sorted(_SAMPLERS))
        self._tokens = ROOT_TRACES_PER_S
        self._filled_at_ns = 0

    def sample(self, trace_id: int, now_ns: int) -> bool:
        """Decide for a root of this trace id, at a monotonic time."""
        if self._ratio is not None:
            return (trace_id & (1 << 64) - 1) < self._ratio * (1 << 64)
        gained = (now_ns - self._filled_at_ns) / 1e9 * ROOT_TRACES_PER_S
        self._tokens = min(ROOT_TRACES_PER_S, self._tokens + gained)
        self._filled_at_ns = now_ns
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
