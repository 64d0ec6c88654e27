"""What do metrics say of nodes? Of those that are there: a node that is lost has no series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from batchyard.v1 import node_service_pb2
from scheduler_service.core import condition
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth
from scheduler_service.core.state import State
from scheduler_service.core.types import Node
from scheduler_service.report.nodes import NodeView, Views
from scheduler_service.report.statistics import Statistics
from service_kit.gpu_metrics import gpu_families
from service_kit.metrics import Family, Kind, one_hot

_AVAILABILITIES: Final = tuple(each.name.lower() for each in NodeAvailability)
_HEALTHS: Final = (
    *(each.name.lower() for each in NodeHealth if each is not NodeHealth.LOST),
    *(word for word in condition.NOT_SERVING if word != condition.STARTING),
)


class NodeMetrics:
    """Collects. `views`: what sessions know of their nodes."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def collect(self, state: State, statistics: Statistics) -> Iterator[Family]:
        """Families of nodes."""
        made = _Families()
        reports: list[tuple[str, node_service_pb2.NodeReport]] = []
        for node in state.nodes.values():
            if node.alive:
                view = self._views(node.node_id, node.epoch)
                made.add(node, view, statistics.node_totals.get(node.node_id, [0, 0]))
                if view is not None and view.report is not None:
                    reports.append((node.node_id, view.report))
        return iter((*made.all, *gpu_families(reports)))


class _Families:
    def __init__(self) -> None:
        gauge, node, state = Kind.GAUGE, ("node",), ("node", "state")
        self.attempts = Family(
            "batchyard.attempts", Kind.COUNTER, "That ended", "{attempt}", ("node", "outcome")
        )
        self.inflight = Family(
            "batchyard.inflight", gauge, "Inputs that run", "{input}", ("node", "engine")
        )
        self.slots = Family("batchyard.slots", gauge, "Room of it", "{input}", ("node", "engine"))
        self.availability = Family(
            "batchyard.node.availability", gauge, "1: operators let it so", "", state
        )
        self.health = Family("batchyard.node.health", gauge, "1: it is so", "", state)
        self.round_trip = Family(
            "batchyard.node.heartbeat.rtt", gauge, "Of the last ping", "s", node
        )
        self.offset = Family(
            "batchyard.node.clock.offset", gauge, "Its clock minus ours", "s", node
        )
        self.all = (
            self.attempts, self.inflight, self.slots, self.availability, self.health,
            self.round_trip, self.offset,
        )  # fmt: skip

    def add(self, node: Node, view: NodeView | None, totals: list[int]) -> None:
        name = node.node_id
        self.attempts.add(totals[0], name, "succeeded")
        self.attempts.add(totals[1], name, "failed")
        for engine in node.engines.values():
            self.inflight.add(engine.in_flight_inputs, name, engine.engine_id)
            self.slots.add(engine.spec.slots, name, engine.engine_id)
        one_hot(self.availability, _AVAILABILITIES, node.availability.name.lower(), name)
        one_hot(self.health, _HEALTHS, condition.of_node(node), name)
        if view is None:
            return
        if view.round_trip_s is not None:
            self.round_trip.add(view.round_trip_s, name)
        if view.clock_offset_us is not None:
            self.offset.add(view.clock_offset_us / 1e6, name)
