"""What do the last minutes add up to? The buckets of a window, added up once per report."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property

from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.state import Totals
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from scheduler_service.report import histogram
from scheduler_service.report.buckets import SUM_ROWS_MAX, Bucket
from scheduler_service.report.statistics import BLOCK_S, PoolSample, Sample, Statistics


class Window:
    """The last `length`, or as much of it as there is."""

    def __init__(self, statistics: Statistics, now: Instant, length: Duration) -> None:
        self.now = now
        self.length = min(length, statistics.memory)
        self._statistics = statistics
        self._since = now - self.length
        self._pool_samples: dict[str, list[PoolSample]] = {}

    @property
    def span_s(self) -> float:
        """Seconds that rates are over: the length, or the time since the start, at least one."""
        up = self.now - self._statistics.started_at
        return max(1.0, min(self.length, up) / SECOND)

    @cached_property
    def sums(self) -> Bucket:
        """All that happened, to the second."""
        whole = Bucket(rows_max=SUM_ROWS_MAX)
        started = self._statistics.started_at // SECOND
        first = max(self._since // SECOND, started)
        for part in self._statistics.parts(first, self.now // SECOND):
            whole.absorb(part)
        return whole

    @cached_property
    def samples(self) -> list[Sample]:
        """One per second, oldest first; beyond the usual window one per ten."""
        return [sample for _, sample in self.seconds()]

    def seconds(self) -> Iterator[tuple[int, Sample]]:
        """The samples with their seconds."""
        first = self._since // SECOND
        every = BLOCK_S if self.length > self._statistics.window else 1  # alike throughout
        for second, sample in self._statistics.samples.items():
            if second >= first and second % every == 0:
                yield second, sample

    @cached_property
    def totals(self) -> Totals:
        """What was added within the window, to the second."""
        base = Totals()
        for second, sample in self._statistics.samples.items():
            if second * SECOND > self._since:
                break
            base = sample.totals
        return _difference(self._statistics.totals(), base)

    @cached_property
    def spans_lost(self) -> int:
        """Spans that no collector will see, of those that ended between the samples."""
        samples = self.samples
        return samples[-1].spans_lost - samples[0].spans_lost if samples else 0

    @property
    def rejects(self) -> dict[str, int]:
        """Refusals by reason, most frequent first."""
        return dict(sorted(self.sums.rejects.items(), key=lambda pair: (-pair[1], pair[0])))

    def slowest(self) -> list[Request]:
        """Finished requests that took longest, slowest first."""
        every = self.sums.slowest
        return [request for _, _, request in heapq.nlargest(len(every), every)]

    def pool_samples(self, pool: str) -> list[PoolSample]:
        """One per second in which the pool existed, oldest first."""
        found = self._pool_samples.get(pool)
        if found is None:
            found = [sample.pools[pool] for sample in self.samples if pool in sample.pools]
            self._pool_samples[pool] = found
        return found

    def pools(self) -> Iterator[str]:
        """Pools of the last sample, by name."""
        if self.samples:
            yield from sorted(self.samples[-1].pools)

    def waits(self) -> histogram.Bars:
        """Times in the queue of all that were dispatched."""
        return histogram.merge(flow.waits for flow in self.sums.flows.values())


def _difference(one: Totals, other: Totals) -> Totals:
    whole = Totals(outcomes={o: one.outcomes[o] - other.outcomes[o] for o in Outcome})
    for each in fields(Totals):
        if each.name != "outcomes":
            setattr(whole, each.name, getattr(one, each.name) - getattr(other, each.name))
    return whole
