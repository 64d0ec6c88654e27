"""How long may an attempt take until it first speaks, between its words, and in all?

Three limits of their own, by model, each off unless it is configured. The scheduler's own clock
judges, so that an engine that hangs behind a healthy agent is found out. An attempt that is too
slow ends with ENGINE_STALLED: its node is told to stop it and is blamed, and the request goes on
elsewhere (`attribution.py`: slow).

One timer per request, and only where its model has a limit, or slow attempts get rivals, which is
decided here, too (`hedging.py`). Output does not pass through the core,
so that silence is seen by looking at the relay four times per `idle`: it is found between `idle`
and 1.25 `idle` after the last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_service.core import failover, health, hedging, ledger
from scheduler_service.core.outcomes import AttemptState, Reason
from scheduler_service.core.requests import PATIENCE
from scheduler_service.core.settings import Patience
from scheduler_service.core.types import MILLISECOND, NEVER, Attempt, Instant, Request

if TYPE_CHECKING:
    from scheduler_service.core.state import State

LOOKS: Final = 4  # per `idle`


@dataclass(slots=True)
class Watch:
    """What was seen of a request's output."""

    sent: int = 0  # units that its client had at the last look
    heard_at: Instant = 0  # the look at which that was new
    rival_at: Instant = NEVER  # when its attempt is so slow that it gets a rival (`hedging.py`)


def watch(state: State, attempt: Attempt, limits: Patience) -> None:
    """It was dispatched: look after it from now on."""
    request = attempt.request
    seen = state.watches.get(request.rid)
    if seen is None:
        seen = state.watches[request.rid] = Watch(heard_at=state.now)
    known = state.pools[attempt.model].hedging
    if known is not None:
        seen.rival_at = hedging.due(state, known, attempt)
    _arm(state, request, limits, seen)


def on_timer(state: State, request: Request) -> None:
    """Look at its attempts: which of them take too long?"""
    seen = state.watches.get(request.rid)
    limits = state.pools[request.served_model].patience
    if seen is None or limits is None:
        return
    output = request.output
    sent = sum(output.offsets.values()) if output is not None else 0
    if sent != seen.sent:
        seen.sent, seen.heard_at = sent, state.now
    for attempt in list(request.live.values()):
        why = _why_too_slow(state, attempt, limits, seen)
        if why and attempt.dispatch_id in request.live:
            _end(state, attempt, why)
    if seen.rival_at <= state.now and request.live:
        seen.rival_at = hedging.send_rival(state, request)
    if request.rid in state.requests and request.live:
        _arm(state, request, limits, seen)
    elif not request.live:
        state.watches.pop(request.rid, None)  # until it is dispatched again


def _why_too_slow(state: State, attempt: Attempt, limits: Patience, seen: Watch) -> str:
    """What it has overstepped; empty: nothing."""
    now, begun = state.now, attempt.started_at
    if now >= begun + limits.total:
        return f"it has not ended within {limits.total // MILLISECOND} ms"
    if not attempt.request.stream:
        return ""
    if not _spoke(state, attempt):
        if now >= begun + limits.first_output:
            return f"it has not spoken within {limits.first_output // MILLISECOND} ms"
    elif now >= max(begun, seen.heard_at) + limits.idle:
        return f"it has been silent for {limits.idle // MILLISECOND} ms"
    return ""


def _spoke(state: State, attempt: Attempt) -> bool:
    lane = state.relay.lanes.get(attempt.dispatch_id)
    return lane is not None and lane.spoke


def _arm(state: State, request: Request, limits: Patience, seen: Watch) -> None:
    at = seen.rival_at
    for attempt in request.live.values():
        at = min(at, attempt.started_at + limits.total)
        if request.stream and limits.idle < NEVER:  # it may begin to speak at any time
            at = min(at, state.now + limits.idle // LOOKS)
        if request.stream and not _spoke(state, attempt):
            at = min(at, attempt.started_at + limits.first_output)
    state.timers.set(request.rid * 4 + PATIENCE, at)


def _end(state: State, attempt: Attempt, why: str) -> None:
    node = attempt.node
    node.failed += 1
    attempt.timed_out = True
    ledger.revoke(state, attempt, AttemptState.FAILED, Reason.ENGINE_STALLED)
    attempt.message = why
    failover.retry(state, attempt)
    health.failed(state, node)
