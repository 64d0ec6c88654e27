"""What do agents and the scheduler say to each other in the simulator?

The protocol's messages as plain values, at the level of the two cores: what the real edges parse
and build around them is not simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from node_agent.core.items import Held, Item
from node_agent.core.outputs import Delta
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import Duration, NodeSpec

Offsets = Mapping[tuple[int, int], int]  # (choice, channel): offset


@dataclass(slots=True)
class Hello:
    """First message of an agent."""

    node_id: str
    boot_id: str
    spec: NodeSpec
    held: Sequence[tuple[int, bool]]  # (dispatch id, whether its result waits)


@dataclass(slots=True)
class FromAgent:
    """All that an agent has to say now; handled in the order of the fields. Empty: a heartbeat."""

    running: list[int] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    results: list[Held] = field(default_factory=list)
    credits: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    report: tuple[int, dict[str, list[int]]] | None = None  # (items received, held by engine)
    drain: tuple[int | None, str] | None = None  # (grace, reason)


@dataclass(slots=True)
class Goodbye:
    """An agent leaves and holds nothing."""


@dataclass(slots=True)
class Welcome:
    """First message of a scheduler."""

    term: int
    epoch: int
    abandon: Sequence[int]
    resume_points: Mapping[int, Offsets]


@dataclass(slots=True)
class Work:
    """A batch."""

    engine_id: str
    items: Sequence[Item]
    atomic: bool


@dataclass(slots=True)
class Cancels:
    """Stop these."""

    dispatch_ids: Sequence[int]
    reason: Reason


@dataclass(slots=True)
class Acknowledged:
    """So many results of this session, in all."""

    total: int


@dataclass(slots=True)
class Drain:
    """No new work; finish within `grace`. `lifted`: that is taken back."""

    grace: Duration | None
    terminate: bool
    reason: str
    lifted: bool = False


@dataclass(slots=True)
class Ping:
    """A sign of life is wanted."""


@dataclass(slots=True)
class Close:
    """The scheduler ends the session."""

    reason: Reason
    reconnect: bool
