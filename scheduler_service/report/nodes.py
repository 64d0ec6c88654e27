"""How does a node read? The core's books, what its agent says, and the window's figures, in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from batchyard.v1 import node_service_pb2, report_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import condition
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth
from scheduler_service.core.state import accepts_work
from scheduler_service.core.types import Drain, Engine, Instant, Node
from scheduler_service.report.buckets import NodeCount
from scheduler_service.rpc import status

IDS_MAX: Final = 1_000
REASON_CHARS: Final = 1_024  # of an agent's words


class NodeView(Protocol):
    """What the session of an agent knows beside the core."""

    @property
    def descriptor(self) -> node_service_pb2.NodeDescriptor | None:
        """The last one."""

    @property
    def report(self) -> node_service_pb2.NodeReport | None:
        """The last one."""

    @property
    def agent_version(self) -> str:
        """Of the agent."""

    @property
    def round_trip_s(self) -> float | None:
        """Seconds of the last ping; None: not measured."""

    @property
    def clock_offset_us(self) -> int | None:
        """Its clock minus ours, microseconds; None: not measured."""


Views = Callable[[str, int], NodeView | None]  # by node id and epoch; None: the stream is gone


def summary(
    node: Node, view: NodeView | None, figures: NodeCount, totals: Sequence[int], now: Instant
) -> report_pb2.NodeSummary:
    """The node's row. `totals`: attempts that succeeded and failed since the scheduler's start."""
    engines = list(node.engines.values())
    refusal = cannot_accept(node, now)
    descriptor = view.descriptor if view is not None else None
    built = report_pb2.NodeSummary(
        node_id=node.node_id,
        models=sorted({m.model for e in engines for m in e.models.values() if m.active}),
        availability=int(node.availability),  # type: ignore[arg-type]
        health=int(node.health),  # type: ignore[arg-type]
        running=sum(e.in_flight_inputs for e in engines),
        slots=sum(e.spec.slots for e in engines),
        slots_assumed=any(e.slots_assumed for e in descriptor.engines) if descriptor else False,
        max_batch_size=max((e.max_batch for e in engines), default=0),
        failure_rate=figures.failure_rate,
        can_accept=not refusal,
        cannot_accept_reason=refusal,
        total_finished=totals[0],
        total_failed=totals[1],
        utilization=figures.utilization,
    )
    if figures.avg_latency is not None:
        built.avg_latency.CopyFrom(status.duration(figures.avg_latency))
    if descriptor is not None and descriptor.HasField("price_per_hour"):
        built.price_per_hour.CopyFrom(descriptor.price_per_hour)
    return built


def cannot_accept(node: Node, now: Instant) -> str:
    """Why it would get no request now, in one word; empty: it would get one."""
    if node.health is not NodeHealth.HEALTHY and node.health is not NodeHealth.PROBATION:
        return condition.of_node(node)
    if node.availability is not NodeAvailability.ACTIVE:
        return node.availability.name.lower()
    if not node.connected:
        return "disconnected"
    words = [_engine_refuses(engine, now) for engine in node.engines.values()]
    return "" if "" in words else next(iter(words), "no_model")


def _engine_refuses(engine: Engine, now: Instant) -> str:
    word = condition.of_engine(engine)
    if word:
        return word
    if not any(accepts_work(engine, model) for model in engine.models):
        return condition.NO_MODEL
    if engine.blocked_until > now:
        return "busy"
    if engine.in_flight_inputs >= engine.spec.slots + engine.spec.look_ahead:
        return "slots_full"
    return "no_credit" if engine.free_inputs() <= 0 else ""


class NodeWriter:
    """Writes whole nodes."""

    def __init__(self, clock: Clock, views: Views) -> None:
        self._clock = clock
        self.views = views

    def write(self, node: Node, figures: NodeCount, totals: Sequence[int]) -> report_pb2.Node:
        """All that is known of it."""
        view = self.views(node.node_id, node.epoch)
        built = report_pb2.Node(
            node_id=node.node_id,
            availability=int(node.availability),  # type: ignore[arg-type]
            health=int(node.health),  # type: ignore[arg-type]
            state_reason=node.state_reason or node.availability_reason or _engines_say(node, view),
            summary=summary(node, view, figures, totals, self._clock.now()),
            ledgers=[_ledger(engine) for engine in node.engines.values()],
            boot_id=node.boot_id,
            session_epoch=node.epoch,
            connect_time=self._clock.timestamp(node.joined_at),
            last_seen_time=self._clock.timestamp(node.last_heard),
        )
        if view is not None:
            _say_view(built, view)
        if node.drain is not None:
            built.drain.CopyFrom(self._drain(node, node.drain))
        return built

    def _drain(self, node: Node, drain: Drain) -> report_pb2.DrainProgress:
        built = report_pb2.DrainProgress(
            start_time=self._clock.timestamp(drain.started_at),
            remaining=len(node.in_flight),
            finished=len(drain.finished),
            moved=len(drain.moved),
            lost=len(drain.lost),
            finished_request_ids=drain.finished[:IDS_MAX],
            moved_request_ids=drain.moved[:IDS_MAX],
            lost_request_ids=drain.lost[:IDS_MAX],
        )
        if drain.ended_at:
            built.end_time.CopyFrom(self._clock.timestamp(drain.ended_at))
        return built


def _engines_say(node: Node, view: NodeView | None) -> str:
    """Why engines of a node that is there do not serve, in their agent's words; empty: they do."""
    if view is None or view.report is None or not node.connected or not node.alive:
        return ""
    told = []
    for load in view.report.engines:
        engine = node.engines.get(load.engine_id)
        if engine is not None and not engine.spec.healthy:
            why = load.message[:REASON_CHARS] or condition.of_engine(engine)
            told.append(why if len(node.engines) == 1 else f"{load.engine_id}: {why}")
    return "; ".join(told)


def _say_view(built: report_pb2.Node, view: NodeView) -> None:
    if view.descriptor is not None:
        built.descriptor.CopyFrom(view.descriptor)
    if view.report is not None:
        built.report.CopyFrom(view.report)
    built.agent_version = view.agent_version
    if view.round_trip_s is not None:
        built.round_trip.CopyFrom(status.duration(round(view.round_trip_s * 1e9)))
    if view.clock_offset_us is not None:
        built.clock_offset_us = view.clock_offset_us


def _ledger(engine: Engine) -> report_pb2.EngineLedger:
    return report_pb2.EngineLedger(
        engine_id=engine.engine_id,
        in_flight=engine.in_flight_items,
        charged_inputs=engine.charged_inputs,
        charged_tokens=engine.charged_tokens,
        credit=node_service_pb2.Credit(
            engine_id=engine.engine_id,
            total_inputs=engine.credit_inputs,
            total_tokens=engine.credit_tokens,
        ),
        healed=engine.healed,
    )
