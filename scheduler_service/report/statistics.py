"""What happened per second, and how did it look once a second?

An observer of the driver: it sorts what the core's records say into buckets of one second, kept for
the window. A timer of the loop takes a sample of queues and nodes each second, so that "the queue
is long" can mean most of the window and not this instant. Totals are the core's own; those of a
core that failed and was replaced stay counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core import Scheduler, condition, scaling
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth, Outcome, RequestClass
from scheduler_service.core.records import Record
from scheduler_service.core.state import Pool, State, Totals, accepts_work
from scheduler_service.core.types import SECOND, Duration, Instant
from scheduler_service.driver import Driver
from scheduler_service.report.buckets import ROWS_MAX, SUM_ROWS_MAX, Bucket
from scheduler_service.report.counting import COUNT
from service_kit.tracing import SpanCounts

_UNWELL: Final = (condition.STALLED, condition.DOWN)
BLOCK_S: Final = 10  # seconds that are added up once they are over


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
    paused: bool  # by an operator


@dataclass(slots=True)
class Sample:
    """Queues at one instant, and the totals up to it."""

    totals: Totals
    pools: dict[str, PoolSample]
    in_flight: int = 0  # over all live nodes
    slots: int = 0
    spans_lost: int = 0  # since the start
    unwell: dict[str, str] = field(default_factory=dict)  # node id: its word, of `_UNWELL`


class Statistics:
    """The observer and the sampler."""

    def __init__(
        self, clock: Clock, *, window: Duration = 300 * SECOND, memory: Duration = 0
    ) -> None:
        self.window = window  # usual length to look back; to the second
        self.memory = max(window, memory)  # the longest; beyond `window` to ten seconds
        self.started_at = clock.now()
        self.node_joined = False  # whether any node ever did
        self.nodes_lost = 0  # since the start
        self.spans = SpanCounts()  # the exporter's own
        self.node_totals: dict[str, list[int]] = {}  # by node: [succeeded, failed] attempts
        self.samples: dict[int, Sample] = {}  # by second, oldest first; as the next
        self._buckets: dict[int, Bucket] = {}
        self._blocks: dict[int, Bucket] = {}  # by second // BLOCK_S; sums that are over
        self._ever = Bucket(rows_max=ROWS_MAX)  # counts of all seconds before `_settled`
        self._settled = 0
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
            count = COUNT.get(record.kind)
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
        """Look at queues and nodes now; once a second counts."""
        assert self._driver is not None
        state, now = self._driver.scheduler.state, self._clock.now()
        bucket, second = self._bucket(now), now // SECOND
        pools = {model: _pool_sample(state, pool, now) for model, pool in state.pools.items()}
        again = second in self.samples
        engines = [e for node in state.nodes.values() if node.alive for e in node.engines.values()]
        self.samples[second] = Sample(
            self.totals(),
            pools,
            sum(engine.in_flight_inputs for engine in engines),
            sum(engine.spec.slots for engine in engines),
            self.spans.lost,
            _unwell(state),
        )
        if again:
            return
        if second % BLOCK_S == 0:
            self._block(second // BLOCK_S - 1)  # now, so that no report has to add up many
        for node_id, node in state.nodes.items():
            if node.alive:
                count = bucket.node(node_id)
                for engine in node.engines.values():
                    count.in_flight += engine.in_flight_inputs
                    count.slots += engine.spec.slots

    def totals(self) -> Totals:
        """Since the scheduler's start; a copy."""
        assert self._driver is not None
        assert self._scheduler is not None
        if self._scheduler is not self._driver.scheduler:
            self._carried = _sum(self._carried, self._scheduler.state.totals)
            self._scheduler = self._driver.scheduler
        return _sum(self._carried, self._scheduler.state.totals)

    def lifetime(self) -> Bucket:
        """Counts since the scheduler's start, a copy; of nodes and payers it knows nothing."""
        whole = Bucket(rows_max=ROWS_MAX)
        whole.absorb_counts(self._ever)
        for second, bucket in self._buckets.items():
            if second >= self._settled:
                whole.absorb_counts(bucket)
        return whole

    def parts(self, first: int, now: int) -> Iterator[Bucket]:
        """What to add up for the seconds from `first` on; `now` is the present one."""
        second = first
        if first not in self._buckets and first // BLOCK_S in self._blocks:
            second -= first % BLOCK_S  # its seconds are gone: the whole block
        while second <= now:
            if second % BLOCK_S == 0 and second + BLOCK_S <= now:
                yield self._block(second // BLOCK_S)
                second += BLOCK_S
            else:
                if second in self._buckets:
                    yield self._buckets[second]
                second += 1

    def _block(self, number: int) -> Bucket:
        """The sum of ten seconds that are over."""
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = Bucket(rows_max=SUM_ROWS_MAX)
            for second in range(number * BLOCK_S, (number + 1) * BLOCK_S):
                if second in self._buckets:
                    block.absorb(self._buckets[second])
        return block

    def _bucket(self, at: Instant) -> Bucket:
        """The bucket of an instant; those that left the window go."""
        second = at // SECOND
        bucket = self._buckets.get(second)
        if bucket is None:
            self._settle(second)
            bucket = self._buckets[second] = Bucket()
            self._thin_out(second)
        return bucket

    def _settle(self, before: int) -> None:
        """Add the seconds that are over to what there ever was."""
        for second in range(max(self._settled, min(self._buckets, default=before)), before):
            if second in self._buckets:
                self._ever.absorb_counts(self._buckets[second])
        self._settled = before

    def _thin_out(self, second: int) -> None:
        """Beyond the window only blocks and every tenth sample, beyond the memory nothing."""
        # One more than the window is kept: its totals are where the window begins.
        recent = second - self.window // SECOND - 1
        oldest = second - self.memory // SECOND - 1
        if self.memory > self.window:
            for old in [s for s in self._buckets if s < recent]:
                self._block(old // BLOCK_S).thin_out()
            for old in [s for s in self.samples if s < recent and s % BLOCK_S]:
                del self.samples[old]
        _forget(self._buckets, recent)
        _forget(self.samples, oldest)
        _forget(self._blocks, oldest // BLOCK_S)


def _forget(kept: dict[int, Bucket] | dict[int, Sample], oldest: int) -> None:
    """Drop what lies before."""
    for key in [key for key in kept if key < oldest]:
        del kept[key]


def _sum(one: Totals, other: Totals) -> Totals:
    """Field by field."""
    whole = Totals(outcomes={o: one.outcomes[o] + other.outcomes[o] for o in Outcome})
    for each in fields(Totals):
        if each.name != "outcomes":
            setattr(whole, each.name, getattr(one, each.name) + getattr(other, each.name))
    return whole


def _unwell(state: State) -> dict[str, str]:
    """Nodes that operators let work and none of whose engines answers."""
    starting, active = NodeHealth.STARTING, NodeAvailability.ACTIVE
    found = {
        node.node_id: condition.of_node(node)
        for node in state.nodes.values()
        if node.health is starting and node.availability is active and node.connected
    }
    return {node_id: word for node_id, word in found.items() if word in _UNWELL}


def _pool_sample(state: State, pool: Pool, now: Instant) -> PoolSample:
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
        paused=pool.paused,
    )


def starting(state: State, pool: Pool, ready: int, now: Instant) -> int:
    """Nodes that were asked for and have not joined; those that take too long count no more."""
    if now - pool.scale.asked_at > state.settings.autoscale.start_timeout:
        return 0
    return max(0, pool.scale.desired - ready)
