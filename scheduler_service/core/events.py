"""What can happen to the scheduler?

Past tense, and lists where many come at once. Slotted and unfrozen, built at the edge; the core
does not change them. `tests/unit/core/test_tables.py` checks that the step handles each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.settings import (
    AutoscaleSettings,
    FailoverSettings,
    HealthSettings,
    QueueSettings,
)
from scheduler_service.core.types import Duration, Instant, NodeSpec, Request


@dataclass(slots=True)
class RequestsSubmitted:
    """Validated requests arrived, defaults filled in."""

    requests: list[Request]


@dataclass(slots=True)
class RequestsCancelled:
    """Their last caller left, or an operator said so. Unknown ids are ignored."""

    rids: list[int]
    reason: Reason = Reason.CANCELLED_BY_CLIENT
    message: str = ""


@dataclass(slots=True)
class RunningItem:
    """An item that a (re)connecting agent still holds."""

    dispatch_id: int
    finished: bool = False  # its result waits for an acknowledgement
    # Of a scheduler before, where it is still wanted (`adoption.py`). A request without a body here
    # has max_attempts 0: it cannot be run again.
    orphan: Request | None = None
    engine_id: str = ""
    model: str = ""
    attempt: int = 0
    output_id: int = 0
    written: int = 0  # how long its output is; callers may have that much


@dataclass(slots=True)
class BodyReturned:
    """The caller of an adopted request is back, and with it what no cookie says: its body is at
    the edge, so it can be run again. `stated` is what the edge would have submitted.
    """

    rid: int
    stated: Request


@dataclass(slots=True)
class NodeJoined:
    """An agent said hello on a new stream. `epoch` is the edge's number for that stream."""

    node_id: str
    boot_id: str
    epoch: int
    spec: NodeSpec
    running: list[RunningItem] = field(default_factory=list)


@dataclass(slots=True)
class NodeDescribed:
    """Slots, models or health of a connected node changed."""

    node_id: str
    epoch: int
    spec: NodeSpec


@dataclass(slots=True)
class NodesHeard:
    """Messages came from these (node id, epoch): they live."""

    nodes: list[tuple[str, int]]


@dataclass(slots=True)
class CreditsGranted:
    """Running totals by engine id: inputs, tokens (None: not limited)."""

    node_id: str
    epoch: int
    credits: list[tuple[str, int, int | None]]


@dataclass(slots=True)
class ReportReceived:
    """What really runs: of the first `items_received` items, `held` have no result yet."""

    node_id: str
    epoch: int
    items_received: int
    held: dict[str, list[int]]  # dispatch ids by engine id
    unhealthy: dict[str, str] = field(default_factory=dict)  # engine id: a word of EngineSpec
    inactive_models: dict[str, list[str]] = field(default_factory=dict)  # by engine id
    # By engine id: preemptions since its start, share of its KV memory in use; None: unknown.
    pressure: dict[str, tuple[int | None, float | None]] = field(default_factory=dict)
    # By engine id and model: why it is inactive, in a word of `ModelSpec`; only where it is said.
    inactive_words: dict[str, dict[str, str]] = field(default_factory=dict)
    down: list[str] = field(default_factory=list)  # of the unhealthy engines, those that ended


@dataclass(slots=True)
class ItemsRunning:
    """The engine began these."""

    node_id: str
    epoch: int
    dispatch_ids: list[int]


@dataclass(slots=True)
class OutputsBegun:
    """The relay let the first output of these through: their siblings are out."""

    dispatch_ids: list[int]


@dataclass(slots=True)
class ItemEnd:
    """One item's end, as its agent states it."""

    dispatch_id: int
    reason: Reason = Reason.NONE  # NONE: it succeeded
    message: str = ""
    refused: bool = False  # never started: not charged
    input_tokens: int = 0
    output_tokens: int = 0
    payload: Any = None  # the whole result; opaque here
    metadata: dict[str, str] = field(default_factory=dict)
    finish_reason: int = 0  # the protocol's, of one that succeeded


@dataclass(slots=True)
class ItemsFinished:
    """Results from a node. Those of a dead session or of ids that are not live are dropped."""

    node_id: str
    epoch: int
    items: list[ItemEnd]


@dataclass(slots=True)
class SessionBroken:
    """The node's stream ended. `goodbye`: the agent said so and holds nothing."""

    node_id: str
    epoch: int
    goodbye: bool = False


@dataclass(slots=True)
class NodeCordoned:
    """No new work for it; `cordoned` False lifts that."""

    node_id: str
    cordoned: bool
    reason: str = ""


@dataclass(slots=True)
class DrainRequested:
    """An operator, the autoscaler or the agent itself (`by_agent`) wants the node empty."""

    node_id: str
    grace: Duration
    terminate: bool
    reason: str = ""
    by_agent: bool = False


@dataclass(slots=True)
class ScaleFailed:
    """The actuator could not start what was asked for."""

    pool: str
    message: str


@dataclass(slots=True)
class PoolPaused:
    """An operator holds back what a pool dispatches; `paused` False lifts that."""

    pool: str
    paused: bool
    reason: str = ""


@dataclass(slots=True)
class AutoscaleFrozen:
    """The autoscaler of a pool only plans until then. An instant that has passed lifts that."""

    pool: str  # empty: all
    until: Instant
    reason: str = ""


@dataclass(slots=True)
class PoliciesChanged:
    """An operator put other policies in force, or other parameters: `policy_change.py`."""

    policies: PolicySet
    queue: QueueSettings
    health: HealthSettings
    failover: FailoverSettings
    autoscale: AutoscaleSettings


@dataclass(slots=True)
class SchedulerDraining:
    """No new requests from now on."""

    reason: str = ""


Event = (
    RequestsSubmitted
    | RequestsCancelled
    | BodyReturned
    | NodeJoined
    | NodeDescribed
    | NodesHeard
    | CreditsGranted
    | ReportReceived
    | ItemsRunning
    | OutputsBegun
    | ItemsFinished
    | SessionBroken
    | NodeCordoned
    | DrainRequested
    | ScaleFailed
    | PoolPaused
    | AutoscaleFrozen
    | PoliciesChanged
    | SchedulerDraining
)
