"""How hard is a pool pressed: how fast does it drain, who waits, who would go last?

Admission and degrade see these through `State.load_of`. All of it is O(1) per request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler_service.core.types import NEVER, PRIORITIES, SECOND, Duration, Instant, Request

MEMORY_S: Final = 10.0  # of the drain rate
STALE: Final = 5 * SECOND  # a completion so long after the one before tells no rate


@dataclass(slots=True)
class DrainRate:
    """Requests that end per second while others wait, an average over ten seconds."""

    per_second: float = 0.0  # 0: not known
    _count: int = 0
    _since: Instant = 0
    _busy: bool = True

    def add(self, now: Instant, busy: bool) -> None:
        """One ended; `busy`: others wait."""
        self._busy = self._busy and busy
        passed = now - self._since
        if passed >= SECOND:
            if self._busy and passed < STALE:
                seen = (self._count + 1) * SECOND / passed
                weight = passed / (passed + MEMORY_S * SECOND) if self.per_second else 1.0
                self.per_second += (seen - self.per_second) * weight
            self._count, self._since, self._busy = 0, now, busy
        else:
            self._count += 1

    def retry_after(self, waiting: int, least_s: float) -> Duration:
        """When so many will have ended, `least_s`..60 s; 1 s where the rate is not known."""
        expected_s = waiting / self.per_second if self.per_second else 1.0
        return int(min(60.0, max(least_s, expected_s)) * SECOND)


@dataclass(slots=True)
class Waiting:
    """The interactive requests of a pool by tenant, and the youngest of each priority."""

    tenants: dict[str, int] = field(default_factory=dict)  # how many wait
    _youngest: list[list[Request]] = field(
        default_factory=lambda: [[] for _ in range(PRIORITIES.stop)]
    )
    _pushed: int = 0
    _compact_at: int = 1_024

    def enter(self, request: Request, returning: bool) -> None:
        """It waits. One that came back is not young again."""
        tenants, tenant = self.tenants, request.tenant
        tenants[tenant] = tenants.get(tenant, 0) + 1
        if not returning:
            stack = self._youngest[request.priority]
            stack.append(request)
            self._pushed += 1
            if self._pushed >= self._compact_at:
                self._compact()

    def _compact(self) -> None:
        """Forget those that left, once as many came as were kept the last time."""
        self._youngest = [[r for r in stack if r.in_queue] for stack in self._youngest]
        self._pushed = 0
        self._compact_at = max(1_024, sum(map(len, self._youngest)))

    def leave(self, request: Request) -> None:
        """It waits no more."""
        left = self.tenants[request.tenant] - 1
        if left:
            self.tenants[request.tenant] = left
        else:
            del self.tenants[request.tenant]

    def last(self, model: str) -> Request | None:
        """The youngest of the least urgent: it would go last."""
        for stack in self._youngest:
            while stack and not (stack[-1].in_queue and stack[-1].served_model == model):
                stack.pop()
            if stack:
                return stack[-1]
        return None


@dataclass(slots=True)
class Overload:
    """Whether a pool is in the state in which it degrades who permits that."""

    degrading: bool = False
    above_since: Instant = NEVER  # the pressure is above the limit to enter; NEVER: it is not
    below_since: Instant = NEVER  # likewise below the limit to leave
