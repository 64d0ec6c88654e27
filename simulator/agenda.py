"""What happens next in the world? A heap of (instant, sequence, action, argument).

Of equal instants the one that was entered first comes first, so a run is a function of its inputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from scheduler_service.core.types import NEVER, Instant

Action = Callable[[Any], None]


class Agenda:
    """Actions by instant. None is ever taken back: one not wanted any more does nothing."""

    __slots__ = ("_heap", "_sequence", "now")

    def __init__(self, now: Instant = 0) -> None:
        self.now = now
        self._heap: list[tuple[Instant, int, Action, Any]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, instant: Instant, action: Action, argument: Any = None) -> None:
        """Call `action(argument)` at `instant`, which is not in the past."""
        assert instant >= self.now, f"{instant} is past, it is {self.now}"
        self._sequence += 1
        heapq.heappush(self._heap, (instant, self._sequence, action, argument))

    def next(self) -> Instant:
        """When the next action is due; NEVER: there is none."""
        return self._heap[0][0] if self._heap else NEVER

    def run_instant(self, instant: Instant) -> None:
        """Move the clock to `instant` and do all that is due then, in order."""
        self.now = instant
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= instant:
            _, _, action, argument = pop(heap)
            action(argument)
