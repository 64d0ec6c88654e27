"""What can happen to an agent? Past tense; handled in the order given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from node_agent.core.items import Item
from node_agent.core.slots import EngineSpec


@dataclass(slots=True)
class SessionOpened:
    """A stream to a scheduler is there and wants a Hello."""


@dataclass(slots=True, kw_only=True)
class Welcomed:
    """The scheduler accepted the Hello."""

    cluster_id: str
    term: int
    session_epoch: int
    abandoned: Sequence[int] = ()  # dispatch ids
    # dispatch id -> (choice, channel) -> offset; a channel that is not named begins at its start
    resume_points: Mapping[int, Mapping[tuple[int, int], int]] = field(default_factory=dict)


@dataclass(slots=True)
class SessionClosed:
    """The stream is gone, however it ended."""


@dataclass(slots=True, kw_only=True)
class BatchReceived:
    """The scheduler sent work."""

    engine_id: str
    items: Sequence[Item]
    atomic: bool = False


@dataclass(slots=True)
class CancelsReceived:
    """The scheduler wants these stopped. Unknown and finished ids are ignored."""

    dispatch_ids: Sequence[int]
    reason: str  # an ErrorReason without its prefix


@dataclass(slots=True)
class ResultsAcked:
    """That many results of this session, in the order sent, may be forgotten."""

    total: int


@dataclass(slots=True)
class EngineRunning:
    """The engine began to run an item, with `batch_size` inputs in all."""

    dispatch_id: int
    batch_size: int


@dataclass(slots=True)
class EngineFreed:
    """The engine is through with these and their slots are free; their results follow."""

    engine_id: str
    dispatch_ids: Sequence[int]


@dataclass(slots=True, kw_only=True)
class EngineFinished:
    """The engine is through with an item, and its slot is free, if it was not before."""

    engine_id: str
    dispatch_id: int
    complete: bool  # it came to its natural end: neither cut off nor failed
    result: object = None


@dataclass(slots=True)
class EngineChanged:
    """An engine is as `spec` says, and takes work or not."""

    spec: EngineSpec
    serving: bool


@dataclass(slots=True)
class SlotsLimited:
    """The scheduler set the slots of an engine; 0: back to the engine's own."""

    engine_id: str
    slots: int


@dataclass(slots=True, kw_only=True)
class DrainRequested:
    """No new work; finish what runs within the grace, send the rest back.

    A scheduler's drain without `terminate` ends with the next batch: the stream is in order, so
    that batch was sent after the drain.
    """

    grace_ns: int | None  # None: no limit
    own: bool  # the agent's (a signal), not the scheduler's
    terminate: bool  # exit afterwards
    reason: str = ""


@dataclass(slots=True)
class DrainLifted:
    """The scheduler takes its drain back. The agent's own stays, and so does one that is over."""


@dataclass(slots=True)
class ModelClosed:
    """A model is to be unloaded: nothing new of it, and what is held finishes within the grace."""

    engine_id: str
    model: str
    grace_ns: int | None  # then the rest goes back; None: no limit


@dataclass(slots=True)
class ModelReopened:
    """A closed model was unloaded, or could not be: its engine decides again what it takes."""

    engine_id: str
    model: str


Event = (
    SessionOpened
    | Welcomed
    | SessionClosed
    | BatchReceived
    | CancelsReceived
    | ResultsAcked
    | EngineRunning
    | EngineFreed
    | EngineFinished
    | EngineChanged
    | SlotsLimited
    | DrainRequested
    | DrainLifted
    | ModelClosed
    | ModelReopened
)
