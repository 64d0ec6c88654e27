"""How far is a node trusted, by how its attempts end?

    HEALTHY --an outlier by the policy--> EJECTED --its time is over--> PROBATION --3 successes-->
    HEALTHY, with a quarter of its slots at first and all of them 30 s later.

EJECTED: no new work; what runs there goes on. PROBATION: one request at a time; one failure ejects
it again, for longer. The time grows with the number of ejections, which is halved for every
five minutes that went well.

The panic rule holds whatever the policy says: a fault that all share (a poisonous request, a bad
model file) must not take all nodes out. At most a tenth of a pool's nodes, or one, are out by this
rule; none goes if less than half would be left; and where all others have gone since, those that
are out come back on probation at once.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import records
from scheduler_service.core.interfaces import OutlierView
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth
from scheduler_service.core.state import Pool, State
from scheduler_service.core.transitions import move_health
from scheduler_service.core.types import SECOND, Node, Trust

WINDOW: Final = 10 * SECOND  # over which nodes are compared
CLEAN: Final = 300 * SECOND  # halves the number of ejections
PROOF: Final = 3  # successes in a row that end a probation
WARM_STEP: Final = 1 * SECOND  # how often a warming node gets more slots

_SERVING: Final = (NodeHealth.HEALTHY, NodeHealth.PROBATION)


def succeeded(state: State, node: Node) -> None:
    """An attempt of it had an answer."""
    trust = node.trust
    number = state.now // WINDOW
    if trust.window != number:
        trust.window, trust.succeeded, trust.failed = number, 0, 0
    trust.succeeded += 1
    if trust.error_rate:
        trust.errors_in_row = 0
        trust.error_rate = trust.error_rate * 15 / 16 if trust.error_rate > 0.001 else 0.0
    if trust.on_probation and node.health is NodeHealth.PROBATION:
        trust.proven += 1
        if trust.proven >= PROOF:
            _trust_again(state, node)


def failed(state: State, node: Node) -> None:
    """An attempt of it ended by its own or its engine's fault."""
    trust = node.trust
    number = state.now // WINDOW
    if trust.window != number:
        trust.window, trust.succeeded, trust.failed = number, 0, 0
    trust.failed += 1
    trust.errors_in_row += 1
    trust.error_rate += (1 - trust.error_rate) / 16
    key = ("outliers", "")
    if key not in state.timers:
        state.timers.set(key, (number + 1) * WINDOW)
    if node.health is NodeHealth.PROBATION:
        if _may_go(state, node):
            _eject(state, node, "it failed on probation")
    elif node.health is NodeHealth.HEALTHY:
        _ask(state, node, OutlierView(trust.errors_in_row, 0, 0, ()))


def on_window_over(state: State, _subject: str) -> None:
    """Compare the nodes of each pool by their last ten seconds."""
    ended = state.now // WINDOW - 1
    for pool in list(state.pools.values()):
        nodes = [n for n in nodes_of(pool) if n.trust.window == ended]
        counts = [(n.trust.succeeded, n.trust.failed) for n in nodes]
        for node in nodes:
            trust = node.trust
            if trust.failed and node.health is NodeHealth.HEALTHY:
                _ask(state, node, OutlierView(0, trust.succeeded, trust.failed, counts))


def nodes_of(pool: Pool) -> list[Node]:
    """Its live nodes, each once."""
    return list({e.node.node_id: e.node for e in pool.engines}.values())


def _ask(state: State, node: Node, view: OutlierView) -> None:
    why = state.policies.health.why_eject(view)
    if why and _may_go(state, node):
        _eject(state, node, why)


def _may_go(state: State, node: Node) -> bool:
    """The panic rule, in every pool that it serves."""
    limits = state.settings.health
    for model in dict.fromkeys(m for e in node.engines.values() for m in e.models):
        others = [n for n in nodes_of(state.pools[model]) if n is not node]
        out = sum(n.health is NodeHealth.EJECTED for n in others)
        left = sum(
            n.health in _SERVING and n.availability is NodeAvailability.ACTIVE for n in others
        )
        count = len(others) + 1
        if out + 1 > max(1, int(limits.eject_share * count)) or left < limits.keep_share * count:
            return False
    return True


def _eject(state: State, node: Node, why: str) -> None:
    trust, limits = node.trust, state.settings.health
    clean = state.now - trust.ejected_at
    trust.ejections = (trust.ejections >> min(60, clean // CLEAN)) + 1
    duration = min(limits.eject_max, limits.eject_base * trust.ejections)
    trust.ejected_at, trust.ejected_until = state.now, state.now + duration
    trust.on_probation = False
    move_health(node, NodeHealth.EJECTED)
    node.state_reason = why
    state.timers.set(("eject", node.node_id), trust.ejected_until)
    state.record(
        records.NODE_EJECTED, node_id=node.node_id, reason=why,
        duration_s=duration // SECOND, in_flight=len(node.in_flight),
    )  # fmt: skip
    state.rebuild_pools()


def on_time_over(state: State, node_id: str) -> None:
    """It was out for long enough."""
    node = state.nodes.get(node_id)
    if node is not None and node.alive and node.trust.ejected_until:
        _on_probation(state, node)


def _on_probation(state: State, node: Node) -> None:
    trust = node.trust
    trust.ejected_until, trust.errors_in_row, trust.proven = 0, 0, 0
    trust.on_probation, trust.probation_since = True, state.now
    state.timers.cancel(("eject", node.node_id))
    if node.health is NodeHealth.EJECTED:  # else it is SUSPECT, and restored later
        move_health(node, NodeHealth.PROBATION)
        state.rebuild_pools()


def _trust_again(state: State, node: Node) -> None:
    trust = node.trust
    trust.on_probation = False
    move_health(node, NodeHealth.HEALTHY)
    node.state_reason = ""
    state.record(records.NODE_RECOVERED, node_id=node.node_id)
    warm_up(state, node, state.settings.health.warm_up)
    state.rebuild_pools()


def relent(state: State, pool: Pool) -> bool:
    """No other node of the pool is left: those that are out come back; whether there are any."""
    out = [
        n
        for n in nodes_of(pool)
        if n.health is NodeHealth.EJECTED and n.availability is NodeAvailability.ACTIVE
    ]
    for node in out:
        _on_probation(state, node)
    return bool(out)


def restored(state: State, node: Node) -> NodeHealth:
    """What a node is when it is heard again: as little trusted as before it fell silent."""
    if node.trust.ejected_until > state.now:
        return NodeHealth.EJECTED
    return NodeHealth.PROBATION if node.trust.on_probation else NodeHealth.STARTING


def inherit(old: Node, boot_id: str) -> Trust:
    """A new stream of the same process is trusted as the old one was; a new process starts anew,
    but for how often its predecessors were ejected.
    """
    if old.boot_id == boot_id:
        return old.trust
    return Trust(ejections=old.trust.ejections, ejected_at=old.trust.ejected_at)


def warm_up(state: State, node: Node, duration: int) -> None:
    """Give it its slots little by little."""
    if duration > 0:
        node.trust.warm_from, node.trust.warm_until = state.now, state.now + duration
        state.timers.set(("warm", node.node_id), state.now + WARM_STEP)


def on_warmer(state: State, node_id: str) -> None:
    """A warming node may have more slots now."""
    node = state.nodes.get(node_id)
    if node is None or not node.alive:
        return
    if node.trust.warm_until > state.now:
        state.timers.set(("warm", node_id), state.now + WARM_STEP)
    for engine in node.engines.values():
        state.touch_engine(engine)


def slots_of(state: State, node: Node, slots: int) -> int:
    """How many of an engine's slots a warming node may use now."""
    trust = node.trust
    if trust.warm_until <= state.now:
        return slots
    share = (state.now - trust.warm_from) / (trust.warm_until - trust.warm_from)
    return max(1, int(slots * (0.25 + 0.75 * share)))


def tried_enough(node: Node) -> bool:
    """Whether a node on probation has its one request already."""
    since = node.trust.probation_since
    return any(a.started_at >= since for a in node.in_flight.values())
