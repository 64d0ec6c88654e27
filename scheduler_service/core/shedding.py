"""Who is turned away while a pool stays overloaded? Those below a cursor, always the same ones.

After DAGOR (Zhou et al., "Overload control for scaling WeChat microservices", 2018): each request
has a level of 10 priorities times 128 places that its tenant gets by hash, anew every hour. A
window (a second, or 2,000 dispatches) in which even the shortest wait was above `target` was
overloaded: then a share fewer are admitted than in it, else a little more, and the cursor goes down
the window's histogram of levels from the top until so many fit. So a tenant's requests are all
taken or all refused for a while, and not every second one, which helps nobody who needs several.

Off unless the admission policy asks for it.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core.hashing import hash64
from scheduler_service.core.interfaces import Shedding
from scheduler_service.core.types import NEVER, PRIORITIES, SECOND, Duration, Instant, Request

PLACES: Final = 128  # in one priority
LEVELS: Final = PRIORITIES.stop * PLACES
SPARED: Final = 9  # this priority and above are never shed
DISPATCHES: Final = 2_000  # a window ends after so many, too
QUIET: Final = 10  # windows without anybody; then all is forgotten
HOUR: Final = 3_600 * SECOND


class Cursor:
    """Of one pool."""

    __slots__ = (
        "_admitted", "_arrived", "_dispatches", "_hour", "_least", "_places", "_seed", "_since",
        "level", "overloaded", "rule",
    )  # fmt: skip

    def __init__(self, rule: Shedding, seed: int) -> None:
        self.rule = rule
        self._seed = seed
        self.level = 0  # requests below it are turned away
        self.overloaded = False  # by the last window
        self._since: Instant = -NEVER
        self._arrived = [0] * LEVELS  # in this window
        self._admitted = 0
        self._dispatches = 0
        self._least: Duration = NEVER  # the shortest wait of a dispatch
        self._hour = -1
        self._places: dict[str, int] = {}  # of tenants, in this hour

    def dispatched(self, waited: Duration) -> None:
        """A request goes to a node after it waited for so long."""
        self._dispatches += 1
        if waited < self._least:
            self._least = waited

    def admits(self, request: Request, now: Instant) -> bool:
        """Whether it may enter, as far as overload is concerned."""
        over = now - self._since >= self.rule.window
        if over or self._dispatches >= DISPATCHES:
            self._next_window(now)
        level = request.priority * PLACES + self._place(request, now)
        self._arrived[level] += 1
        if level < self.level and request.priority < SPARED:
            return False
        self._admitted += 1
        return True

    def _place(self, request: Request, now: Instant) -> int:
        hour = now // HOUR
        if hour != self._hour or len(self._places) > 10_000:
            self._hour = hour
            self._places = {}
        tenant = request.tenant or request.user_id
        place = self._places.get(tenant)
        if place is None:
            place = self._places[tenant] = hash64(self._seed, tenant, hour, "shed") % PLACES
        return place

    def _next_window(self, now: Instant) -> None:
        if now - self._since >= QUIET * self.rule.window:
            self.overloaded, self.level = False, 0
        elif self._dispatches:
            self.overloaded = self._least > self.rule.target
        if self.overloaded or self.level:
            self._move(self._wanted())
        self._since = now
        self._arrived = [0] * LEVELS
        self._admitted = self._dispatches = 0
        self._least = NEVER

    def _wanted(self) -> int:
        """How many to admit in a window like the last one: one more or fewer at least."""
        count, rule = self._admitted, self.rule
        if self.overloaded:
            return max(1, min(count - 1, round(count * (1 - rule.fewer))))
        return max(count + 1, round(count * (1 + rule.more)))

    def _move(self, wanted: int) -> None:
        """To the level from which on `wanted` arrived: no more of them in an overload, else no
        fewer, so that it moves by one level at least.

        The highest level at which anybody came is admitted in any case: a tenant that is alone is
        for the queue's bounds to hold back, and somebody has to show that the overload is over.
        """
        seen = 0
        for level in range(LEVELS - 1, -1, -1):
            came = self._arrived[level]
            if self.overloaded and seen and came and seen + came > wanted:
                self.level = level + 1
                return
            seen += came
            if not self.overloaded and seen >= wanted:
                self.level = level
                return
        self.level = 0
