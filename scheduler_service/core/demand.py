"""How much work comes to a pool? In Erlangs: seconds of slots that are asked for each second.

The refined scaling law needs the last minute's demand, the highest such value of the last five
minutes, and the largest growth within a minute. Kept only where scaling is on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import NEVER, SECOND, Duration, Instant, Request

if TYPE_CHECKING:
    from scheduler_service.core.state import Pool, State

TICK: Final = "autoscale"  # the timer of scaling
WINDOW_S: Final = 60
MEMORY: Final = 300 * SECOND
ASSUMED_SERVICE: Final = 1 * SECOND  # of one request, while nothing is known


@dataclass(slots=True)
class Demand:
    """Predicted slot time of a pool's interactive arrivals."""

    seconds: deque[list[int]] = field(default_factory=deque)  # [second, work in ns], oldest first
    total: Duration = 0  # of them
    history: deque[tuple[Instant, float]] = field(default_factory=deque)  # Erlangs at each tick
    growth: float = 0.0  # the largest within a minute, Erlangs
    watched_since: Instant = NEVER  # the first look
    slots_per_node: int = 1  # as last seen
    cold_start: Duration = 0  # from asking to joining, as measured; 0: not yet

    def add(self, now: Instant, work: Duration) -> None:
        """Work came."""
        second = now // SECOND
        if self.seconds and self.seconds[-1][0] == second:
            self.seconds[-1][1] += work
        else:
            self._forget(second)
            self.seconds.append([second, work])
        self.total += work

    def erlangs(self, now: Instant) -> float:
        """Over the last minute."""
        self._forget(now // SECOND)
        return self.total / (WINDOW_S * SECOND)

    def _forget(self, second: int) -> None:
        while self.seconds and self.seconds[0][0] <= second - WINDOW_S:
            self.total -= self.seconds.popleft()[1]

    def look(self, now: Instant) -> float:
        """The present value, which is remembered."""
        value = self.erlangs(now)
        self.watched_since = min(self.watched_since, now)
        history = self.history
        while history and history[0][0] <= now - MEMORY:
            history.popleft()
        history.append((now, value))
        past = 0.0
        for at, was in reversed(history):
            if at <= now - WINDOW_S * SECOND:
                past = was
                break
        self.growth = max(self.growth, value - past)
        return value

    def peak(self) -> float:
        """The highest value of the last five minutes."""
        return max((value for _, value in self.history), default=0.0)

    def note_start(self, took: Duration) -> None:
        """A node that was asked for joined after so long; the average follows by half."""
        self.cold_start = (self.cold_start + took) // 2 if self.cold_start else took


def note(state: State, request: Request) -> None:
    """A request was admitted, and scaling is on. The first of a pool without nodes is seen to at
    once.
    """
    if request.request_class is not RequestClass.INTERACTIVE:
        return
    pool = state.pools[request.served_model]
    pool.demand.add(state.now, service_of(pool, request.output_tokens) * request.inputs)
    if not pool.live and pool.scale.desired == 0 and pool.scale.retry_at <= state.now:
        state.timers.set(TICK, state.now)


def service_of(pool: Pool, output_tokens: int = 0) -> Duration:
    """Predicted slot time of one request."""
    if pool.estimate.mean:
        return pool.estimate.expect(output_tokens)
    stated = (e.models[pool.model].configured_service for e in pool.engines)
    return next(filter(None, stated), ASSUMED_SERVICE)


def note_joined(pool: Pool, now: Instant, start_timeout: Duration) -> None:
    """A node of the pool that an autoscaler started has joined: how long did that take?

    It is taken for the one that was asked for first: while others follow, the last time that one
    was asked for says nothing of this one.
    """
    orders = pool.scale.orders
    while orders and now - orders[0] > start_timeout:
        orders.popleft()
    if orders:
        pool.demand.note_start(now - orders.popleft())


def advised_spare(pool: Pool, cold_start: Duration) -> int:
    """Nodes to keep beyond the need, so that the largest growth seen is met while nodes start."""
    if cold_start <= WINDOW_S * SECOND:
        return 0
    nodes = pool.demand.growth / pool.demand.slots_per_node
    return -int(-nodes * cold_start // (WINDOW_S * SECOND))
