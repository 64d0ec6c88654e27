"""Who watches the core? Event log, statistics, spans and metrics, started and stopped together.

They see the core's records and state, and change nothing. What the environment does not ask for is
not even imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from scheduler_service.audit_log import AuditLog
from scheduler_service.clock import Clock
from scheduler_service.config import ReportSection
from scheduler_service.driver import Driver
from scheduler_service.eventlog import EventLog
from scheduler_service.report.build import ReportBuilder
from scheduler_service.report.statistics import Statistics
from scheduler_service.request_log import RequestLog
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening
from scheduler_service.rpc.ports import NoTracer, Tracer
from scheduler_service.rpc.traced_calls import BeginCall, untraced
from service_kit import otlp_metrics, tracing
from service_kit.loop_lag import LoopLag
from service_kit.metrics import Collect

if TYPE_CHECKING:
    from scheduler_service.telemetry.tracer import RequestTracer
    from service_kit.otlp_metrics import MetricsSender

SERVICE: Final = "batchyard-scheduler"


class Observers:
    """All that watches. Made on a running loop."""

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        config: ReportSection,
        *,
        term: int,
        instance_id: str,
        environ: Mapping[str, str],
        edge: Collect = tuple,
        log_requests: int = 0,
    ) -> None:
        """`edge`: metrics of callers and calls, beside those of requests; `log_requests`: lines a
        second about them.
        """
        self.eventlog = EventLog(term=term, capacity=config.events)
        self.eventlog.on_asked = AuditLog(clock, term)
        self.statistics = Statistics(clock, window=config.window, memory=config.memory)
        self.spans = self.statistics.spans
        self.lag = LoopLag()
        self.tracer: Tracer = NoTracer()
        self.on_entry: Callable[[Entry, Opening], None] | None = None
        self.begin_call: BeginCall = untraced
        self._requests: RequestTracer | None = None
        self.metrics: Collect | None = None  # from `start` on
        self._driver = driver
        self._clock = clock
        self._instance_id = instance_id
        self._environ = environ
        self._edge = edge
        self._sender: MetricsSender | None = None
        self._provider = tracing.start(
            SERVICE,
            instance_id=instance_id,
            environ=environ,
            sample_all=True,  # `RootSampler` decides before any span exists
            counts=self.spans,
        )
        if self._provider is not None:
            from scheduler_service.telemetry.tracer import RequestTracer

            tracer = RequestTracer(self._provider, clock, lambda: driver.scheduler.state)
            driver.observe(tracer)
            self.tracer, self.on_entry, self.begin_call = tracer, tracer.on_entry, tracer.begin_call
            self._requests = tracer
        driver.observe(self.eventlog)
        driver.observe(self.statistics, later=True)
        if log_requests:
            driver.observe(RequestLog(log_requests, lambda: self.statistics.totals()), later=True)

    def start(self, reports: ReportBuilder) -> None:
        """Sample, measure, and send metrics where that is wanted."""
        from scheduler_service.telemetry.metrics import SchedulerMetrics
        from scheduler_service.telemetry.node_metrics import NodeMetrics

        if self._requests is not None:
            self._requests.facts = reports.nodes.views
        self.statistics.start(self._driver)
        self.lag.start()
        self.metrics = SchedulerMetrics(
            driver=self._driver,
            statistics=self.statistics,
            pools=reports.pools,
            nodes=NodeMetrics(reports.nodes.views),
            lag=self.lag,
            spans=self.spans,
            clock=self._clock,
            edge=self._edge,
        )
        self._sender = otlp_metrics.start(
            self.metrics, service=SERVICE, instance_id=self._instance_id, environ=self._environ
        )

    def core_lost(self) -> None:
        """The core starts anew: what was open has no end in its records."""
        if self._requests is not None:
            self._requests.close("INTERNAL")

    async def stop(self) -> None:
        """Send what is left, and stop."""
        if self._requests is not None:
            self._requests.close("SCHEDULER_STOPPED")
        if self._sender is not None:
            await self._sender.stop()
        self.statistics.stop()
        self.lag.stop()
        if self._provider is not None:
            await asyncio.to_thread(tracing.stop, self._provider)
