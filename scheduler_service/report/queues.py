"""How do queues and pools read?"""

from __future__ import annotations

from collections.abc import Iterable

from batchyard.v1 import report_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import scaling
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import NEVER, Duration, Instant, Request
from scheduler_service.report import histogram
from scheduler_service.report.buckets import Flow, FlowKey
from scheduler_service.report.statistics import starting
from scheduler_service.report.window import Window
from scheduler_service.rpc import status


def queue_stats(
    state: State, window: Window, *, pool: str = "", tenant: str = ""
) -> list[report_pb2.QueueStats]:
    """One row per pool, class and priority that has requests or had some in the window.

    Args:
        pool: only of this pool; empty: of all.
        tenant: count only this tenant's waiting requests; rates and waits are then left out.
    """
    rows = []
    for model in sorted(state.pools):
        if pool in ("", model):
            rows += _of_pool(state.pools[model], window, tenant)
    return rows


def _of_pool(pool: Pool, window: Window, tenant: str) -> list[report_pb2.QueueStats]:
    rows = []
    for (cls, priority), band in pool.queue.bands.items():
        key: FlowKey = (pool.model, cls, priority)
        flow = window.sums.flows.get(key)
        if tenant:
            mine = [request for request in band if request.tenant == tenant]
            if mine:
                rows.append(_row(key, len(mine), mine[0], None, window, tenant))
        elif len(band) or flow is not None:
            rows.append(_row(key, len(band), band.head(), flow, window, ""))
    return rows


def _row(
    key: FlowKey,
    depth: int,
    head: Request | None,
    flow: Flow | None,
    window: Window,
    tenant: str,
) -> report_pb2.QueueStats:
    pool, cls, priority = key
    row = report_pb2.QueueStats(
        pool=pool,
        model=pool,
        request_class=int(cls),  # type: ignore[arg-type]
        priority=priority,
        tenant=tenant,
        depth=depth,
        oldest_wait=status.duration(head.waited(window.now) if head is not None else 0),
    )
    if flow is not None:
        row.arrivals_per_second = flow.arrivals / window.span_s
        row.departures_per_second = flow.departures / window.span_s
        for name, share in (("wait_p50", 0.5), ("wait_p99", 0.99)):
            wait = histogram.percentile(flow.waits, share)
            if wait is not None:
                getattr(row, name).CopyFrom(status.duration(wait))
    return row


def queue_size(pools: Iterable[Pool]) -> int:
    """Requests that wait."""
    return sum(len(pool.queue) for pool in pools)


def oldest_wait(pools: Iterable[Pool], now: Instant) -> Duration:
    """Of all that wait; 0: nobody does."""
    heads = (head for pool in pools for head in pool.queue.heads())
    return max((head.waited(now) for head in heads), default=0)


class PoolWriter:
    """Writes pools."""

    def __init__(self, clock: Clock, objective: Duration) -> None:
        self._clock = clock
        self.objective = objective  # of the wait in the queue; what scale pressure is against

    def write(self, state: State, pool: Pool, window: Window) -> report_pb2.Pool:
        """Its room, its floor and, where it is scaled, its target."""
        nodes = {engine.node.node_id: engine.node for engine in pool.engines}
        built = report_pb2.Pool(
            pool=pool.model,
            models=[pool.model],
            paused=pool.paused,
            slots=sum(engine.spec.slots for engine in pool.engines),
            running=sum(
                attempt.inputs
                for node in nodes.values()
                for attempt in node.in_flight.values()
                if attempt.model == pool.model
            ),
            floor_every=pool.queue.floor_every,
        )
        if pool.queue.floor_every:
            built.start_bound = pool.queue.start_bound()
        batches, inputs, room = window.sums.fills.get(pool.model, [0, 0, 0])
        if batches:
            built.batch_fill = inputs / room
        if state.settings.autoscale.enabled:
            built.scale.CopyFrom(self.scale_target(state, pool))
        return built

    def scale_target(self, state: State, pool: Pool) -> report_pb2.ScaleTarget:
        """What the autoscaler wants, and what there is."""
        limits, scale = state.settings.autoscale, pool.scale
        ready = len(scaling.ready_nodes(pool))
        coming = starting(state, pool, ready, self._clock.now())
        built = report_pb2.ScaleTarget(
            ready=ready,
            starting=coming,
            desired=scale.desired or ready + coming,
            min=limits.min_nodes,
            max=limits.max_nodes,
            pressure=self.pressure(pool),
            reason=scale.reason,
        )
        if scale.frozen_until > self._clock.now():
            built.frozen = True
            built.desired = scale.planned or built.desired
            if scale.frozen_until < NEVER:
                built.frozen_until.CopyFrom(self._clock.timestamp(scale.frozen_until))
        decided_at = max(scale.asked_at, scale.last_in_at)
        if decided_at > -NEVER:
            built.decide_time.CopyFrom(self._clock.timestamp(decided_at))
        return built

    def pressure(self, pool: Pool) -> float:
        """Expected wait of a newcomer over the objective; while nothing is known, the oldest's."""
        slots = sum(engine.spec.slots for engine in pool.engines)
        if pool.estimate.mean and slots:
            expected = pool.queue.interactive * pool.estimate.mean / slots
        else:
            oldest = pool.queue.oldest(RequestClass.INTERACTIVE)
            expected = oldest.waited(self._clock.now()) if oldest is not None else 0
        return expected / self.objective
