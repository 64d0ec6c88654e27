"""What happened per second, and how did it look once a second?

An observer of the driver: it sorts what the core's records say into buckets of one second, kept for
the window. A timer of the loop takes a sample of queues and nodes each second, so that "the queue
is long" can mean most of the window and not this instant. Totals are the core's own; those of a
core that failed and was replaced stay counted.

What callers choose freely (tenants, task types) makes at most 1,000 rows a second; the rest goes
into one row without them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from scheduler_service.clock import Clock
from scheduler_service.core import Scheduler, records, scaling
from scheduler_service.core.failover import CALLERS_FAULT
from scheduler_service.core.outcomes import AttemptState, Outcome, RequestClass
from scheduler_service.core.records import Record
from scheduler_service.core.state import Pool, State, Totals, accepts_work
from scheduler_service.core.types import SECOND, Duration, Request
from scheduler_service.driver import Driver
from scheduler_service.report import histogram

ROWS_MAX: Final = 1_000
SLOWEST_MAX: Final = 20
NODES_REMEMBERED: Final = 10_000

FlowKey = tuple[str, RequestClass, int]  # pool, class, priority
CostKey = tuple[str, str, str, str]  # tenant, model, task type, node
_OVERFLOW: Final = ""


@dataclass(slots=True)
class Flow:
    """Through one band of a queue."""

    arrivals: int = 0
    departures: int = 0
    waits: histogram.Bars = field(default_factory=dict)


@dataclass(slots=True)
class NodeCount:
    """Attempts that ended on a node; callers' faults, refusals and cancels left out."""

    succeeded: int = 0
    failed: int = 0
    latency: dict[str, list[int]] = field(default_factory=dict)  # by model: [number, sum in ns]


@dataclass(slots=True)
class Cost:
    """What work held."""

    requests: int = 0
    slot_ns: int = 0
    node_ns: int = 0  # slot time by the node's slots
    output_tokens: int = 0


@dataclass(slots=True)
class PoolSample:
    """A pool at one instant."""

    waiting: int  # interactive
    oldest_wait: Duration
    live_nodes: int
    idle_nodes: int  # that would take work and have none
    nodes: int  # ready and starting
    slots: int
    in_flight: int


@dataclass(slots=True)
class Sample:
    """Queues and nodes at one instant."""

    totals: Totals
    pools: dict[str, PoolSample]
    nodes: dict[str, tuple[int, int]]  # by node: inputs in flight, slots


@dataclass(slots=True)
class Bucket:
    """One second."""

    second: int
    sample: Sample | None = None
    flows: dict[FlowKey, Flow] = field(default_factory=dict)
    nodes: dict[str, NodeCount] = field(default_factory=dict)
    costs: dict[CostKey, Cost] = field(default_factory=dict)
    fills: dict[str, list[int]] = field(default_factory=dict)  # static: [batches, inputs, room]
    rejects: dict[str, int] = field(default_factory=dict)  # by reason
    lost: list[str] = field(default_factory=list)  # nodes
    slowest: list[tuple[Duration, int, Request]] = field(default_factory=list)  # a heap


class Statistics:
    """The observer and the sampler."""

    def __init__(self, clock: Clock, *, window: Duration = 300 * SECOND) -> None:
        self.window = window  # the longest that can be looked back on
        self.started_at = clock.now()
        self.node_joined = False  # whether any node ever did
        self.input_tokens = 0  # as engines count them; the edge adds, the core does not know
        self.node_totals: dict[str, list[int]] = {}  # by node: [succeeded, failed] attempts
        self.buckets: deque[Bucket] = deque()
        self._clock = clock
        self._driver: Driver | None = None
        self._scheduler: Scheduler | None = None
        self._carried = Totals()  # of cores that failed
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, happened: Sequence[Record]) -> None:
        """Count what the records say."""
        if not happened:
            return
        bucket = self._bucket(happened[0].at)
        for record in happened:
            count = _COUNT.get(record.kind)
            if count is not None:
                count(self, bucket, record)

    def start(self, driver: Driver) -> None:
        """Sample this driver's core once a second until `stop`. Needs a running loop."""
        self._driver = driver
        self._scheduler = driver.scheduler
        self._tick()

    def stop(self) -> None:
        """No more samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)
        self.sample()

    def sample(self) -> None:
        """Look at queues and nodes now."""
        assert self._driver is not None
        state, now = self._driver.scheduler.state, self._clock.now()
        self._bucket(now).sample = Sample(
            totals=self.totals(),
            pools={model: _pool_sample(state, pool, now) for model, pool in state.pools.items()},
            nodes={
                node_id: (
                    sum(e.in_flight_inputs for e in node.engines.values()),
                    sum(e.spec.slots for e in node.engines.values()),
                )
                for node_id, node in state.nodes.items()
                if node.alive
            },
        )

    def totals(self) -> Totals:
        """Since the scheduler's start; a copy."""
        assert self._driver is not None
        assert self._scheduler is not None
        if self._scheduler is not self._driver.scheduler:
            self._carried = _sum(self._carried, self._scheduler.state.totals)
            self._scheduler = self._driver.scheduler
        return _sum(self._carried, self._scheduler.state.totals)

    def _bucket(self, at: int) -> Bucket:
        """The bucket of an instant; those that left the window go."""
        second = at // SECOND
        buckets = self.buckets
        if buckets and buckets[-1].second >= second:
            return buckets[-1]
        bucket = Bucket(second)
        buckets.append(bucket)
        # One more than the window is kept: its totals are where the window begins.
        oldest = second - self.window // SECOND - 1
        while buckets[0].second < oldest:
            buckets.popleft()
        return bucket


def _sum(one: Totals, other: Totals) -> Totals:
    """Field by field."""
    whole = Totals(outcomes={o: one.outcomes[o] + other.outcomes[o] for o in Outcome})
    for each in fields(Totals):
        if each.name != "outcomes":
            setattr(whole, each.name, getattr(one, each.name) + getattr(other, each.name))
    return whole


def _pool_sample(state: State, pool: Pool, now: int) -> PoolSample:
    oldest = pool.queue.oldest(RequestClass.INTERACTIVE) if pool.queue.interactive else None
    live: dict[str, None] = {}
    busy: dict[str, bool] = {}  # of nodes that would take work
    for engine in pool.engines:
        node = engine.node
        live[node.node_id] = None
        if accepts_work(engine, pool.model):
            busy[node.node_id] = busy.get(node.node_id, False) or engine.in_flight_items > 0
    ready = len(scaling.ready_nodes(pool))
    return PoolSample(
        waiting=pool.queue.interactive,
        oldest_wait=oldest.waited(now) if oldest is not None else 0,
        live_nodes=len(live),
        idle_nodes=sum(not each for each in busy.values()),
        nodes=ready + starting(state, pool, ready, now),
        slots=sum(engine.spec.slots for engine in pool.engines),
        in_flight=sum(engine.in_flight_inputs for engine in pool.engines),
    )


def starting(state: State, pool: Pool, ready: int, now: int) -> int:
    """Nodes that were asked for and have not joined; those that take too long count no more."""
    if now - pool.scale.asked_at > state.settings.autoscale.start_timeout:
        return 0
    return max(0, pool.scale.desired - ready)


def _row(rows: dict[Any, Any], key: Any, overflow: Any, make: Callable[[], Any]) -> Any:
    """The row of the key, or the one of those that no longer find room."""
    row = rows.get(key)
    if row is None:
        if len(rows) >= ROWS_MAX:
            key = overflow
            row = rows.get(key)
        if row is None:
            row = rows[key] = make()
    return row


def _flow(bucket: Bucket, pool: str, request: Any) -> Flow:
    key = (pool, request.request_class, request.priority)
    overflow = (_OVERFLOW, request.request_class, request.priority)
    flow: Flow = _row(bucket.flows, key, overflow, Flow)
    return flow


def _cost(bucket: Bucket, request: Any, model: str, node_id: str) -> Cost:
    key = (request.tenant, model, request.task_type, node_id)
    cost: Cost = _row(bucket.costs, key, (_OVERFLOW, model, _OVERFLOW, node_id), Cost)
    return cost


def _submitted(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    request = record.request
    assert request is not None
    _flow(bucket, request.served_model, request).arrivals += 1


def _dispatched(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    batch = record.batch
    assert batch is not None
    inputs = 0
    for attempt in batch.attempts:
        flow = _flow(bucket, batch.model, attempt.request)
        flow.departures += 1
        histogram.add(flow.waits, attempt.queue_wait)
        inputs += attempt.inputs
    if batch.atomic:
        fill = _row(bucket.fills, batch.model, _OVERFLOW, lambda: [0, 0, 0])
        fill[0] += 1
        fill[1] += inputs
        fill[2] += batch.engine.max_batch


def _attempt_ended(statistics: Statistics, bucket: Bucket, record: Record) -> None:
    attempt = record.attempt
    assert attempt is not None
    node_id, state = record.node_id, attempt.state
    took = attempt.ended_at - attempt.started_at
    succeeded = state is AttemptState.SUCCEEDED
    failed = state is AttemptState.LOST or (
        state is AttemptState.FAILED and attempt.reason not in CALLERS_FAULT
    )
    if succeeded or failed:
        count: NodeCount = _row(bucket.nodes, node_id, _OVERFLOW, NodeCount)
        totals = _row(statistics.node_totals, node_id, node_id, lambda: [0, 0])
        if succeeded:
            count.succeeded += 1
            totals[0] += 1
            latency = _row(count.latency, attempt.model, _OVERFLOW, lambda: [0, 0])
            latency[0] += 1
            latency[1] += took
        else:
            count.failed += 1
            totals[1] += 1
    if state is not AttemptState.REFUSED:
        cost = _cost(bucket, attempt.request, attempt.model, node_id)
        slot_ns = took * attempt.inputs
        slots = sum(engine.spec.slots for engine in attempt.node.engines.values())
        cost.slot_ns += slot_ns
        cost.node_ns += slot_ns // max(1, slots)
        cost.output_tokens += attempt.output_tokens


def _finished(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    request = record.request
    assert request is not None
    if request.attempts:
        node_id = request.attempts[-1].node.node_id
        _cost(bucket, request, request.served_model, node_id).requests += 1
    if request.outcome is Outcome.REJECTED:
        return
    took = request.finished_at - request.received_at
    slowest = bucket.slowest
    if len(slowest) < SLOWEST_MAX:
        heapq.heappush(slowest, (took, request.rid, request))
    elif took > slowest[0][0]:
        heapq.heapreplace(slowest, (took, request.rid, request))


def _rejected(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    assert record.request is not None
    reason = record.request.reason.name
    bucket.rejects[reason] = bucket.rejects.get(reason, 0) + 1


def _lost(_statistics: Statistics, bucket: Bucket, record: Record) -> None:
    if len(bucket.lost) < ROWS_MAX:
        bucket.lost.append(record.node_id)


def _joined(statistics: Statistics, _bucket: Bucket, record: Record) -> None:
    statistics.node_joined = True
    known = statistics.node_totals
    known.setdefault(record.node_id, [0, 0])
    while len(known) > NODES_REMEMBERED:
        del known[next(iter(known))]


_COUNT: Final[dict[str, Callable[[Statistics, Bucket, Record], None]]] = {
    records.SUBMIT: _submitted,
    records.DISPATCH_BATCH: _dispatched,
    records.ATTEMPT_ENDED: _attempt_ended,
    records.FINISHED: _finished,
    records.REJECTED: _rejected,
    records.NODE_LOST: _lost,
    records.NODE_JOINED: _joined,
}
