"""How many nodes should each pool have, and which leaves first?

The rule is a policy; this module feeds it once per tick, counts nodes that were asked for and have
not joined yet (so that one lack does not ask again each tick), and drains on scale-in: starting
ones are simply no longer wanted, then goes an idle one, then the least loaded, the youngest first.
Only nodes that an autoscaler started (`managed`) are drained.
"""

from __future__ import annotations

from scheduler_service.core import demand, drains, records
from scheduler_service.core.commands import RequestScale
from scheduler_service.core.events import DrainRequested, ScaleFailed
from scheduler_service.core.interfaces import ScaleView
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import NEVER, SECOND, Node

TICK = demand.TICK


def start(state: State) -> None:
    """Arm the tick, where scaling is on."""
    if state.settings.autoscale.enabled and TICK not in state.timers:
        state.timers.set(TICK, state.now + state.settings.autoscale.tick)


def on_tick(state: State) -> None:
    """Ask the policy about every pool."""
    state.timers.set(TICK, state.now + state.settings.autoscale.tick)
    scaled = state.settings.autoscale.pools
    for pool in list(state.pools.values()):
        if not scaled or pool.model in scaled:
            _plan(state, pool)


def ready_nodes(pool: Pool) -> list[Node]:
    """Live nodes of the pool that take or will soon take work, by id."""
    nodes: dict[str, Node] = {}
    for engine in pool.engines:
        node = engine.node
        if node.availability is NodeAvailability.ACTIVE and node.health is not NodeHealth.EJECTED:
            nodes[node.node_id] = node
    return list(nodes.values())


def view_of(state: State, pool: Pool) -> ScaleView:
    """The pool as the policy sees it."""
    limits, scale = state.settings.autoscale, pool.scale
    nodes = ready_nodes(pool)
    waiting = pool.queue.interactive
    oldest = pool.queue.oldest()
    running = sum(e.in_flight_inputs for e in pool.engines)
    if waiting or running:
        scale.idle_since = NEVER
    elif scale.idle_since >= NEVER:
        scale.idle_since = state.now
    slots = sum(e.spec.slots for e in pool.engines)
    if pool.engines:
        pool.demand.slots_per_node = max(1, slots // len({e.node.node_id for e in pool.engines}))
    service = demand.service_of(pool)
    return ScaleView(
        pool=pool.model,
        waiting=waiting,
        oldest_wait=state.now - oldest.queued_at if oldest is not None else 0,
        ready=len(nodes),
        starting=_starting(state, pool, len(nodes)),
        running=running,
        slots=slots,
        min_nodes=limits.min_nodes,
        max_nodes=limits.max_nodes,
        last_out_at=scale.last_out_at,
        last_in_at=scale.last_in_at,
        idle_since=scale.idle_since,
        erlangs=pool.demand.look(state.now),
        peak_erlangs=pool.demand.peak(),
        watched=state.now - pool.demand.watched_since,
        slots_per_node=pool.demand.slots_per_node,
        queued_work=waiting * service,
        job_work=pool.queue.jobs * service,
        cold_start=pool.demand.cold_start or limits.cold_start,
        min_spare=limits.min_spare,
    )


def on_node_joined(state: State, node: Node) -> None:
    """Learn how long a start takes, where an autoscaler started it."""
    if state.settings.autoscale.enabled and node.spec.managed:
        timeout = state.settings.autoscale.start_timeout
        for model in dict.fromkeys(m for e in node.engines.values() for m in e.models):
            demand.note_joined(state.pools[model], state.now, timeout)


def on_node_gone(state: State, node: Node) -> None:
    """A node that was there is not one that starts: whether another is wanted, the policy says."""
    if node.availability is not NodeAvailability.ACTIVE:
        return  # it was not counted any more
    for model in dict.fromkeys(m for e in node.engines.values() for m in e.models):
        pool = state.pools[model]
        if pool.scale.desired:
            pool.scale.desired = max(len(ready_nodes(pool)), pool.scale.desired - 1)


def _starting(state: State, pool: Pool, ready: int) -> int:
    """Nodes asked for that have not joined; those that take too long count no more."""
    scale = pool.scale
    if state.now - scale.asked_at > state.settings.autoscale.start_timeout:
        return 0
    return max(0, scale.desired - ready)


def _plan(state: State, pool: Pool) -> None:
    view = view_of(state, pool)
    if pool.scale.failures and view.ready >= pool.scale.desired > 0:
        pool.scale.failures = 0
    if state.now < pool.scale.retry_at:
        return
    plan = state.policies.autoscale.plan(view, state.now)
    current = view.ready + view.starting
    scale = pool.scale
    if plan is None or plan.desired == current:
        if not view.starting and not view.waiting:  # what was wanted is there, and was enough
            scale.planned, scale.reason = 0, ""
        return
    if scale.frozen_until > state.now:
        scale.planned, scale.reason = plan.desired, plan.reason  # shown, not acted on
        return
    drained: list[str] = []
    if plan.desired > current:
        scale.asked_at = state.now
        scale.orders.extend([state.now] * (plan.desired - current))
        if current >= view.min_nodes:  # filling up to the minimum is no answer to pressure
            scale.last_out_at = state.now
        kind = records.SCALE_OUT
    else:
        drained = _drain(state, pool, view.ready - plan.desired)
        if not drained and not view.starting:
            return  # nothing of it is ours to stop
        scale.last_in_at = state.now
        for _ in range(min(len(scale.orders), view.starting, current - plan.desired)):
            scale.orders.pop()
        kind = records.SCALE_IN
    scale.desired, scale.reason = plan.desired, plan.reason
    state.record(
        kind, pool=pool.model, source=current, target=plan.desired, reason=plan.reason,
        drained=drained,
    )  # fmt: skip
    state.emit(
        RequestScale(pool.model, plan.desired, view.ready, view.starting, plan.reason, drained)
    )


def leaving(pool: Pool, count: int) -> list[Node]:
    """The nodes to drain: managed ones, the least loaded first, then the youngest, then by id."""
    mine = [n for n in ready_nodes(pool) if n.spec.managed]
    mine.sort(key=lambda n: (len(n.in_flight), -n.joined_at, n.node_id))
    return mine[: max(0, count)]


def _drain(state: State, pool: Pool, count: int) -> list[str]:
    nodes = leaving(pool, count)
    grace = state.settings.autoscale.drain_grace
    for node in nodes:
        drains.on_drain(state, DrainRequested(node.node_id, grace, True, "scale-in"))
    return [n.node_id for n in nodes]


def on_failed(state: State, event: ScaleFailed) -> None:
    """The actuator could not: what it did not start is not awaited, and the next try is later each
    time (1 s, 2 s, ... 60 s), until one succeeds.
    """
    pool = state.pools.get(event.pool)
    if pool is not None:
        scale = pool.scale
        scale.failures += 1
        scale.desired = len(ready_nodes(pool))
        scale.orders.clear()
        scale.retry_at = state.now + min(60, 1 << min(6, scale.failures - 1)) * SECOND
        state.record(records.SCALE_FAILED, pool=event.pool, message=event.message)
