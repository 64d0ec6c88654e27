"""What do the scheduler's metrics say? Collected at each scrape from what the report is made of.

The names are fixed, for dashboards and alerts depend on them; `docs/metrics.md` lists them. Labels
are bounded: never an id of a request, user, session or trace, and node ids on metrics of nodes
only, which disappear with the node. Names that callers choose make 1,000 series at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core.outcomes import Outcome, RequestClass
from scheduler_service.core.state import State
from scheduler_service.core.types import SECOND, Duration
from scheduler_service.driver import Driver
from scheduler_service.report import histogram
from scheduler_service.report.buckets import Bucket, Lengths
from scheduler_service.report.queues import PoolWriter
from scheduler_service.report.statistics import Statistics
from scheduler_service.telemetry.node_metrics import NodeMetrics
from service_kit.loop_lag import LoopLag
from service_kit.metrics import TIME_EDGES_S, Bins, Collect, Family, Kind
from service_kit.tracing import SpanCounts, spans_family

EDGES_NS: Final[tuple[Duration, ...]] = tuple(round(edge * SECOND) for edge in TIME_EDGES_S)
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
OTHERS: Final = "_others"  # stands for names beyond the bound


class SchedulerMetrics:
    """Collects. All methods are for the loop's thread."""

    def __init__(
        self,
        *,
        driver: Driver,
        statistics: Statistics,
        pools: PoolWriter,
        nodes: NodeMetrics,
        lag: LoopLag,
        spans: SpanCounts,
        clock: Clock,
        edge: Collect = tuple,
    ) -> None:
        self._driver = driver
        self._statistics = statistics
        self._pools = pools
        self._nodes = nodes
        self._lag = lag
        self._spans = spans
        self._clock = clock
        self._edge = edge

    def __call__(self) -> Sequence[Family]:
        """All families, as of now."""
        state, ever = self._driver.scheduler.state, self._statistics.lifetime()
        return [
            *self._totals(),
            *_requests(ever),
            *self._queues(state, ever),
            *_times(ever),
            *_batches(ever),
            *self._scaling(state),
            *self._nodes.collect(state, self._statistics),
            *self._own(),
            *self._edge(),
        ]

    def _totals(self) -> Iterator[Family]:
        totals = self._statistics.totals()
        for name, value, unit, text in (
            ("requests.received", totals.received, "{request}", "Requests that came"),
            ("failovers", totals.failovers, "{attempt}", "Attempts replaced on another node"),
            ("hedges", totals.hedges, "{attempt}", "Attempts sent beside a slow one"),
            ("hedges.won", totals.hedges_won, "{attempt}", "Of them, those that answered first"),
            ("preemptions", totals.preemptions, "{attempt}", "Job items stopped for urgent work"),
            ("batches", totals.batches, "{batch}", "Batches sent to nodes"),
            ("tokens.input", totals.input_tokens, "{token}", "Prompt tokens of what ended well"),
            ("tokens.output", totals.output_tokens, "{token}", "Output tokens of what ended well"),
            ("tokens.wasted", totals.wasted_output_tokens, "{token}", "Written for nothing"),
            ("stream.deltas", self._driver.scheduler.relay.deltas, "{delta}", "Pieces of output"),
            ("late_results", totals.late_results, "{result}", "Results of ids that were not live"),
            ("nodes.lost", self._statistics.nodes_lost, "{node}", "Nodes that were given up"),
            ("ledger.healed", totals.healed, "{item}", "Differences to agents, repaired"),
        ):
            family = Family(f"batchyard.{name}", Kind.COUNTER, text, unit)
            family.add(value)
            yield family

    def _queues(self, state: State, ever: Bucket) -> Iterator[Family]:
        now = self._clock.now()
        banded = ("pool", "request_class", "priority")
        depth = Family(
            "batchyard.queue.depth", Kind.GAUGE, "Requests that wait", "{request}", banded
        )
        oldest = Family(
            "batchyard.queue.oldest_age", Kind.GAUGE, "Wait of the oldest", "s", ("pool",)
        )
        bound = Family(
            "batchyard.queue.start_bound",
            Kind.GAUGE,
            "Dispatches until the youngest that waits starts, at most",
            "{dispatch}",
            ("pool",),
        )
        floor = Family(
            "batchyard.queue.floor_dispatches",
            Kind.COUNTER,
            "Dispatches that the floor gave to the oldest",
            "{dispatch}",
            ("pool",),
        )
        nodes = Family(
            "batchyard.pool.nodes", Kind.GAUGE, "Nodes that take work for it", "{node}", ("pool",)
        )
        paused = Family(
            "batchyard.pool.paused", Kind.GAUGE, "1: an operator holds it back", "", ("pool",)
        )
        for name, pool in state.pools.items():
            nodes.add(len({engine.node.node_id for engine in pool.usable}), name)
            paused.add(float(pool.paused), name)
            for (cls, priority), band in pool.queue.bands.items():
                depth.add(len(band), name, cls.name.lower(), str(priority))
            heads = (head.waited(now) for head in pool.queue.heads())
            oldest.add(max(heads, default=0) / SECOND, name)
            if pool.queue.floor_every:
                bound.add(pool.queue.start_bound(), name)
            floor.add(pool.floor_dispatches, name)
        wait = _seconds("batchyard.queue.wait", "Time in the queue of what was dispatched", banded)
        for (name, cls, priority), flow in ever.flows.items():
            if flow.departures:
                bins = _bins(Lengths(flow.waits, flow.waited))
                wait.add(bins, name or OTHERS, RequestClass(cls).name.lower(), str(priority))
        return iter((depth, oldest, bound, floor, nodes, paused, wait))

    def _scaling(self, state: State) -> Iterator[Family]:
        names = (
            ("desired", "Nodes that the autoscaler wants"),
            ("current", "Nodes that are ready"),
            ("pressure", "Expected wait over the objective; 1 is full"),
        )
        by_name = {
            name: Family(
                f"batchyard.autoscale.{name}",
                Kind.GAUGE,
                text,
                "" if name == "pressure" else "{node}",
                ("pool",),
            )
            for name, text in names
        }
        for name, pool in state.pools.items():
            by_name["pressure"].add(self._pools.pressure(pool), name)
            if state.settings.autoscale.enabled:
                target = self._pools.scale_target(state, pool)
                by_name["desired"].add(target.desired, name)
                by_name["current"].add(target.ready, name)
        return iter(by_name.values())

    def _own(self) -> Iterator[Family]:
        yield self._lag.family()
        yield spans_family(self._spans)
        faults = Family("batchyard.core.faults", Kind.COUNTER, "Faults of our own", "{fault}")
        faults.add(self._driver.faults)
        yield faults
        up = Family("batchyard.uptime", Kind.GAUGE, "Since the start", "s")
        up.add((self._clock.now() - self._statistics.started_at) / SECOND)
        yield up


def _requests(ever: Bucket) -> Iterator[Family]:
    labels = ("outcome", "model", "priority", "task_type")
    requests = Family(
        "batchyard.requests", Kind.COUNTER, "Requests that ended", "{request}", labels
    )
    for (outcome, model, priority, task_type), number in ever.ends.items():
        assert isinstance(outcome, Outcome)
        named = (model or OTHERS, str(priority), task_type or OTHERS)
        before = requests.series.get((outcome.value, *named), 0)
        assert not isinstance(before, Bins)
        requests.add(before + number, outcome.value, *named)
    yield requests
    rejections = Family(
        "batchyard.admission.rejections", Kind.COUNTER, "Refusals", "{request}", ("reason",)
    )
    for reason, number in ever.rejects.items():
        rejections.add(number, reason)
    yield rejections
    ways = ("from", "to", "reason")
    degrades = Family("batchyard.degrades", Kind.COUNTER, "Substitutions", "{request}", ways)
    for (source, target, reason), number in ever.degrades.items():
        degrades.add(number, source or OTHERS, target or OTHERS, reason)
    yield degrades


def _times(ever: Bucket) -> Iterator[Family]:
    model = ("gen_ai.request.model",)
    for name, text, rows in (
        ("request.duration", "Receipt to end, of successes", ever.durations),
        ("time_to_first_token", "Receipt to first output, of streams", ever.first_outputs),
        ("time_per_output_token", "Between two tokens of a stream, on average", ever.token_times),
    ):
        family = _seconds(f"gen_ai.server.{name}", text, model)
        for pool, lengths in rows.items():
            family.add(_bins(lengths), pool or OTHERS)
        yield family


def _batches(ever: Bucket) -> Iterator[Family]:
    sizes = Family(
        "batchyard.dispatch.batch_size",
        Kind.HISTOGRAM,
        "Requests per batch",
        "{request}",
        ("pool",),
        SIZES,
    )
    waits = _seconds("batchyard.dispatch.batch_wait", "Of the oldest of each batch", ("pool",))
    for pool, batches in ever.batches.items():
        found = batches.sizes
        counts = [sum(n for size, n in found.items() if size <= edge) for edge in SIZES]
        total = sum(size * n for size, n in found.items())
        sizes.add(Bins(counts, sum(found.values()), total), pool or OTHERS)
        waits.add(_bins(batches.waits), pool or OTHERS)
    return iter((sizes, waits))


def _seconds(name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
    return Family(name, Kind.HISTOGRAM, text, "s", labels, TIME_EDGES_S)


def _bins(lengths: Lengths) -> Bins:
    counts = histogram.cumulative(lengths.bars, EDGES_NS)
    return Bins(counts, sum(lengths.bars.values()), lengths.total / SECOND)
