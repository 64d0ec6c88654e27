"""Which calls have had no answer in their time? One timer for all calls of a client.

A wheel of 50 ms buckets: a call goes into the bucket of its deadline and leaves it when it is
settled, each in constant time. Only the earliest bucket has a timer, so ten thousand calls with
deadlines cost one.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable

from batchyard.calls import Call

__all__ = ["DeadlineWheel"]

_BUCKET_S = 0.05


class DeadlineWheel:
    """Calls `expire(call)` once for each call that is still here at its time, at most 50 ms late.

    >>> wheel.add(call, when=loop.time() + 2)  # doctest: +SKIP
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[Call], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._buckets: dict[int, dict[Call, None]] = {}
        self._order: list[int] = []  # heap of the keys of `_buckets`
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = math.inf

    def add(self, call: Call, when: float) -> int:
        """Watches `call` until `when` (loop time). The key returned is for `remove`."""
        key = math.ceil(when / _BUCKET_S)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = {}
            heapq.heappush(self._order, key)
        bucket[call] = None
        if key < self._armed_for:
            self._arm()
        return key

    def remove(self, call: Call, key: int) -> None:
        """Forgets `call`. An empty bucket stays until its time; there are at most 20 a second."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.pop(call, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._buckets.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = math.inf
        if self._order:
            self._armed_for = self._order[0]
            self._timer = self._loop.call_at(self._order[0] * _BUCKET_S, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        expired: list[Call] = []
        while self._order and self._order[0] * _BUCKET_S <= now:
            expired.extend(self._buckets.pop(heapq.heappop(self._order)))
        self._timer = None
        self._arm()
        for call in expired:
            self._expire(call)
