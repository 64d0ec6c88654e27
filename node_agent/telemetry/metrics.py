"""What do an agent's metrics say? Collected when somebody asks, from what it reports anyway.

The report that the scheduler gets is the one source of load and hardware, the agent's own books
that of slots and items. Labels are bounded: the node, its engines, and words of ours.
`docs/metrics.md` lists all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from batchyard.v1 import node_service_pb2 as node
from node_agent import clock
from node_agent.core import Agent
from service_kit.gpu_metrics import gpu_families
from service_kit.loop_lag import LoopLag
from service_kit.metrics import Family, Kind, one_hot
from service_kit.tracing import SpanCounts, spans_family

_HEALTHS: Final = tuple(
    name.removeprefix("ENGINE_HEALTH_").lower() for name in node.EngineHealth.keys()[1:]
)
_ENGINE: Final = ("node", "engine")
# Field of an EngineLoad, metric, kind, unit, help. Absent where the engine does not know it.
_OF_ENGINES: Final = (
    ("running", "engine.running", Kind.GAUGE, "{request}", "By the engine's own count"),
    ("waiting", "engine.waiting", Kind.GAUGE, "{request}", "By the engine's own count"),
    ("kv_utilization", "engine.kv.utilization", Kind.GAUGE, "1", "Of its memory for sequences"),
    ("prefix_cache_hit_ratio", "engine.prefix_cache.hits", Kind.GAUGE, "1", "Share of prompts"),
    ("preemptions", "engine.preemptions", Kind.COUNTER, "{request}", "Inside the engine"),
    ("prompt_tokens_per_second", "engine.input_rate", Kind.GAUGE, "{token}", "Prompt tokens/s"),
    ("output_tokens_per_second", "engine.output_rate", Kind.GAUGE, "{token}", "Output tokens/s"),
)


class AgentMetrics:
    """Collects. All methods are for the loop's thread."""

    def __init__(
        self,
        node_id: str,
        core: Agent,
        *,
        report: Callable[[], node.NodeReport],
        lag: LoopLag,
        spans: SpanCounts,
    ) -> None:
        self._node_id = node_id
        self._core = core
        self._report = report
        self._lag = lag
        self._spans = spans
        self._started_ns = clock.now_ns()

    def __call__(self) -> Sequence[Family]:
        """All families, as of now."""
        report = self._report()
        return [
            *self._slots(),
            *self._engines(report),
            *self._host(report),
            *gpu_families([(self._node_id, report)]),
            *self._items(),
            self._lag.family(),
            spans_family(self._spans),
            self._one("uptime", Kind.GAUGE, (clock.now_ns() - self._started_ns) / 1e9, "s",
                "Since the start"),
        ]  # fmt: skip

    def _one(self, name: str, kind: Kind, value: float, unit: str, text: str) -> Family:
        family = Family(f"batchyard.{name}", kind, text, unit, ("node",))
        family.add(value, self._node_id)
        return family

    def _slots(self) -> list[Family]:
        slots = Family("batchyard.slots", Kind.GAUGE, "Room of it", "{input}", _ENGINE)
        inflight = Family("batchyard.inflight", Kind.GAUGE, "Inputs held", "{input}", _ENGINE)
        for engine_id, engine in self._core.engines.items():
            slots.add(engine.slots, self._node_id, engine_id)
            inflight.add(engine.held_inputs, self._node_id, engine_id)
        return [slots, inflight]

    def _engines(self, report: node.NodeReport) -> list[Family]:
        health = Family(
            "batchyard.engine.health", Kind.GAUGE, "1: it is so", "", (*_ENGINE, "state")
        )
        found = [
            Family(f"batchyard.{name}", kind, text, unit, _ENGINE)
            for _, name, kind, unit, text in _OF_ENGINES
        ]
        for load in report.engines:
            words = node.EngineHealth.Name(load.health).removeprefix("ENGINE_HEALTH_").lower()
            one_hot(health, _HEALTHS, words, self._node_id, load.engine_id)
            for family, (field, *_) in zip(found, _OF_ENGINES, strict=True):
                if load.HasField(field):
                    family.add(getattr(load, field), self._node_id, load.engine_id)
        return [health, *found]

    def _host(self, report: node.NodeReport) -> list[Family]:
        found = []
        for field, name, text in (
            ("cpu_utilization", "system.cpu.utilization", "Of what the agent's container may use"),
            ("memory_utilization", "system.memory.utilization", "Likewise"),
            ("application_utilization", "batchyard.node.utilization", "Inputs held over slots"),
        ):
            family = Family(name, Kind.GAUGE, text, "1", ("node",))
            if report.HasField(field):
                family.add(getattr(report, field), self._node_id)
            found.append(family)
        return found

    def _items(self) -> list[Family]:
        counters = self._core.counters
        attempts = Family(
            "batchyard.attempts", Kind.COUNTER, "That ended", "{attempt}", ("node", "outcome")
        )
        for outcome, number in counters.ended.items():
            attempts.add(number, self._node_id, outcome)
        connected = self._core.phase.name.lower() == "open"
        return [
            attempts,
            self._one("session.up", Kind.GAUGE, float(connected), "", "1: the scheduler has it"),
        ]
