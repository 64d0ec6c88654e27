"""Try again, when, or give up?"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_service.core.attribution import effects_of
from scheduler_service.core.interfaces import GiveUp, RetryAt
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.settings import FailoverSettings
from scheduler_service.core.types import Attempt, Duration, Instant
from scheduler_service.policies.hashing import hash64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Up to `max_attempts`. A lost or frozen node's work moves at once; an engine's error waits a
    random part of base * 2^(tries - 1), at most `max` (full jitter, by hash: the same seed, the
    same delay).
    """

    settings: FailoverSettings = field(default_factory=FailoverSettings)
    seed: int = 0

    def decide(self, attempt: Attempt, reason: Reason, now: Instant) -> RetryAt | GiveUp:
        """NODE_LOST or the engine's own reason where only one attempt was allowed."""
        request = attempt.request
        if request.charged >= request.max_attempts:
            return self._give_up(attempt, reason)
        if effects_of(attempt).at_once:
            return RetryAt(now)
        return RetryAt(now + self._delay(attempt))

    def _delay(self, attempt: Attempt) -> Duration:
        request = attempt.request
        ceiling = min(
            self.settings.backoff_max,
            self.settings.backoff_base << min(20, request.charged - 1),
        )
        return ceiling * (hash64(self.seed, request.rid, attempt.number, "retry") % 1024) // 1024

    def _give_up(self, attempt: Attempt, reason: Reason) -> GiveUp:
        request = attempt.request
        if request.max_attempts == 1 and reason is Reason.NODE_LOST:
            return GiveUp(reason, "its node was lost, and it allows no second attempt")
        why = f": {attempt.message}" if attempt.message else ""
        return GiveUp(
            Reason.ATTEMPTS_EXHAUSTED,
            f"all {request.charged} attempts failed, the last with {reason.name}{why}",
        )
