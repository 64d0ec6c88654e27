"""Which kinds of nodes are there, what do they serve, and what do they cost?"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.types import Duration, EngineSpec, ModelSpec, NodeSpec
from simulator.engines.interface import Make


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
    service_profile: Duration = 0  # mean service time that its agent states; 0: unknown
    price_per_hour: float = 0.0
    cold_start: Duration = 0  # from the order to the hello
    role: str = "primary"
    task_types: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)

    def spec(self, *, managed: bool = False) -> NodeSpec:
        """What its agent says in its hello."""
        models = tuple(
            ModelSpec(
                name,
                context_length=self.context_length,
                resumable=self.resumable,
                configured_service=self.service_profile,
            )
            for name in self.models
        )
        engine = EngineSpec(
            "e0",
            self.mode,
            self.slots,
            max_batch_size=self.max_batch,
            look_ahead=self.look_ahead,
            models=models,
        )
        return NodeSpec(
            (engine,),
            role=self.role,
            task_types=self.task_types,
            managed=managed,
            labels={"kind": self.name, **self.labels},
        )
