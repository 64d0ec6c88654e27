"""Send this static batch now, or wait until when?"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.interfaces import BatchView, Close, WaitUntil
from scheduler_service.core.types import MILLISECOND, NEVER, Duration, Instant


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
