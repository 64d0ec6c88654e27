"""Which kinds of nodes are there, what do they serve, and what do they cost?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler_service.core.hashing import hash64
from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.types import SECOND, Duration, EngineSpec, ModelSpec, NodeSpec
from simulator.engines.interface import Make

ColdStarts = tuple[tuple[float, Duration], ...]  # quantiles: (share, duration), from 0 to 1

# Loading a base model at a large image service (Alibaba's GenTD26: p50 22.7 s, p90 42, p99 51.8).
LOADING_OBSERVED: Final[ColdStarts] = (
    (0.0, 12 * SECOND), (0.5, 22_700_000_000), (0.9, 42 * SECOND),
    (0.99, 51_800_000_000), (1.0, 79_400_000_000),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NodeKind:
    """A node with one engine, as its agent describes it, and the model of that engine."""

    name: str
    make: Make
    slots: int
    mode: EngineMode = EngineMode.CONTINUOUS
    max_batch: int = 0  # 0: as slots
    look_ahead: int = 0
    models: tuple[str, ...] = ("m",)
    context_length: int = 0
    resumable: bool = True
    kv_capacity: int = 0  # tokens; 0: not limited
    # What its agent states of its speed; 0 and empty: nothing.
    service_profile: Duration = 0  # mean service time
    prefill_rate: float = 0.0  # prompt tokens per second
    token_times: tuple[tuple[int, Duration], ...] = ()  # (inputs that run, time per token)
    batch_times: tuple[tuple[int, Duration], ...] = ()  # static: (inputs, time of such a batch)
    price_per_hour: float = 0.0
    cold_start: Duration = 0  # from the order to the hello
    cold_starts: ColdStarts = ()  # drawn from these instead, where they are given
    role: str = "primary"
    task_types: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)

    def cold_start_of(self, seed: int, number: int) -> Duration:
        """Of the node with that number."""
        if not self.cold_starts:
            return self.cold_start
        share = hash64(seed, number, "cold start") / 2**64
        before = self.cold_starts[0]
        for point in self.cold_starts:
            if share <= point[0]:
                part = (share - before[0]) / max(1e-12, point[0] - before[0])
                return before[1] + round(part * (point[1] - before[1]))
            before = point
        return before[1]

    def spec(self, *, managed: bool = False) -> NodeSpec:
        """What its agent says in its hello."""
        models = tuple(
            ModelSpec(
                name,
                context_length=self.context_length,
                resumable=self.resumable,
                configured_service=self.service_profile,
                prefill_rate=self.prefill_rate,
                token_times=self.token_times,
                batch_times=self.batch_times,
            )
            for name in self.models
        )
        engine = EngineSpec(
            "e0",
            self.mode,
            self.slots,
            max_batch_size=self.max_batch,
            look_ahead=self.look_ahead,
            kv_capacity=self.kv_capacity,
            models=models,
        )
        return NodeSpec(
            (engine,),
            role=self.role,
            task_types=self.task_types,
            managed=managed,
            labels={"kind": self.name, **self.labels},
        )
