"""One step: take what happened, apply it all, then decide once.

Cancels and expiries go first, so that nothing is done for those who left. At most
`max_events_per_step` events are taken by a driver's call; it calls again while more are waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from scheduler_service.core import (
    adoption,
    apart,
    dispatch,
    drains,
    events,
    failover,
    health,
    holds,
    invariants,
    patience,
    policy_change,
    preemption,
    reach,
    reports,
    requests,
    scaling,
    sessions,
)
from scheduler_service.core.commands import CancelAttempts, Command
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.records import Record
from scheduler_service.core.relay import Relay
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.state import State
from scheduler_service.core.types import Instant


def _submit(state: State, event: events.RequestsSubmitted) -> None:
    if state.lengths is not None:
        for request in event.requests:
            state.lengths.expect(request)
    for request in event.requests:
        requests.submit(state, request)
        if request.former_deaths:
            apart.on_returned(state, request)
    if state.policies.least_share:
        reach.watch(state, event.requests)


def _stop(state: State, event: events.SchedulerDraining) -> None:
    state.draining = event.reason or "it was asked to stop"


_APPLY: Final[dict[type, Callable[[State, Any], None]]] = {
    events.RequestsSubmitted: _submit,
    events.BodyReturned: adoption.on_body,
    events.NodeJoined: sessions.on_joined,
    events.NodeDescribed: sessions.on_described,
    events.NodesHeard: sessions.on_heard,
    events.CreditsGranted: sessions.on_credits,
    events.ReportReceived: reports.on_report,
    events.ItemsRunning: failover.on_running,
    events.OutputsBegun: failover.on_begun,
    events.ItemsFinished: failover.on_finished,
    events.SessionBroken: sessions.on_broken,
    events.NodeCordoned: drains.on_cordoned,
    events.DrainRequested: drains.on_drain,
    events.ScaleFailed: scaling.on_failed,
    events.PoolPaused: holds.on_paused,
    events.AutoscaleFrozen: holds.on_frozen,
    events.PoliciesChanged: policy_change.on_changed,
    events.SchedulerDraining: _stop,
}

_TIMERS: Final[dict[str, Callable[[State, str], None]]] = {
    "silence": sessions.on_silence,
    "lost": sessions.on_window_over,
    "ping": sessions.on_ping_timeout,
    "forget": sessions.on_forget,
    "drain": drains.on_drain_over,
    "recovered": adoption.on_window_over,
    "outliers": health.on_window_over,
    "eject": health.on_time_over,
    "warm": health.on_warmer,
    "pressure": requests.on_pressure,
    "batch": dispatch.on_batch_due,
    "preempt": preemption.on_due,
}


class Scheduler:
    """The pure scheduling machine. Both the gRPC service and the simulator drive it."""

    def __init__(self, settings: CoreSettings, policies: PolicySet) -> None:
        self.state = State(settings, policies)

    def successor(self) -> Scheduler:
        """A core without any state, for when this one's cannot be trusted; ids go on from here."""
        state = self.state
        fresh = Scheduler(state.settings, state.policies)
        fresh.state.skip_ids(state)
        return fresh

    @property
    def relay(self) -> Relay:
        """Whose output may reach a client now."""
        return self.state.relay

    def step(self, now: Instant, happened: Sequence[events.Event]) -> Sequence[Command]:
        """Apply `happened` at `now` and decide.

        Args:
            now: monotonic nanoseconds, not before the last call's.
            happened: events in the order they came.

        Returns:
            Commands, to be carried out in order.

        Raises:
            InvariantViolation: a bug of the core; its state must not be trusted any more.
        """
        state = self.state
        assert now >= state.now, "time went back"
        state.now = now
        state.step += 1
        if state.step == 1:
            adoption.begin(state)
        state.commands = []
        if state.relay.fresh:
            failover.hear(state)
        early = [e for e in happened if type(e) is events.RequestsCancelled]
        unknown = _cancel(state, early) if early else []
        _fire_timers(state)
        for event in happened:
            if type(event) is not events.RequestsCancelled:
                _APPLY[type(event)](state, event)
        if unknown:
            _cancel(state, unknown)  # submitted and cancelled in this very step
        scaling.start(state)
        if state.dirty:
            dispatch.decide(state)
        _flush_cancels(state)
        apart.flush_blames(state)
        if state.step >= state.next_check:
            invariants.check(state)
            state.plan_check()
        return state.commands

    def next_wakeup(self) -> Instant | None:
        """When `step` must be called again at the latest; None: not before the next event."""
        return self.state.timers.next()

    def take_records(self) -> list[Record]:
        """The records since the last call, for the observers."""
        taken, self.state.records = self.state.records, []
        return taken


def _cancel(
    state: State, cancels: list[events.RequestsCancelled]
) -> list[events.RequestsCancelled]:
    """Cancel what is known; return the rest."""
    unknown = []
    for event in cancels:
        rest = [
            rid
            for rid in event.rids
            if not requests.cancel(state, rid, event.reason, event.message)
        ]
        if rest:
            unknown.append(events.RequestsCancelled(rest, event.reason, event.message))
    return unknown


def _fire_timers(state: State) -> None:
    for key in state.timers.due(state.now):
        if type(key) is int:
            _fire_request(state, key >> 2, key & 3)
        elif key == scaling.TICK:
            scaling.on_tick(state)
        elif isinstance(key, tuple):
            kind, subject = key
            if kind in ("unblock", "prefill"):
                _unblock(state, subject)
            else:
                _TIMERS[kind](state, subject)


def _fire_request(state: State, rid: int, kind: int) -> None:
    request = state.requests.get(rid)
    if request is None:
        return
    if kind == requests.DEADLINE and state.policies.least_share:
        reach.on_timer(state, request)
    elif kind == requests.PATIENCE:
        patience.on_timer(state, request)
    else:
        requests.on_timer(state, request, kind)


def _unblock(state: State, node_id: str) -> None:
    node = state.nodes.get(node_id)
    if node is not None:
        for engine in node.engines.values():
            state.touch_engine(engine)


def _flush_cancels(state: State) -> None:
    """One command per session and reason for all cancels of the step."""
    if state.cancels:
        for (node_id, epoch, reason), ids in state.cancels.items():
            state.commands.append(CancelAttempts(node_id, epoch, ids, reason))
        state.cancels.clear()
