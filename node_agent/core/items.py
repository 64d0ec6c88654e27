"""What is one dispatched item to the agent, from receipt to the acknowledgement of its result?

    RECEIVED --> SUBMITTED --> RUNNING --> FIRST_OUTPUT --.
        |            |            |             |          v
        '------------'------------'-------------'----> FINISHED --> (acknowledged: forgotten)

States only move to the right. An item may skip any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, auto

TERM_SHIFT = 40  # dispatch ids are term << 40 | counter


class ItemState(IntEnum):
    """How far an item has come. Later states have larger values."""

    RECEIVED = auto()  # held by the agent, not yet given to the engine
    SUBMITTED = auto()  # given to the engine
    RUNNING = auto()  # the engine says that it runs
    FIRST_OUTPUT = auto()  # its first delta is here
    FINISHED = auto()  # it has an outcome, not yet acknowledged


class OutcomeKind(IntEnum):
    """Who decided the end, and how it reads on the wire."""

    ENGINE = auto()  # the engine's own result, whatever it says
    CANCELLED = auto()  # the scheduler asked
    EXPIRED = auto()  # its time was up
    REFUSED = auto()  # sent back: another node may run it, no attempt is charged
    INVALID = auto()  # it could not be read


@dataclass(slots=True)
class Fault:
    """Why an item could not be read."""

    message: str
    field: str


@dataclass(slots=True)
class Outcome:
    """The one end of an item."""

    kind: OutcomeKind
    reason: str = ""  # an ErrorReason without its prefix; empty: the engine's result says
    message: str = ""
    field: str = ""
    result: object = None  # the engine's, if it gave one; opaque


@dataclass(slots=True, kw_only=True)
class Item:
    """An item as it was dispatched."""

    dispatch_id: int
    attempt: int
    request_id: str = ""
    tenant: str = ""
    output_id: int = 0
    model: str = ""
    cookie: bytes = b""
    inputs: int = 1  # charge
    tokens: int = 0  # charge; 0: tokens are not limited
    stream: bool = False
    remaining_ns: int | None = None  # from receipt on; None: no deadline
    starts: Mapping[tuple[int, int], int] = field(default_factory=dict)  # (choice, channel): offset
    payload: object = None  # for the engine; opaque
    fault: Fault | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """An item in the agent's care, with the instants of its life."""

    item: Item
    engine_id: str
    received_ns: int
    state: ItemState = ItemState.RECEIVED
    submitted_ns: int | None = None
    running_ns: int | None = None
    first_output_ns: int | None = None
    finished_ns: int | None = None
    batch_size: int = 0  # inputs that started with it, itself included; 0: not known
    ending: Outcome | None = None  # decided, but the engine still has it
    ending_due_ns: int = 0  # when that is the outcome without the engine's word
    outcome: Outcome | None = None
