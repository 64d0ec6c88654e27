"""How does a node leave service: cordoned, drained, with proof of what became of its work?

A drain ends when the node holds nothing: what it finished, what moved to other nodes and what was
lost with it is listed in its `Drain`. The agent gives back what is left when the grace is over; if
it does not, the rest is moved without its word.
"""

from __future__ import annotations

from scheduler_service.core import failover, ledger, records
from scheduler_service.core.commands import DrainNode
from scheduler_service.core.events import DrainRequested, NodeCordoned
from scheduler_service.core.outcomes import AttemptState, NodeAvailability, Reason
from scheduler_service.core.state import State
from scheduler_service.core.transitions import move_availability
from scheduler_service.core.types import NEVER, SECOND, Drain, Node

DRAIN_MARGIN = 2 * SECOND  # after its grace, before the agent's word is no longer waited for


def on_cordoned(state: State, event: NodeCordoned) -> None:
    """An operator takes the node out of service for new work, or back in."""
    node = state.nodes.get(event.node_id)
    if node is None or not node.alive:
        return
    wanted = NodeAvailability.CORDONED if event.cordoned else NodeAvailability.ACTIVE
    if event.cordoned and node.availability is not NodeAvailability.ACTIVE:
        return
    if node.availability is wanted or (not event.cordoned and why_it_leaves(node)):
        return
    drained = node.availability is not NodeAvailability.CORDONED and node.drain is not None
    move_availability(node, wanted)
    if drained and not event.cordoned:
        _lift(state, node)
    node.availability_reason = event.reason if event.cordoned else ""
    kind = records.NODE_CORDONED if event.cordoned else records.NODE_UNCORDONED
    state.record(kind, node_id=node.node_id, reason=event.reason)
    state.rebuild_pools()


def why_it_leaves(node: Node) -> str:
    """Why a node that drains cannot be called back any more; empty: it can."""
    drain, availability = node.drain, node.availability
    if drain is None or availability in (NodeAvailability.ACTIVE, NodeAvailability.CORDONED):
        return ""
    if drain.by_agent:
        return "its agent was told to stop on its host, and leaves"
    if drain.terminate and availability is NodeAvailability.DRAINED:
        return "it has drained, and its agent exits"
    return ""


def _lift(state: State, node: Node) -> None:
    assert node.drain is not None
    node.drain.ended_at = node.drain.ended_at or state.now
    node.drain.lifted = True
    tell(state, node)


def on_drain(state: State, event: DrainRequested) -> None:
    """No new work for it; what runs finishes within the grace, the rest moves."""
    node = state.nodes.get(event.node_id)
    if node is None or not node.alive:
        return
    if node.availability is NodeAvailability.DRAINING:
        if node.drain is not None:
            _hasten(state, node, node.drain, event)
        return
    move_availability(node, NodeAvailability.DRAINING)
    node.drain = Drain(state.now, event.grace, event.terminate, event.reason, event.by_agent)
    node.availability_reason = event.reason
    state.record(
        records.NODE_DRAINING, node_id=node.node_id, reason=event.reason,
        in_flight=len(node.in_flight), by_agent=event.by_agent,
    )  # fmt: skip
    if not event.by_agent:
        tell(state, node)
    state.timers.set(("drain", node.node_id), state.now + event.grace + DRAIN_MARGIN)
    state.rebuild_pools()
    ledger.check_drained(state, node)


def _hasten(state: State, node: Node, drain: Drain, event: DrainRequested) -> None:
    """It drains already. Who asks again may have it sooner, or have the agent exit as well: else
    nothing but its work could end a drain without a limit.
    """
    sooner = state.now + event.grace < drain.started_at + drain.grace
    if sooner:
        drain.grace = state.now + event.grace - drain.started_at
        state.timers.set(("drain", node.node_id), state.now + event.grace + DRAIN_MARGIN)
    exits = event.terminate and not drain.terminate
    drain.terminate = drain.terminate or event.terminate
    drain.by_agent = drain.by_agent or event.by_agent
    if (sooner or exits) and not event.by_agent:
        tell(state, node)


def tell(state: State, node: Node) -> None:
    """Tell the agent of the drain that is going on, or that it was lifted, if either is so.

    A new session must hear it again: the stream may have broken before it was told.
    """
    drain = node.drain
    if drain is None:
        return
    if drain.lifted:
        state.emit(DrainNode(node.node_id, node.epoch, 0, False, "", lifted=True))
        return
    if node.availability is not NodeAvailability.DRAINING:
        return
    left = drain.grace
    if left < NEVER:
        left = max(0, drain.started_at + left - state.now)
    state.emit(DrainNode(node.node_id, node.epoch, left, drain.terminate, drain.reason))


def on_drain_over(state: State, node_id: str) -> None:
    """The agent did not give back the rest in time: move it without its word."""
    node = state.nodes.get(node_id)
    if node is None or node.availability is not NodeAvailability.DRAINING:
        return
    for attempt in list(node.in_flight.values()):
        live = attempt.dispatch_id in attempt.request.live
        if live:
            ledger.revoke(state, attempt, AttemptState.CANCELLED, Reason.NODE_DRAINING)
        ledger.settle(state, attempt)
        if live:
            failover.give_back(state, attempt)
    ledger.check_drained(state, node)
