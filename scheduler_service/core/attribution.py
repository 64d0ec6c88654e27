"""Whose fault was the end of an attempt, and what follows from that?

One table, so that a caller's mistake never counts against a node, a full node is never taken for a
dead one, and a dead node's work is not starved by ordinary errors:

| fault     | seen as                                  | charged | budget | again   | blames node |
|-----------|------------------------------------------|---------|--------|---------|-------------|
| caller    | bad or too large input                   | ends the request, no other node is asked  |
| lacking   | UNSUPPORTED_FEATURE, and another node    |         |        |         |             |
|           | says that it has the feature             | no      | -      | at once | no          |
| deadline  | its time was over on the node            | ends the request as expired               |
| saturated | refused, or ENGINE_BUSY                  | no      | -      | at once | no, paused  |
| leaving   | its node drains, or it was revoked       | no      | -      | at once | no          |
| slow      | a time-out of `patience.py`              | yes     | errors | at once | yes         |
| frozen    | ENGINE_STALLED, of a healthy agent       | yes     | deaths | at once | yes         |
| dead      | NODE_LOST, ENGINE_UNAVAILABLE            | yes     | deaths | at once | engine only |
| memory    | ENGINE_OOM                               | yes     | errors | delayed | yes         |
| engine    | any other error                          | yes     | errors | delayed | yes         |

`dead`, `frozen` and `memory` on two nodes make a request suspect of being the cause (`apart.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from scheduler_service.core.outcomes import AttemptState, Reason

if TYPE_CHECKING:
    from scheduler_service.core.types import Attempt, Request


class Fault(StrEnum):
    """Who or what was at fault; the values stand in events."""

    CALLER = "caller"
    DEADLINE = "deadline"
    SATURATED = "saturated"
    LEAVING = "leaving"
    SLOW = "slow"
    FROZEN = "frozen"
    DEAD = "dead"
    MEMORY = "memory"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Effects:
    """What a fault leads to, where it does not end the request."""

    at_once: bool  # tried again without a delay
    by_deaths: bool = False  # paid for by the budget of deaths, not by that of errors
    blames: bool = True  # counts against the node's health
    suspects: bool = False  # the request may be the cause


EFFECTS: Final = {
    Fault.SATURATED: Effects(at_once=True, blames=False),
    Fault.LEAVING: Effects(at_once=True, blames=False),
    Fault.SLOW: Effects(at_once=True),
    Fault.FROZEN: Effects(at_once=True, by_deaths=True, suspects=True),
    Fault.DEAD: Effects(at_once=True, by_deaths=True, suspects=True),
    Fault.MEMORY: Effects(at_once=False, suspects=True),
    Fault.ENGINE: Effects(at_once=False),
}

_FAULTS: Final = {
    Reason.INVALID_ARGUMENT: Fault.CALLER,
    Reason.REQUEST_TOO_LARGE: Fault.CALLER,
    Reason.CONTEXT_TOO_LONG: Fault.CALLER,
    Reason.UNSUPPORTED_FEATURE: Fault.CALLER,
    Reason.PERMISSION_DENIED: Fault.CALLER,
    Reason.DEADLINE_EXCEEDED: Fault.DEADLINE,
    Reason.ENGINE_BUSY: Fault.SATURATED,
    Reason.NODE_DRAINING: Fault.LEAVING,
    Reason.REVOKED: Fault.LEAVING,
    Reason.NODE_LOST: Fault.DEAD,
    Reason.ENGINE_UNAVAILABLE: Fault.DEAD,
    Reason.ENGINE_STALLED: Fault.FROZEN,
    Reason.ENGINE_OOM: Fault.MEMORY,
}

SUSPECT_DEATHS: Final = 2  # nodes that died, froze or ran out of memory with it


def fault_of(reason: Reason, *, timed_out: bool = False) -> Fault:
    """The fault behind a reason; `timed_out`: the scheduler itself lost patience."""
    if timed_out:
        return Fault.SLOW
    return _FAULTS.get(reason, Fault.ENGINE)


def effects_of(attempt: Attempt) -> Effects:
    """What follows from the end of an attempt that is to be tried again."""
    fault = fault_of(attempt.reason, timed_out=attempt.timed_out)
    return EFFECTS.get(fault, EFFECTS[Fault.ENGINE])


def deaths_of(request: Request) -> list[str]:
    """Ids of the nodes that died, froze or ran out of memory with it, each once. A session that
    broke and is not back counts, too: its work may have moved on before the node is lost. So does
    what was remembered of it, by this scheduler or the one before.
    """
    here = [a.node.node_id for a in request.attempts if _died(a)]
    return list(dict.fromkeys((*request.former_deaths, *here)))


def _died(attempt: Attempt) -> bool:
    if attempt.state is AttemptState.RUNNING:
        return not attempt.node.connected
    ended = attempt.state is AttemptState.LOST or attempt.state is AttemptState.FAILED
    return ended and effects_of(attempt).suspects
