"""What can the scheduler ask of the world?

Imperatives; `effects.py` of the service and the simulator's world carry them out, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import Attempt, Batch, Duration, Request


@dataclass(slots=True)
class AcceptRequest:
    """Tell the caller that it is in the queue. `ahead`: requests that would go first now."""

    request: Request
    ahead: int
    estimated_wait: Duration  # 0: none or unknown


@dataclass(slots=True)
class DispatchBatch:
    """Send the batch's attempts to its engine, in this session."""

    node_id: str
    epoch: int
    batch: Batch


@dataclass(slots=True)
class CancelAttempts:
    """Ask the node to stop these. Their results are awaited all the same, to free the slots."""

    node_id: str
    epoch: int
    dispatch_ids: list[int]
    reason: Reason


@dataclass(slots=True)
class StartOutput:
    """Tell the caller on which node its request now runs."""

    request: Request
    attempt: Attempt


@dataclass(slots=True)
class FinishRequest:
    """Give the caller its one terminal result."""

    request: Request
    outcome: Outcome
    reason: Reason = Reason.NONE
    message: str = ""
    attempt: Attempt | None = None  # that produced the outcome
    payload: Any = None  # the node's result, where there is one
    retry_after: Duration | None = None  # a library may send it again after this long
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RememberDeaths:
    """Keep, for a later life of these requests, which nodes died with them; none: forget it."""

    deaths: list[tuple[Request, tuple[str, ...]]]


@dataclass(slots=True)
class WelcomeNode:
    """Admit the session; `abandon` are handed-back ids that are no longer wanted."""

    node_id: str
    epoch: int
    abandon: list[int]
    adopted: list[int]  # the edge names the relay's offsets for each


@dataclass(slots=True)
class CloseSession:
    """End the stream with this reason. `reconnect`: the agent should dial again."""

    node_id: str
    epoch: int
    reason: Reason
    message: str
    reconnect: bool


@dataclass(slots=True)
class PingNode:
    """Ask a session for a sign of life; any message within 1 s will do."""

    node_id: str
    epoch: int


@dataclass(slots=True)
class AcknowledgeResults:
    """So many more results of this session are dealt with and may be forgotten."""

    node_id: str
    epoch: int
    count: int


@dataclass(slots=True)
class DrainNode:
    """Tell the agent: no new work, finish within `grace`, then give back the rest.

    `lifted`: the drain is taken back; the other values mean nothing then.
    """

    node_id: str
    epoch: int
    grace: Duration
    terminate: bool
    reason: str
    lifted: bool = False


@dataclass(slots=True)
class RequestScale:
    """Bring the pool to `desired` nodes. `drained`: nodes chosen to leave, drained already told."""

    pool: str
    desired: int
    ready: int
    starting: int
    reason: str
    drained: list[str] = field(default_factory=list)


Command = (
    AcceptRequest
    | DispatchBatch
    | CancelAttempts
    | StartOutput
    | FinishRequest
    | RememberDeaths
    | WelcomeNode
    | CloseSession
    | PingNode
    | AcknowledgeResults
    | DrainNode
    | RequestScale
)
