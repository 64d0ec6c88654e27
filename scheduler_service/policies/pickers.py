"""Which of the scored engines?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from scheduler_service.core.types import Duration, Engine, Request


@dataclass(frozen=True, slots=True)
class Soonest:
    """The least estimate; ties by load, then by node and engine id."""

    def pick(self, scored: Sequence[tuple[Duration, Engine]], request: Request) -> Engine:
        """Of equals the least loaded."""
        least = min(scored, key=itemgetter(0))[0]
        best = [engine for estimate, engine in scored if estimate == least]
        if len(best) == 1:
            return best[0]
        return min(best, key=lambda e: (e.in_flight_inputs, e.node.node_id, e.engine_id))
