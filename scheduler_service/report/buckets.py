"""What happened in a stretch of time? Sums by band, node and payer that can be added up.

A bucket is one second; ten of them are absorbed into a block once they are over, so that a report
over five minutes adds forty buckets and not three hundred. What callers choose freely (tenants,
task types) makes a bounded number of rows; the rest goes into one row without them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from scheduler_service.core.outcomes import Outcome, RequestClass
from scheduler_service.core.types import Duration, Request
from scheduler_service.report import histogram

ROWS_MAX: Final = 1_000  # of one second
SUM_ROWS_MAX: Final = 10_000  # of several
SLOWEST_MAX: Final = 20
SLOWEST_OLD_MAX: Final = 5  # of ten seconds that are beyond the usual window
OVERFLOW: Final = ""  # stands for the names that found no room

FlowKey = tuple[str, RequestClass, int]  # pool, class, priority
CostKey = tuple[str, str, str, str]  # tenant, model, task type, node
EndKey = tuple[Outcome | None, str, int, str]  # outcome, model, priority, task type
DegradeKey = tuple[str, str, str]  # from, to, reason
Key = TypeVar("Key")
Row = TypeVar("Row")


@dataclass(slots=True)
class Flow:
    """Through one band of a queue."""

    arrivals: int = 0
    departures: int = 0
    waits: histogram.Bars = field(default_factory=dict)
    waited: Duration = 0  # sum of the waits

    def add(self, other: Flow) -> None:
        """Field by field."""
        self.arrivals += other.arrivals
        self.departures += other.departures
        self.waited += other.waited
        histogram.merge_into(self.waits, other.waits)


@dataclass(slots=True)
class Lengths:
    """Of times, or of other whole numbers."""

    bars: histogram.Bars = field(default_factory=dict)
    total: int = 0

    def add(self, other: Lengths) -> None:
        """Field by field."""
        self.total += other.total
        histogram.merge_into(self.bars, other.bars)


@dataclass(slots=True)
class Batches:
    """That left for the nodes of a pool."""

    sizes: dict[int, int] = field(default_factory=dict)  # batches by number of requests
    waits: Lengths = field(default_factory=Lengths)  # of the oldest member of each

    def add(self, other: Batches) -> None:
        """Field by field."""
        histogram.merge_into(self.sizes, other.sizes)
        self.waits.add(other.waits)


@dataclass(slots=True)
class NodeCount:
    """Of one node. Callers' faults, refusals and cancels are no attempts of its own doing."""

    succeeded: int = 0
    failed: int = 0
    latency: dict[str, list[int]] = field(default_factory=dict)  # by model: [number, sum in ns]
    in_flight: int = 0  # inputs, summed over the samples; as the next
    slots: int = 0

    @property
    def ended(self) -> int:
        """Attempts that tell of the node."""
        return self.succeeded + self.failed

    @property
    def failure_rate(self) -> float | None:
        """0..1; None: nothing ended."""
        return self.failed / self.ended if self.ended else None

    @property
    def avg_latency(self) -> Duration | None:
        """Dispatch to result, of those that succeeded; None: there were none."""
        number = sum(n for n, _ in self.latency.values())
        return sum(total for _, total in self.latency.values()) // number if number else None

    @property
    def utilization(self) -> float | None:
        """Share of the slot time that was used, 0..1; None: no sample."""
        return min(1.0, self.in_flight / self.slots) if self.slots else None


@dataclass(slots=True)
class Cost:
    """What work held."""

    requests: int = 0
    slot_ns: int = 0
    node_ns: int = 0  # slot time by the node's slots
    output_tokens: int = 0

    def add(self, other: Cost) -> None:
        """Field by field."""
        self.requests += other.requests
        self.slot_ns += other.slot_ns
        self.node_ns += other.node_ns
        self.output_tokens += other.output_tokens


@dataclass(slots=True)
class Bucket:
    """One second, or the sum of several."""

    rows_max: int = ROWS_MAX
    flows: dict[FlowKey, Flow] = field(default_factory=dict)
    nodes: dict[str, NodeCount] = field(default_factory=dict)
    costs: dict[CostKey, Cost] = field(default_factory=dict)
    fills: dict[str, list[int]] = field(default_factory=dict)  # static: [batches, inputs, room]
    rejects: dict[str, int] = field(default_factory=dict)  # by reason
    lost: dict[str, None] = field(default_factory=dict)  # nodes
    slowest: list[tuple[Duration, int, Request]] = field(default_factory=list)  # a heap, by rid
    ends: dict[EndKey, int] = field(default_factory=dict)
    degrades: dict[DegradeKey, int] = field(default_factory=dict)
    batches: dict[str, Batches] = field(default_factory=dict)  # by pool; as the next
    durations: dict[str, Lengths] = field(default_factory=dict)  # receipt to end, of successes
    first_outputs: dict[str, Lengths] = field(default_factory=dict)  # receipt to first output
    token_times: dict[str, Lengths] = field(default_factory=dict)  # of streams, mean of each
    tenants: dict[str, histogram.Bars] = field(default_factory=dict)  # waits of the dispatched

    def flow(self, pool: str, request_class: RequestClass, priority: int) -> Flow:
        """The row of a band."""
        key = (pool, request_class, priority)
        row = self.flows.get(key)
        if row is None:
            row = self._row(self.flows, key, (OVERFLOW, request_class, priority), Flow)
        return row

    def node(self, node_id: str) -> NodeCount:
        """The row of a node."""
        row = self.nodes.get(node_id)
        return self._row(self.nodes, node_id, OVERFLOW, NodeCount) if row is None else row

    def cost(self, tenant: str, model: str, task_type: str, node_id: str) -> Cost:
        """The row of a payer on a node."""
        key = (tenant, model, task_type, node_id)
        row = self.costs.get(key)
        if row is None:
            row = self._row(self.costs, key, (OVERFLOW, model, OVERFLOW, node_id), Cost)
        return row

    def latency(self, node: NodeCount, model: str) -> list[int]:
        """[number, sum in ns] of a model on a node."""
        row = node.latency.get(model)
        return self._row(node.latency, model, OVERFLOW, _pair) if row is None else row

    def batches_of(self, pool: str) -> Batches:
        """The row of a pool; as the next two."""
        return self._row(self.batches, pool, OVERFLOW, Batches)

    def durations_of(self, pool: str) -> Lengths:
        """Of its requests that succeeded."""
        row = self.durations.get(pool)
        return self._row(self.durations, pool, OVERFLOW, Lengths) if row is None else row

    def first_outputs_of(self, pool: str) -> Lengths:
        """Of its requests that have streamed."""
        return self._row(self.first_outputs, pool, OVERFLOW, Lengths)

    def token_times_of(self, pool: str) -> Lengths:
        """Of its requests that have streamed, from end to end."""
        return self._row(self.token_times, pool, OVERFLOW, Lengths)

    def tenant(self, tenant: str) -> histogram.Bars:
        """The row of a tenant."""
        return self._row(self.tenants, tenant, OVERFLOW, dict)

    def count_ends(self, key: EndKey, number: int = 1) -> None:
        """Requests ended."""
        ends = self.ends
        if key not in ends and len(ends) >= self.rows_max:
            key = (key[0], OVERFLOW, key[2], OVERFLOW)
        ends[key] = ends.get(key, 0) + number

    def count_degrades(self, key: DegradeKey, number: int = 1) -> None:
        """Requests went to another model."""
        if key not in self.degrades and len(self.degrades) >= self.rows_max:
            key = (OVERFLOW, OVERFLOW, key[2])
        self.degrades[key] = self.degrades.get(key, 0) + number

    def fill(self, pool: str) -> list[int]:
        """[batches, inputs, room] of a pool."""
        return self._row(self.fills, pool, OVERFLOW, _triple)

    def note_slow(self, took: Duration, request: Request) -> None:
        """Keep it if it is among the slowest."""
        slowest = self.slowest
        if len(slowest) < SLOWEST_MAX:
            heapq.heappush(slowest, (took, request.rid, request))
        elif took > slowest[0][0]:
            heapq.heapreplace(slowest, (took, request.rid, request))

    def thin_out(self) -> None:
        """Keep fewer of the slowest: requests are large, and an hour has many blocks."""
        if len(self.slowest) > SLOWEST_OLD_MAX:
            self.slowest = heapq.nlargest(SLOWEST_OLD_MAX, self.slowest)
            heapq.heapify(self.slowest)

    def _row(self, rows: dict[Key, Row], key: Key, rest: Key, make: Callable[[], Row]) -> Row:
        """The row of the key, or the one of those that no longer find room."""
        row = rows.get(key)
        if row is None:
            if len(rows) >= self.rows_max:
                key = rest
                row = rows.get(key)
            if row is None:
                row = rows[key] = make()
        return row

    def absorb(self, other: Bucket) -> None:
        """Add all that is in the other one."""
        self.absorb_counts(other)
        for node_id, count in other.nodes.items():
            self._absorb_node(self.node(node_id), count)
        for cost_key, cost in other.costs.items():
            self.cost(*cost_key).add(cost)
        for pool, parts in other.fills.items():
            _add_parts(self.fill(pool), parts)
        for tenant, waits in other.tenants.items():
            histogram.merge_into(self.tenant(tenant), waits)
        self.lost |= other.lost
        for took, _, request in other.slowest:
            self.note_slow(took, request)

    def absorb_counts(self, other: Bucket) -> None:
        """Add what tells of requests, neither nodes nor payers."""
        for flow_key, flow in other.flows.items():
            self.flow(*flow_key).add(flow)
        for end_key, number in other.ends.items():
            self.count_ends(end_key, number)
        for degrade_key, number in other.degrades.items():
            self.count_degrades(degrade_key, number)
        for reason, number in other.rejects.items():
            self.rejects[reason] = self.rejects.get(reason, 0) + number
        for pool, batches in other.batches.items():
            self.batches_of(pool).add(batches)
        for pool, lengths in other.durations.items():
            self.durations_of(pool).add(lengths)
        for pool, lengths in other.first_outputs.items():
            self.first_outputs_of(pool).add(lengths)
        for pool, lengths in other.token_times.items():
            self.token_times_of(pool).add(lengths)

    def _absorb_node(self, mine: NodeCount, other: NodeCount) -> None:
        mine.succeeded += other.succeeded
        mine.failed += other.failed
        mine.in_flight += other.in_flight
        mine.slots += other.slots
        for model, parts in other.latency.items():
            _add_parts(self.latency(mine, model), parts)


def _add_parts(into: list[int], parts: list[Any]) -> None:
    for index, part in enumerate(parts):
        into[index] += part


def _pair() -> list[int]:
    return [0, 0]


def _triple() -> list[int]:
    return [0, 0, 0]
