"""How many nodes should the pool have?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scheduler_service.core.interfaces import ScalePlan, ScaleView
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant


def pressure(view: ScaleView, queue: int, wait: Duration) -> str:
    """Why the pool is too slow by what waits in it; empty: it is not."""
    if view.waiting >= queue:
        return f"{view.waiting} requests wait (threshold {queue})"
    if view.waiting and view.oldest_wait > wait:
        waited, limit = view.oldest_wait // MILLISECOND, wait // MILLISECOND
        return f"the oldest waits {waited} ms (threshold {limit} ms)"
    return ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The plain rule: one more when many wait, or one waits long; one less after idling.

    Out: `queue` or more wait, or the oldest waits longer than `wait`, at most once per
    `cooldown_out`; nodes that are starting count. In: nothing waits or runs for `idle`, and no step
    either way within `cooldown_in`. Below `min_nodes` it fills up at once.
    """

    queue: int = 5
    wait: Duration = 3 * SECOND
    cooldown_out: Duration = 10 * SECOND
    idle: Duration = 60 * SECOND
    cooldown_in: Duration = 10 * SECOND

    def plan(self, view: ScaleView, now: Instant) -> ScalePlan | None:
        """One step, or None."""
        current = view.ready + view.starting
        if current < view.min_nodes:
            return ScalePlan(view.min_nodes, f"below the minimum of {view.min_nodes}")
        why = pressure(view, self.queue, self.wait)
        if why:
            cool = now - view.last_out_at >= self.cooldown_out
            if cool and current < view.max_nodes:
                return ScalePlan(current + 1, why)
            return None
        quiet = view.idle_since < NEVER and now - view.idle_since >= self.idle
        steady = now - max(view.last_in_at, view.last_out_at) >= self.cooldown_in
        if quiet and steady and current > view.min_nodes:
            return ScalePlan(current - 1, f"idle for {(now - view.idle_since) // SECOND} s")
        return None


@dataclass(frozen=True, slots=True)
class Law:
    """As many as the measured demand needs with square-root staffing, and more while many wait.

    R is the slot time that the last minute's arrivals ask for, per second; the need is
    (R + headroom * sqrt(R)) / slots per node. While `queue` or more wait, or the oldest waits
    longer than `wait`, the queue has to drain within `horizon` or one cold start, too. Up goes at
    once, at most doubling (or by four). Down goes to the highest need of the last five minutes, a
    tenth a step, only while nothing waits, not within `hold` of a step up or of the start of this
    scheduler (which knows no demand then), nor within `step_in` of a step down: so a turn from up
    to down takes at least `hold`, whatever the load. The last node goes after `idle` + `grace`
    without work, where the minimum is 0; the first arrival starts one.
    """

    queue: int = 5
    wait: Duration = 3 * SECOND
    headroom: float = 1.1
    slack: float = 0.1
    horizon: Duration = 30 * SECOND
    hold: Duration = 300 * SECOND
    step_in: Duration = 60 * SECOND
    idle: Duration = 60 * SECOND
    grace: Duration = 30 * SECOND
    job_window: Duration = 0

    def plan(self, view: ScaleView, now: Instant) -> ScalePlan | None:
        """The whole way up, or one step down, or None."""
        current = view.ready + view.starting
        if current < view.min_nodes:
            return ScalePlan(view.min_nodes, f"below the minimum of {view.min_nodes}")
        wanted, why = self._wanted(view)
        if wanted + view.min_spare > current:
            most = min(current + max(current, 4), view.max_nodes)
            desired = min(wanted + view.min_spare, most)
            return ScalePlan(desired, why) if desired > current else None
        return self._down(view, current, now)

    def nodes_for(self, view: ScaleView, erlangs: float) -> float:
        """Nodes by square-root staffing, as a fraction."""
        return (erlangs + self.headroom * math.sqrt(erlangs)) / view.slots_per_node

    def _wanted(self, view: ScaleView) -> tuple[int, str]:
        """Nodes that the present demand and queue need, and why."""
        wanted = max(0, math.ceil(self.nodes_for(view, view.erlangs) - self.slack))
        why = f"the last minute asked for {view.erlangs:.1f} slots"
        pressed = pressure(view, self.queue, self.wait)
        if pressed:
            horizon = max(self.horizon, view.cold_start)
            drain = (view.erlangs + view.queued_work / horizon) / view.slots_per_node
            wanted = max(wanted, math.ceil(drain), 0 if view.starting else view.ready + 1)
            why = pressed
        elif view.waiting and not view.ready + view.starting:
            wanted, why = max(wanted, 1), "the first request of an empty pool"
        if self.job_window and view.job_work:
            jobs = math.ceil(view.job_work / self.job_window / view.slots_per_node)
            if jobs > wanted:
                wanted, why = jobs, f"job items ask for {view.job_work // SECOND} s of slots"
        return wanted, why

    def _down(self, view: ScaleView, current: int, now: Instant) -> ScalePlan | None:
        if view.waiting or min(view.watched, now - view.last_out_at) < self.hold:
            return None
        if now - view.last_in_at < self.step_in:
            return None
        peak = math.ceil(self.nodes_for(view, view.peak_erlangs) + self.slack) + view.min_spare
        least = max(peak, view.min_nodes, current - max(1, current // 10))
        if least < current:
            return ScalePlan(least, f"five minutes asked for {view.peak_erlangs:.1f} slots at most")
        quiet = view.idle_since < NEVER and now - view.idle_since >= self.idle + self.grace
        if quiet and current == 1 and view.min_nodes == 0 and view.min_spare == 0:
            return ScalePlan(0, f"idle for {(now - view.idle_since) // SECOND} s")
        return None


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many as there are."""

    def plan(self, view: ScaleView, now: Instant) -> ScalePlan | None:
        """None."""
        return None
