"""May this failed call be sent again, and when?

The scheduler owns the retries: only what it says may be sent again (`retry_after`), and what never
reached it (UNAVAILABLE without a reason), is sent again here. What it has given up after tries of
its own (ABORTED) never is. A budget keeps retries at a tenth of the calls, so that a client in
trouble does not double the trouble.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from batchyard.errors import BatchyardError

__all__ = ["OnRetry", "Retry", "RetryPolicy"]

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0
_BUDGET_SHARE = 0.1
_BUDGET_FLOOR = 10.0  # a client that has made few calls may still retry
_BUDGET_MAX = 100.0


@dataclass(slots=True, frozen=True)
class Retry:
    """What `on_retry` is told: `error` ended try number `attempt`, the next is in `delay_s`."""

    error: BatchyardError
    attempt: int
    delay_s: float
    request_id: str


OnRetry = Callable[[Retry], None]


class RetryPolicy:
    """Decides for all calls of a client; holds their common budget."""

    def __init__(self, retries: int) -> None:
        self.retries = retries
        self._tokens = _BUDGET_FLOOR
        self._random = random.Random(os.urandom(8))

    def call_began(self) -> None:
        """Each call earns a tenth of a retry."""
        if self._tokens < _BUDGET_MAX:
            self._tokens += _BUDGET_SHARE

    def delay_s(self, error: BatchyardError, attempt: int, time_left_s: float) -> float | None:
        """Seconds until the next try, or None: the error is final.

        `attempt` is the number of tries so far, from 1.
        """
        if attempt > self.retries or not _may_repeat(error):
            return None
        backoff_s = self.backoff_s(attempt)
        delay_s = backoff_s if error.retry_after is None else error.retry_after + backoff_s
        if delay_s >= time_left_s or self._tokens < 1:
            return None
        self._tokens -= 1
        return delay_s

    def backoff_s(self, attempt: int) -> float:
        """Full jitter: anything up to a bound that doubles."""
        bound_s: float = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** min(attempt - 1, 10))
        return self._random.uniform(0, bound_s)


def _may_repeat(error: BatchyardError) -> bool:
    if error.code == "ABORTED":
        return False
    return error.retry_after is not None or (error.code == "UNAVAILABLE" and not error.reason)
