"""What can the core ask of the world? Imperatives, to be carried out in order.

What is to be sent goes onto the session of the moment; when that is gone it may be dropped, for
the next session begins with a Hello and all that matters is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from node_agent.core.items import Held, Item, ItemState


@dataclass(slots=True)
class HandBack:
    """One held item for the Hello, with the end of its output so far."""

    held: Held
    offsets: Mapping[tuple[int, int], int]  # (choice, channel): offset


@dataclass(slots=True)
class SendHello:
    """First message of a session: all that is held."""

    cluster_id: str  # empty: first contact
    highest_term: int
    items: Sequence[HandBack]


@dataclass(slots=True)
class RefuseSession:
    """Close the session at once; another scheduler may answer later."""

    reason: str  # an ErrorReason without its prefix
    message: str


@dataclass(slots=True)
class RunItems:
    """Give these to the engine; `atomic`: as one batch."""

    engine_id: str
    items: Sequence[Item]
    atomic: bool


@dataclass(slots=True)
class CancelItem:
    """Have the engine stop this item."""

    engine_id: str
    dispatch_id: int
    reason: str  # an ErrorReason without its prefix


@dataclass(slots=True)
class SendUpdate:
    """Tell that an item entered a state."""

    dispatch_id: int
    state: ItemState
    elapsed_ns: int  # since receipt


@dataclass(slots=True)
class SendResult:
    """Send the end of an item, after all of its output. Results leave in the order commanded."""

    held: Held


@dataclass(slots=True)
class ForgetItem:
    """The result is acknowledged, or the item abandoned: nothing about it is sent any more."""

    dispatch_id: int


@dataclass(slots=True)
class SendCredit:
    """Running totals of this session for one engine."""

    engine_id: str
    total_inputs: int
    total_tokens: int | None  # None: tokens are not limited
    hungry: bool = False  # the engine runs whole batches and has none: it waits for this


@dataclass(slots=True)
class SendReport:
    """Report soon: the load has changed in kind."""


@dataclass(slots=True)
class SendDrain:
    """Tell the scheduler that the agent wants out."""

    grace_ns: int | None
    reason: str


@dataclass(slots=True)
class DropModel:
    """A closed model holds nothing any more: it may be unloaded."""

    engine_id: str
    model: str


@dataclass(slots=True)
class Exit:
    """The drain is over: nothing is owed any more, or nobody is there to take it."""


Command = (
    SendHello
    | RefuseSession
    | RunItems
    | CancelItem
    | SendUpdate
    | SendResult
    | ForgetItem
    | SendCredit
    | SendReport
    | SendDrain
    | DropModel
    | Exit
)
