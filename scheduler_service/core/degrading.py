"""Is a pool overloaded, so that requests which permit it get a smaller model before they wait?

The policy says when that state begins and ends, from how long the expected wait was above or below
its limits. While it lasts, those who wait and permit it move on, the least urgent first, until the
rest is expected to wait no longer than where the state ends. Requests of priority 8 and more are
left alone: they are substituted for their own deadlines and waits only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_service.core.interfaces import PressureView
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant, Request

if TYPE_CHECKING:
    from scheduler_service.core.state import Pool, State

TICK: Final = 500 * MILLISECOND
SPARED: Final = 8  # this priority and above
MOVED_MAX: Final = 256  # at one tick


def watch(state: State, pool: Pool) -> None:
    """Requests wait: look at the pool from now on. For policies that relieve pools."""
    key = ("pressure", pool.model)
    if key not in state.timers:
        state.timers.set(key, state.now + TICK)


def expected_wait(pool: Pool, parallel: int) -> Duration:
    """Of a newcomer; the oldest's own wait while nothing was measured is not looked at."""
    if pool.drain.per_second:
        return int(pool.queue.interactive / pool.drain.per_second * SECOND)
    return pool.queue.interactive * pool.estimate.mean // parallel if parallel else 0


def overdue(state: State, pool: Pool) -> list[Request]:
    """Look at the pool; whom to degrade now."""
    enter, leave = state.policies.degrade.limits()
    parallel = sum(e.spec.slots for e in pool.usable)
    wait, overload = expected_wait(pool, parallel), pool.overload
    overload.above_since = _since(overload.above_since, wait > enter, state.now)
    overload.below_since = _since(overload.below_since, wait < leave, state.now)
    view = PressureView(
        wait,
        overload.degrading,
        max(0, state.now - overload.above_since),
        max(0, state.now - overload.below_since),
    )
    overload.degrading = state.policies.degrade.overloaded(view)
    if overload.degrading or pool.queue.interactive:
        state.timers.set(("pressure", pool.model), state.now + TICK)
    if not overload.degrading or wait <= leave:
        return []
    excess = pool.queue.interactive * (wait - leave) // wait
    return _least_urgent(pool, min(MOVED_MAX, excess))


def _since(since: Instant, holds: bool, now: Instant) -> Instant:
    return min(since, now) if holds else NEVER


def _least_urgent(pool: Pool, count: int) -> list[Request]:
    found: list[Request] = []
    for (request_class, priority), band in reversed(pool.queue.bands.items()):
        if request_class is not RequestClass.INTERACTIVE or priority >= SPARED:
            continue
        for request in band:
            if len(found) >= count:
                return found
            if request.degrade and not request.degraded:
                found.append(request)
    return found
