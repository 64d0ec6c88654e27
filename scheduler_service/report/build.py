"""What does GetReport answer? Puts the whole report together, from views of the core's state."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batchyard.v1 import report_pb2, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.state import State, Totals
from scheduler_service.core.types import SECOND, Duration, Node
from scheduler_service.driver import Driver
from scheduler_service.eventlog import FREQUENT, Entry, EventFilter, EventLog
from scheduler_service.report import diagnosis, nodes, queues, texts
from scheduler_service.report.buckets import Cost, NodeCount
from scheduler_service.report.diagnosis import Case, Thresholds
from scheduler_service.report.events import EventWriter
from scheduler_service.report.nodes import NodeWriter, Views
from scheduler_service.report.requests import summary
from scheduler_service.report.statistics import Statistics
from scheduler_service.report.timeline import tenant_stats, timeline
from scheduler_service.report.window import Window
from scheduler_service.rpc import status

ROWS_MAX: Final = 1_000
COSTS_MAX: Final = 100
_HOUR_NS: Final = 3_600 * SECOND
_MICROS_MAX: Final = (1 << 63) - 1  # Money holds no more: a sum beyond is cut down to it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What a caller asked for."""

    window: Duration
    language: texts.Language = "en"
    nodes: bool = True
    queues: bool = True
    events: int = 50
    event_kinds: frozenset[str] = frozenset()  # empty: all


class ReportBuilder:
    """Builds reports of one scheduler."""

    def __init__(
        self,
        *,
        driver: Driver,
        statistics: Statistics,
        eventlog: EventLog,
        views: Views,
        last_price: Callable[[str], types_pb2.Money | None],
        clock: Clock,
        version: str,
        thresholds: Thresholds | None = None,
    ) -> None:
        self.clock = clock
        self.statistics = statistics
        self.eventlog = eventlog
        self.events = EventWriter(clock, eventlog.term)
        self.nodes = NodeWriter(clock, views)
        self._last_price = last_price
        self._driver = driver
        self.backlog: Callable[[], int] = lambda: 0  # stored job items that are not fed in
        self._version = version
        self._given = thresholds
        self._thresholds = thresholds or _of_autoscaler(self.state)
        self.pools = queues.PoolWriter(clock, self._thresholds.wait)

    def retune(self) -> None:
        """Other policies are in force: what counts as long is what they say."""
        self._thresholds = self._given or _of_autoscaler(self.state)
        self.pools.objective = self._thresholds.wait

    @property
    def state(self) -> State:
        """The core's, to be read only."""
        return self._driver.scheduler.state

    def window(self, length: Duration | None = None) -> Window:
        """The window's figures; None: the longest there is."""
        return Window(self.statistics, self.clock.now(), length or self.statistics.window)

    def build(
        self, options: ReportOptions, *, tenants: tuple[str, ...] | None = None
    ) -> report_pb2.Report:
        """The report. `tenants`: events of theirs only; None: all."""
        state, window = self.state, self.window(options.window)
        now = window.now
        report = report_pb2.Report(
            report_name=texts.REPORT_NAME[options.language],
            generate_time=self.clock.timestamp(now),
            window=status.duration(window.length),
            queue_size=queues.queue_size(state.pools.values()),
            oldest_wait=status.duration(queues.oldest_wait(state.pools.values(), now)),
            totals=self._totals(self.statistics.totals()),
            window_totals=_written(window.totals),
            diagnosis=[diagnosis.write(f, options.language) for f in self._diagnose(window)],
            pools=[self.pools.write(state, state.pools[m], window) for m in sorted(state.pools)],
            costs=self._costs(window),
            slowest=[summary(request, now) for request in window.slowest()],
            scheduler_version=self._version,
            uptime=status.duration(now - self.statistics.started_at),
            backlog=self.backlog(),
            rejects=window.rejects,
            timeline=timeline(window, self.clock),
            tenants=tenant_stats(window),
        )
        if options.nodes:
            report.nodes.extend(self._rows(window))
        if options.queues:
            report.queues.extend(queues.queue_stats(state, window)[:ROWS_MAX])
        report.events.extend(
            self.events.write(entry, options.language) for entry in self._recent(options, tenants)
        )
        return report

    def _recent(self, options: ReportOptions, tenants: tuple[str, ...] | None) -> list[Entry]:
        """The newest events, oldest first. Half of the room is for those that not every request
        causes: a minute of load would hide who died and what was scaled.
        """
        kinds = options.event_kinds or records.PUBLIC
        rare = self._newest(kinds - FREQUENT, options.events // 2, tenants)
        chosen = {entry.number: entry for entry in rare}
        for entry in self._newest(kinds, options.events, tenants):
            if len(chosen) < options.events:
                chosen[entry.number] = entry
        return [chosen[number] for number in sorted(chosen)]

    def _newest(
        self, kinds: frozenset[str], most: int, tenants: tuple[str, ...] | None
    ) -> list[Entry]:
        if not kinds:
            return []
        newest = self.eventlog.newest(EventFilter(kinds, tenants=tenants))
        return [entry for entry, _ in zip(newest, range(most), strict=False)]

    def node(self, node: Node, window: Window) -> report_pb2.Node:
        """One node, whole."""
        return self.nodes.write(
            node, window.sums.nodes.get(node.node_id, NodeCount()), self._node_totals(node)
        )

    def _rows(self, window: Window) -> list[report_pb2.NodeSummary]:
        shown = heapq.nsmallest(ROWS_MAX, self.state.nodes.values(), key=lambda n: n.node_id)
        return [
            nodes.summary(
                node,
                self.nodes.views(node.node_id, node.epoch),
                window.sums.nodes.get(node.node_id, NodeCount()),
                self._node_totals(node),
                window.now,
            )
            for node in shown
        ]

    def _node_totals(self, node: Node) -> list[int]:
        return self.statistics.node_totals.get(node.node_id, [0, 0])

    def _totals(self, totals: Totals) -> report_pb2.Totals:
        return _written(totals)

    def _diagnose(self, window: Window) -> list[diagnosis.Finding]:
        return diagnosis.diagnose(
            Case(
                window,
                self._thresholds,
                self.statistics.node_joined,
                sum(node.alive for node in self.state.nodes.values()),
                window.now - self.statistics.started_at,
            )
        )

    def _costs(self, window: Window) -> list[report_pb2.CostLine]:
        """By tenant, model and task type, dearest first."""
        lines: dict[tuple[str, str, str], Cost] = {}
        money: dict[tuple[str, str, str], types_pb2.Money | None] = {}
        for (tenant, model, task_type, node_id), cost in window.sums.costs.items():
            key = (tenant, model, task_type)
            lines.setdefault(key, Cost()).add(cost)
            price = self._price(node_id, cost)
            money[key] = _add(money[key], price) if key in money else price
        dearest = heapq.nlargest(
            COSTS_MAX, lines.items(), key=lambda pair: (pair[1].slot_ns, pair[0])
        )
        return [_cost_line(key, line, money[key]) for key, line in dearest]

    def _price(self, node_id: str, cost: Cost) -> types_pb2.Money | None:
        """Of work on a node, or on one that is gone; None: its price is unknown."""
        price = self._price_per_hour(node_id)
        if price is None:
            return None
        micros = price.micros * cost.node_ns // _HOUR_NS
        return types_pb2.Money(currency=price.currency, micros=min(micros, _MICROS_MAX))

    def _price_per_hour(self, node_id: str) -> types_pb2.Money | None:
        node = self.state.nodes.get(node_id)
        view = self.nodes.views(node_id, node.epoch) if node is not None else None
        if view is None:
            return self._last_price(node_id)
        if view.descriptor is None or not view.descriptor.HasField("price_per_hour"):
            return None
        return view.descriptor.price_per_hour


def _of_autoscaler(state: State) -> Thresholds:
    """What the scaling rule calls long, and how far it may go."""
    rule, limits, usual = state.policies.autoscale, state.settings.autoscale, Thresholds()
    return Thresholds(
        queue=getattr(rule, "queue", usual.queue),
        wait=getattr(rule, "wait", usual.wait),
        max_nodes=limits.max_nodes if limits.enabled else 0,
    )


def _add(one: types_pb2.Money | None, other: types_pb2.Money | None) -> types_pb2.Money | None:
    """The sum; None where one is unknown or the currencies differ."""
    if one is None or other is None or one.currency != other.currency:
        return None
    micros = min(one.micros + other.micros, _MICROS_MAX)
    return types_pb2.Money(currency=one.currency, micros=micros)


def _cost_line(
    key: tuple[str, str, str], cost: Cost, money: types_pb2.Money | None
) -> report_pb2.CostLine:
    tenant, model, task_type = key
    line = report_pb2.CostLine(
        tenant=tenant,
        model=model,
        task_type=task_type,
        requests=cost.requests,
        slot_time=status.duration(cost.slot_ns),
        node_hours=cost.node_ns / _HOUR_NS,
        output_tokens=cost.output_tokens,
    )
    if money is not None:
        line.cost.CopyFrom(money)
    return line


def _written(totals: Totals) -> report_pb2.Totals:
    outcomes = totals.outcomes
    return report_pb2.Totals(
        received=totals.received,
        succeeded=outcomes[Outcome.SUCCEEDED],
        failed=outcomes[Outcome.FAILED],
        rejected=outcomes[Outcome.REJECTED],
        cancelled=outcomes[Outcome.CANCELLED],
        expired=outcomes[Outcome.EXPIRED],
        degraded=totals.degraded,
        failovers=totals.failovers,
        preemptions=totals.preemptions,
        batches=totals.batches,
        input_tokens=totals.input_tokens,
        output_tokens=totals.output_tokens,
        wasted_output_tokens=totals.wasted_output_tokens,
        late_results=totals.late_results,
    )
