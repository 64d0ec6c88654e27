"""When must the core be woken? A wheel of 5 ms buckets; the only place that compares instants.

Adding and cancelling cost a fraction of a microsecond whatever the number of timers. Cancelled
timers leave at most one number per bucket behind (a heap with lazy deletion held 0.9 million dead
entries at 30,000 requests a second). A timer fires never early and at most one bucket late.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from scheduler_service.core.types import MILLISECOND, NEVER, Instant

BUCKET = 5 * MILLISECOND


class TimerWheel:
    """Timers by key; a key has at most one."""

    __slots__ = ("_buckets", "_order", "_where")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Hashable, None] | None] = {}  # None: emptied by cancels
        self._order: list[int] = []  # heap of the numbers in `_buckets`, each once
        self._where: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._where

    def set(self, key: Hashable, at: Instant) -> None:
        """Fire `key` at `at`; replaces its former time. NEVER cancels."""
        if key in self._where:
            self.cancel(key)
        if at >= NEVER:
            return
        number = -(-at // BUCKET)  # rounded up: never early
        bucket = self._buckets.get(number)
        if bucket is None:
            if number not in self._buckets:
                heapq.heappush(self._order, number)
            bucket = self._buckets[number] = {}
        bucket[key] = None
        self._where[key] = number

    def cancel(self, key: Hashable) -> None:
        """Forget `key`; unknown keys are ignored."""
        number = self._where.pop(key, None)
        if number is not None:
            bucket = self._buckets[number]
            assert bucket is not None
            del bucket[key]
            if not bucket:
                self._buckets[number] = None

    def due(self, now: Instant) -> list[Hashable]:
        """Take out and return all keys whose time has come, bucket after bucket."""
        keys: list[Hashable] = []
        while self._order and self._order[0] * BUCKET <= now:
            for key in self._buckets.pop(heapq.heappop(self._order)) or ():
                del self._where[key]
                keys.append(key)
        return keys

    def next(self) -> Instant | None:
        """When to look again; None: no timer is set."""
        while self._order and self._buckets[self._order[0]] is None:
            del self._buckets[heapq.heappop(self._order)]
        return self._order[0] * BUCKET if self._order else None
