"""What do the last minutes add up to? The buckets of a window, summed once per report."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property

from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.state import Totals
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from scheduler_service.report import histogram
from scheduler_service.report.statistics import (
    SLOWEST_MAX,
    Cost,
    CostKey,
    Flow,
    FlowKey,
    PoolSample,
    Sample,
    Statistics,
)


@dataclass(slots=True)
class NodeFigures:
    """One node within the window."""

    succeeded: int = 0
    failed: int = 0
    latency: dict[str, list[int]] = field(default_factory=dict)  # by model: [number, sum in ns]
    in_flight: int = 0  # summed over the samples, as the next
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


class Window:
    """The last `length`, or as much of it as there is."""

    def __init__(self, statistics: Statistics, now: Instant, length: Duration) -> None:
        self.now = now
        self.length = min(length, statistics.window)
        self._statistics = statistics
        self._since = now - self.length
        self._buckets = [b for b in statistics.buckets if (b.second + 1) * SECOND > self._since]

    @property
    def span_s(self) -> float:
        """Seconds that rates are over: the length, or the time since the start, at least one."""
        up = self.now - self._statistics.started_at
        return max(1.0, min(self.length, up) / SECOND)

    @cached_property
    def samples(self) -> list[Sample]:
        """One per second, oldest first."""
        return [bucket.sample for bucket in self._buckets if bucket.sample is not None]

    @cached_property
    def totals(self) -> Totals:
        """What was added within the window, to the second."""
        return _difference(self._statistics.totals(), self._base())

    def _base(self) -> Totals:
        """The totals where the window begins."""
        base = Totals()
        for bucket in self._statistics.buckets:
            if bucket.second * SECOND > self._since:
                break
            if bucket.sample is not None:
                base = bucket.sample.totals
        return base

    @cached_property
    def nodes(self) -> dict[str, NodeFigures]:
        """By node id."""
        figures: dict[str, NodeFigures] = {}
        for bucket in self._buckets:
            for node_id, count in bucket.nodes.items():
                node = figures.setdefault(node_id, NodeFigures())
                node.succeeded += count.succeeded
                node.failed += count.failed
                for model, (number, total) in count.latency.items():
                    known = node.latency.setdefault(model, [0, 0])
                    known[0] += number
                    known[1] += total
        for sample in self.samples:
            for node_id, (in_flight, slots) in sample.nodes.items():
                node = figures.setdefault(node_id, NodeFigures())
                node.in_flight += in_flight
                node.slots += slots
        return figures

    @cached_property
    def flows(self) -> dict[FlowKey, Flow]:
        """By pool, class and priority."""
        whole: dict[FlowKey, Flow] = {}
        for bucket in self._buckets:
            for key, part in bucket.flows.items():
                flow = whole.setdefault(key, Flow())
                flow.arrivals += part.arrivals
                flow.departures += part.departures
                flow.waits = histogram.merge((flow.waits, part.waits))
        return whole

    @cached_property
    def costs(self) -> dict[CostKey, Cost]:
        """By tenant, model, task type and node."""
        whole: dict[CostKey, Cost] = {}
        for bucket in self._buckets:
            for key, part in bucket.costs.items():
                cost = whole.setdefault(key, Cost())
                for each in fields(Cost):
                    setattr(cost, each.name, getattr(cost, each.name) + getattr(part, each.name))
        return whole

    @cached_property
    def rejects(self) -> dict[str, int]:
        """Refusals by reason, most frequent first."""
        whole: dict[str, int] = {}
        for bucket in self._buckets:
            for reason, count in bucket.rejects.items():
                whole[reason] = whole.get(reason, 0) + count
        return dict(sorted(whole.items(), key=lambda pair: (-pair[1], pair[0])))

    @cached_property
    def lost(self) -> list[str]:
        """Nodes that were lost, each once, by id."""
        return sorted({node_id for bucket in self._buckets for node_id in bucket.lost})

    @cached_property
    def fills(self) -> dict[str, list[int]]:
        """Static batches by pool: [batches, inputs, room]."""
        whole: dict[str, list[int]] = {}
        for bucket in self._buckets:
            for pool, part in bucket.fills.items():
                known = whole.setdefault(pool, [0, 0, 0])
                for index, count in enumerate(part):
                    known[index] += count
        return whole

    def slowest(self) -> list[Request]:
        """Finished requests that took longest, slowest first."""
        every = (entry for bucket in self._buckets for entry in bucket.slowest)
        return [request for _, _, request in heapq.nlargest(SLOWEST_MAX, every)]

    def pool_samples(self, pool: str) -> list[PoolSample]:
        """One per second in which the pool existed, oldest first."""
        return [sample.pools[pool] for sample in self.samples if pool in sample.pools]

    def pools(self) -> Iterator[str]:
        """Pools of the last sample, by name."""
        if self.samples:
            yield from sorted(self.samples[-1].pools)

    def waits(self, pool: str | None = None) -> histogram.Bars:
        """Times in the queue of those dispatched."""
        return histogram.merge(f.waits for (p, _, _), f in self.flows.items() if pool in (None, p))


def _difference(one: Totals, other: Totals) -> Totals:
    whole = Totals(outcomes={o: one.outcomes[o] - other.outcomes[o] for o in Outcome})
    for each in fields(Totals):
        if each.name != "outcomes":
            setattr(whole, each.name, getattr(one, each.name) - getattr(other, each.name))
    return whole
