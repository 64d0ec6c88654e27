"""Which of the scored engines?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.core.types import Duration, Engine, Request


@dataclass(frozen=True, slots=True)
class Soonest:
    """The least estimate; ties by load, then by node and engine id."""

    def pick(self, scored: Sequence[tuple[Duration, Engine]], request: Request) -> Engine:
        """Of equals the least loaded."""
        best = min(
            scored,
            key=lambda s: (s[0], s[1].in_flight_inputs, s[1].node.node_id, s[1].engine_id),
        )
        return best[1]
