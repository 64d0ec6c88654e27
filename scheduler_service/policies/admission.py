"""May this request enter, or is it refused at once?"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.interfaces import PoolLoad, Refusal
from scheduler_service.core.outcomes import Reason, RequestClass
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant, Request


@dataclass(frozen=True, slots=True)
class Bounded:
    """A bounded queue, and no place in it for what cannot meet its deadline.

    A deadline counts as out of reach when now + caution * expected wait + expected service passes
    it; `caution` is below 1, for a wrong refusal is a certain loss. Nothing is refused for its
    deadline while nothing is known of service times.
    """

    caution: float = 0.8

    def estimated_wait(self, load: PoolLoad) -> Duration:
        """Requests ahead, beyond the free slots, by mean service time over all slots."""
        if not load.parallel or load.ahead < load.free_inputs:
            return 0
        return (load.ahead - load.free_inputs + 1) * load.mean_service // load.parallel

    def decide(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        """QUEUE_FULL, DEADLINE_UNREACHABLE, or None."""
        interactive = request.request_class is RequestClass.INTERACTIVE
        if interactive and load.waiting >= load.max_requests + load.free_inputs:
            return self._full(load, f"{load.waiting} requests wait, the most this queue takes")
        if load.waiting_bytes + request.size_bytes > load.max_bytes:
            return self._full(load, f"{load.waiting_bytes} bytes wait, the most this queue takes")
        if request.deadline < NEVER and load.expected_service:
            return self._deadline(request, load, now)
        return None

    def _full(self, load: PoolLoad, message: str) -> Refusal:
        """Come back when the queue has drained by a tenth, by the drain rate."""
        per_request = load.mean_service // max(1, load.parallel)
        hint = min(60 * SECOND, max(100 * MILLISECOND, load.waiting * per_request // 10))
        return Refusal(Reason.QUEUE_FULL, message, hint, {"queueDepth": str(load.waiting)})

    def _deadline(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        wait = self.estimated_wait(load)
        if now + int(self.caution * (wait + load.expected_service)) <= request.deadline:
            return None
        wait_ms, service_ms = wait // MILLISECOND, load.expected_service // MILLISECOND
        left_ms = max(0, request.deadline - now) // MILLISECOND
        return Refusal(
            Reason.DEADLINE_UNREACHABLE,
            f"it has {left_ms} ms and would take about {wait_ms} ms of waiting "
            f"and {service_ms} ms of work",
            None,
            {"estimatedWaitMs": str(wait_ms), "estimatedServiceMs": str(service_ms)},
        )


@dataclass(frozen=True, slots=True)
class Open:
    """Everything enters until the queue's hard bounds; deadlines only expire."""

    def estimated_wait(self, load: PoolLoad) -> Duration:
        """As `Bounded`."""
        return Bounded().estimated_wait(load)

    def decide(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        """QUEUE_FULL or None."""
        refusal = Bounded().decide(request, load, now)
        return refusal if refusal is not None and refusal.reason is Reason.QUEUE_FULL else None
