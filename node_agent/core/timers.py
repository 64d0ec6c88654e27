"""Which instants has the core still to be woken at?

A heap: an agent holds hundreds of deadlines, not millions. An entry whose item is gone dies when it
comes up, and is swept out when dead entries outnumber live ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Container


class Timers:
    """Instants by dispatch id. An id may have several."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._sweep_at = 64

    def add(self, at_ns: int, dispatch_id: int) -> None:
        """Wake at `at_ns` for this id."""
        heapq.heappush(self._heap, (at_ns, dispatch_id))

    def due(self, now_ns: int) -> list[int]:
        """Take the ids whose instant has come, earliest first."""
        ids: list[int] = []
        while self._heap and self._heap[0][0] <= now_ns:
            ids.append(heapq.heappop(self._heap)[1])
        return ids

    def next(self) -> int | None:
        """The earliest instant."""
        return self._heap[0][0] if self._heap else None

    def sweep(self, live: Container[int]) -> None:
        """Drop entries of ids that are not live, when there are many."""
        if len(self._heap) < self._sweep_at:
            return
        self._heap = [entry for entry in self._heap if entry[1] in live]
        heapq.heapify(self._heap)
        self._sweep_at = max(64, 2 * len(self._heap))
