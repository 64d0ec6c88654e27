"""How much may a pool retry, so that failure never multiplies its load?

A token bucket: `share` of a token for each first attempt, `floor` tokens a second, `burst` at most;
a retry or hedge takes one. Under total failure, over any T seconds with n first attempts,

    attempts <= (1 + share) * n + floor * T + burst.

A request that the bucket cannot pay for fails. What is stored can wait instead: job items are tried
again one by one, `floor` of them a second, beside what the bucket gives.

Deaths of nodes have a bucket of their own, as ordinary errors must not starve them. It holds at
least as much as the pool's nodes can have in flight: the crash of all of them at once is covered.

Nothing is done per request but counting first attempts (`Pool.firsts`): the bucket is filled when
somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.settings import FailoverSettings
from scheduler_service.core.types import SECOND, Duration, Instant

LEAST_PACE = 1.0  # job items tried again a second where the floor is lower


@dataclass(slots=True)
class RetryBudget:
    """One bucket of a pool."""

    tokens: float = 0.0
    filled_at: Instant = -1  # -1: not asked yet, so it is full
    firsts: int = 0  # first attempts that were counted in
    refused: int = 0  # retries that it did not pay for
    jobs_until: Instant = 0  # the latest try of a job item that waits for its turn

    def take(
        self, now: Instant, firsts: int, limits: FailoverSettings, *, covered: int = 0
    ) -> bool:
        """Pay for one retry. `firsts`: first attempts of the pool so far; `covered`: what it holds
        at least when full.
        """
        self._fill(now, firsts, limits, covered)
        if self.tokens < 1:
            self.refused += 1
            return False
        self.tokens -= 1
        return True

    def turn_of_job(self, now: Instant, limits: FailoverSettings) -> Duration:
        """How long a job item that was not paid for waits for its turn."""
        pace = int(SECOND / max(LEAST_PACE, limits.retry_floor))
        self.jobs_until = max(now, self.jobs_until) + pace
        return self.jobs_until - now

    def _fill(self, now: Instant, firsts: int, limits: FailoverSettings, covered: int) -> None:
        most = max(limits.retry_burst, covered)
        if self.filled_at < 0:
            self.tokens = most
        else:
            earned = limits.retry_share * (firsts - self.firsts)
            earned += limits.retry_floor * (now - self.filled_at) / SECOND
            self.tokens = min(most, self.tokens + earned)
        self.filled_at, self.firsts = now, firsts
