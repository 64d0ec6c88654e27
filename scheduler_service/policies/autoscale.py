"""How many nodes should the pool have?"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.interfaces import ScalePlan, ScaleView
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant


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
        why = self._pressed(view)
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

    def _pressed(self, view: ScaleView) -> str:
        if view.waiting >= self.queue:
            return f"{view.waiting} requests wait (threshold {self.queue})"
        if view.waiting and view.oldest_wait > self.wait:
            waited, limit = view.oldest_wait // MILLISECOND, self.wait // MILLISECOND
            return f"the oldest waits {waited} ms (threshold {limit} ms)"
        return ""


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many as there are."""

    def plan(self, view: ScaleView, now: Instant) -> ScalePlan | None:
        """None."""
        return None
