"""How do metrics leave by OTLP? The same families as the Prometheus page has, sent at intervals.

On by OTEL_METRICS_EXPORTER=otlp, or by OTEL_EXPORTER_OTLP_METRICS_ENDPOINT. The endpoint that all
signals share is not enough, for Jaeger listens there and takes no metrics. The interval is
OTEL_METRIC_EXPORT_INTERVAL (milliseconds, 60,000 by default). The figures exist already, so they
are handed to the SDK's exporter as finished data; instruments would count them a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from service_kit.metrics import Bins, Collect, Family, Kind

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        Metric,
        MetricExporter,
        MetricExportResult,
        MetricsData,
    )
    from opentelemetry.sdk.resources import Resource

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 60_000.0
EXPORT_TIMEOUT_MS: Final = 5_000.0
_CONFIG_EVENT: Final = {"event": "telemetry_config"}


def is_on(environ: Mapping[str, str]) -> bool:
    """Whether anybody is to receive metrics."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_METRICS_EXPORTER", "").strip()
    if exporter:
        return exporter == "otlp"
    return bool(environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"))


def interval_s(environ: Mapping[str, str]) -> float:
    """Between two exports; at least a tenth of a second."""
    given = environ.get("OTEL_METRIC_EXPORT_INTERVAL") or INTERVAL_MS
    try:
        return max(0.1, float(given) / 1000)
    except ValueError:
        log.warning("OTEL_METRIC_EXPORT_INTERVAL %r is no number", given, extra=_CONFIG_EVENT)
        return INTERVAL_MS / 1000


class MetricsSender:
    """Collects on the loop, sends from a thread; a collector that is down costs an interval."""

    def __init__(
        self, collect: Collect, exporter: MetricExporter, resource: Resource, every_s: float
    ) -> None:
        self.failures = 0  # exports that did not succeed
        self._collect = collect
        self._exporter = exporter
        self._resource = resource
        self._every_s = every_s
        self._started_ns = time.time_ns()
        self._task = asyncio.create_task(self._run(), name="metrics")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self._send()

    async def _send(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = self._data(self._collect())
        try:
            result = await self._exported(data)
        except Exception as fault:  # the library's; what is measured goes on
            result = MetricExportResult.FAILURE
            log.debug("metrics were not sent: %s", fault)
        if result is not MetricExportResult.SUCCESS:
            if not self.failures:
                log.warning("metrics are not accepted", extra={"event": "metrics_export_failed"})
            self.failures += 1

    async def _exported(self, data: MetricsData) -> MetricExportResult:
        """By a daemon thread: an exit waits for the loop's own threads, but not for a collector."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[MetricExportResult] = loop.create_future()

        def tell(result: MetricExportResult | None, fault: Exception | None) -> None:
            if done.cancelled():
                return
            if result is None:
                done.set_exception(fault or RuntimeError("no result"))
            else:
                done.set_result(result)

        def export() -> None:
            result: MetricExportResult | None = None
            failed: Exception | None = None
            try:
                result = self._exporter.export(data, timeout_millis=EXPORT_TIMEOUT_MS)
            except Exception as fault:
                failed = fault
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, result, failed)

        threading.Thread(target=export, name="metrics export", daemon=True).start()
        return await done

    async def stop(self, within_s: float = 2.0) -> None:
        """Send once more, but take no longer than this."""
        self._task.cancel()
        last = asyncio.create_task(self._send(), name="last metrics")
        await asyncio.wait({last}, timeout=within_s)
        last.cancel()
        await asyncio.gather(self._task, last, return_exceptions=True)

    def _data(self, families: Sequence[Family]) -> MetricsData:
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        now = time.time_ns()
        metrics = [_metric(family, self._started_ns, now) for family in families if family.series]
        scope = ScopeMetrics(InstrumentationScope("batchyard"), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def start(
    collect: Collect, *, service: str, instance_id: str, environ: Mapping[str, str]
) -> MetricsSender | None:
    """A sender on the running loop; None: not wanted, or its packages are missing."""
    if not is_on(environ):
        return None
    try:
        from service_kit.tracing import make_resource

        exporter = _exporter(environ)
        resource = make_resource(service, instance_id=instance_id, environ=environ)
    except ImportError as missing:
        text = "no metrics by OTLP, for %s is missing: install batchyard[otlp]"
        log.warning(text, missing.name, extra=_CONFIG_EVENT)
        return None
    return MetricsSender(collect, exporter, resource, interval_s(environ))


def _exporter(environ: Mapping[str, str]) -> MetricExporter:
    protocol = environ.get("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL") or environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # type: ignore[import-not-found, unused-ignore]
            OTLPMetricExporter as GrpcExporter,
        )

        exporter: MetricExporter = GrpcExporter()
        return exporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter()


def _metric(family: Family, started_ns: int, now_ns: int) -> Metric:
    from opentelemetry.sdk.metrics import export as sdk

    points = [
        _point(sdk, family, labels, value, started_ns, now_ns)
        for labels, value in family.series.items()
    ]
    whole = sdk.AggregationTemporality.CUMULATIVE
    data: Any
    if family.kind is Kind.HISTOGRAM:
        data = sdk.Histogram(points, whole)
    elif family.kind is Kind.COUNTER:
        data = sdk.Sum(points, whole, is_monotonic=True)
    else:
        data = sdk.Gauge(points)
    return sdk.Metric(family.name, family.help, family.unit, data)


def _point(
    sdk: Any,
    family: Family,
    labels: tuple[str, ...],
    value: float | Bins,
    started_ns: int,
    now_ns: int,
) -> Any:
    attributes = dict(zip(family.labels, labels, strict=True))
    if not isinstance(value, Bins):
        return sdk.NumberDataPoint(attributes, started_ns, now_ns, value)
    below = [0, *value.counts]
    bars = [one - before for before, one in zip(below, [*value.counts, value.count], strict=True)]
    return sdk.HistogramDataPoint(
        attributes, started_ns, now_ns, value.count, value.total, bars, list(family.edges), 0.0, 0.0
    )
