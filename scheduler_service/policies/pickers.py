"""Which of the scored engines?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from scheduler_service.core.hashing import hash64
from scheduler_service.core.interfaces import LoadSpread
from scheduler_service.core.types import Duration, Engine, Request


@dataclass(frozen=True, slots=True)
class Soonest:
    """The least estimate; ties by load, then by node and engine id."""

    def pick(
        self, scored: Sequence[tuple[Duration, Engine]], request: Request, spread: LoadSpread
    ) -> Engine:
        """Of equals the least loaded."""
        least = min(scored, key=itemgetter(0))[0]
        best = [engine for estimate, engine in scored if estimate == least]
        if len(best) == 1:
            return best[0]
        return min(best, key=lambda e: (e.in_flight_inputs, e.node.node_id, e.engine_id))


@dataclass(frozen=True, slots=True)
class HotCold:
    """The least estimate among the cold ones; where all are hot, the least loaded.

    Hot is an engine whose load is above the `quantile` of the pool's (as Prequal, NSDI 2024, by
    requests in flight): estimates of a node that others load too, or that has turned slow, come
    late, and the tail of the loads shows it sooner. Ties by hash, so that equal nodes get equal
    shares.
    """

    quantile: float = 0.84
    seed: int = 0

    def pick(
        self, scored: Sequence[tuple[Duration, Engine]], request: Request, spread: LoadSpread
    ) -> Engine:
        """Of equals one by hash."""
        limit = spread.quantile(self.quantile) if spread.loads else 0.0
        cold = [(est, e) for est, e in scored if e.in_flight_inputs <= limit * e.spec.slots]
        if cold:
            least = min(cold, key=itemgetter(0))[0]
            best = [engine for est, engine in cold if est == least]
        else:
            loads = [(e.in_flight_inputs / e.spec.slots, e) for _, e in scored]
            low = min(loads, key=itemgetter(0))[0]
            best = [engine for load, engine in loads if load == low]
        if len(best) == 1:
            return best[0]
        subject = (request.rid, len(request.attempts), "pick")
        best.sort(key=lambda e: (e.node.node_id, e.engine_id))
        return best[hash64(self.seed, *subject) % len(best)]
