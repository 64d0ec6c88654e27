"""Send this static batch now, or wait until when?"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.interfaces import BatchView, Close, WaitUntil
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant


@dataclass(frozen=True, slots=True)
class Windowed:
    """Full: now. Else when its oldest has waited `longest_wait`, or a deadline asks for it sooner.

    The wait is never longer than a quarter of the batch's own time, once that is known, for more
    cannot pay: joining saves a request at most the rest of a batch. A deadline closes the batch so
    that it still ends `margin` before it, with a tenth of its time in reserve (Clockwork runs only
    what meets its deadline; OSDI 2020).
    """

    longest_wait: Duration = 10 * MILLISECOND
    margin: Duration = 5 * MILLISECOND

    def decide(self, view: BatchView, now: Instant) -> Close | WaitUntil:
        """Close with "size", "timeout", "deadline" or "idle_node", or wait."""
        if view.waiting >= view.inputs_max:
            return Close("size")
        wait = self.longest_wait
        if view.expected_service:
            wait = min(wait, view.expected_service // 4)
        if wait == 0:
            return Close("idle_node")
        timeout = view.oldest_at + wait
        deadline = NEVER
        if view.earliest_deadline < NEVER:
            need = view.expected_service + view.expected_service // 10 + self.margin
            deadline = view.earliest_deadline - need
        at = min(timeout, deadline)
        if at <= now:
            return Close("timeout" if timeout <= deadline else "deadline")
        return WaitUntil(at)

    def resize(self, limit: int, inputs_max: int, size: int, took: Duration) -> int:
        """No limit of its own."""
        return 0


@dataclass(frozen=True, slots=True)
class Feasible:
    """The largest batch that makes nobody late, and no wait that does not pay.

    Members join in queue order while the batch still ends before the earliest deadline in it, by
    `reserve` times what a batch of that size takes (learned per engine and size); inputs more than
    `length_ratio` times as long as the shortest stay out. It waits for more only while it expects
    at least one more before it has to close: after `longest_wait` or a quarter of a batch of one,
    or so that it ends `margin` before a deadline. With a `target`, batches grow by one while they
    take no longer than that, and shrink by a tenth when they do (as Clipper, NSDI 2017).
    """

    longest_wait: Duration = 10 * MILLISECOND
    margin: Duration = 5 * MILLISECOND
    reserve: float = 1.1
    length_ratio: float = 2.0
    target: Duration = 0

    def decide(self, view: BatchView, now: Instant) -> Close | WaitUntil:
        """Close with "size", "timeout", "deadline" or "idle_node", or wait."""
        cap = min(view.inputs_max, view.size_limit or view.inputs_max)
        if view.waiting >= cap:
            return self._close("size", cap)
        wait = min(self.longest_wait, view.single // 4) if view.single else self.longest_wait
        timeout = view.oldest_at + wait
        deadline = NEVER
        if view.earliest_deadline < NEVER:
            need = int(self.reserve * (view.whole or view.expected_service)) + self.margin
            deadline = view.earliest_deadline - need
        at = min(timeout, deadline)
        if at <= now:
            return self._close("timeout" if timeout <= deadline else "deadline", cap)
        if view.arrivals * (at - now) < SECOND:
            return self._close("idle_node", cap)
        return WaitUntil(at)

    def _close(self, reason: str, cap: int) -> Close:
        return Close(reason, cap, self.reserve, self.length_ratio)

    def resize(self, limit: int, inputs_max: int, size: int, took: Duration) -> int:
        """One more after a full batch in time, a tenth less after one out of time."""
        if not self.target:
            return 0
        if took > self.target:
            return max(1, min(limit, inputs_max) * 9 // 10)
        return min(inputs_max, limit + 1) if size >= limit else min(inputs_max, limit)
