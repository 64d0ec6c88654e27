"""What of an agent's telemetry runs, and when does it stop? Spans, metrics, the loop's lag.

What neither the configuration nor the environment asks for is not even imported.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from batchyard.v1 import node_service_pb2 as node
from node_agent.config import MetricsSection
from node_agent.core import Agent
from node_agent.telemetry.metrics import AgentMetrics
from node_agent.telemetry.planned_ids import PlannedIds
from node_agent.telemetry.spans import SpanTracer
from service_kit import otlp_metrics, span_names, tracing
from service_kit.addresses import joined
from service_kit.loop_lag import LoopLag

if TYPE_CHECKING:
    from node_agent.telemetry.metrics_port import MetricsPort
    from service_kit.otlp_metrics import MetricsSender

log = logging.getLogger("node_agent.telemetry")

SERVICE: Final = "batchyard-agent"


class Telemetry:
    """Made on a running loop; metrics begin with `start`."""

    def __init__(
        self,
        node_id: str,
        boot_id: str,
        engines: Mapping[str, node.EngineDescriptor],
        *,
        environ: Mapping[str, str],
    ) -> None:
        self.tracer: SpanTracer | None = None
        self._node_id = node_id
        self._instance_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{node_id}/{boot_id}"))
        self._environ = environ
        self._spans = tracing.SpanCounts()
        self._lag = LoopLag()
        self._port: MetricsPort | None = None
        self._sender: MetricsSender | None = None
        ids = PlannedIds()
        self._provider = tracing.start(
            SERVICE,
            instance_id=self._instance_id,
            environ=environ,
            attributes={span_names.NODE_ID: node_id},
            ids=ids,
            counts=self._spans,
        )
        if self._provider is not None:
            self.tracer = SpanTracer(self._provider, ids, node_id, engines)

    async def start(
        self, config: MetricsSection, core: Agent, report: Callable[[], node.NodeReport]
    ) -> None:
        """Answer and send metrics, where that is wanted.

        Raises:
            OSError: the port cannot be had.
        """
        collect = AgentMetrics(self._node_id, core, report=report, lag=self._lag, spans=self._spans)
        if config.listen:
            from node_agent.telemetry.metrics_port import MetricsPort

            self._port = await MetricsPort.start(config.host, config.port, collect)
            address = joined(config.host, self._port.port)
            log.info("metrics", extra={"event": "metrics_served", "address": address})
        self._sender = otlp_metrics.start(
            collect, service=SERVICE, instance_id=self._instance_id, environ=self._environ
        )
        if self._port is not None or self._sender is not None:
            self._lag.start()

    async def stop(self) -> None:
        """Send what is left, and stop."""
        self._lag.stop()
        if self._port is not None:
            await self._port.stop()
        if self._sender is not None:
            await self._sender.stop()
        if self._provider is not None:
            await asyncio.to_thread(tracing.stop, self._provider)
