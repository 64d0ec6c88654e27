"""May this request enter, or is it refused at once?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler_service.core.interfaces import PoolLoad, Refusal, Shedding
from scheduler_service.core.outcomes import Reason, RequestClass
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant, Request


def unreachable(
    request: Request, load: PoolLoad, now: Instant, wait: Duration, sure: Duration
) -> Refusal | None:
    """DEADLINE_UNREACHABLE where the `sure` wait and the work itself end after the deadline."""
    if now + sure + load.expected_service <= request.deadline:
        return None
    wait_ms, service_ms = wait // MILLISECOND, load.expected_service // MILLISECOND
    left_ms = max(0, request.deadline - now) // MILLISECOND
    return Refusal(
        Reason.DEADLINE_UNREACHABLE,
        f"it has {left_ms} ms and would take about {wait_ms} ms of waiting "
        f"and {service_ms} ms of work",
        None,
        {
            "remainingMs": str(left_ms),
            "estimatedWaitMs": str(wait_ms),
            "estimatedServiceMs": str(service_ms),
        },
    )


_INTERACTIVE: Final = RequestClass.INTERACTIVE  # a look-up costs 70 ns on every request's path


@dataclass(frozen=True, slots=True)
class Bounded:
    """A bounded queue, and no place in it for what cannot meet its deadline. Where as many wait as
    may, a newcomer displaces the youngest of the least urgent, if that is less urgent.

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

    def least_share(self) -> float:
        """Deadlines of those who wait only expire."""
        return 0.0

    def shedding(self) -> Shedding | None:
        """Nobody is turned away while the queue has room."""
        return None

    def decide(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        """QUEUE_FULL, DEADLINE_UNREACHABLE, or None."""
        interactive = request.request_class is _INTERACTIVE
        if interactive and load.waiting >= load.max_requests + load.free_inputs:
            text = f"{load.waiting} requests wait, the most this queue takes"
            return self._full(load, text, displaces=True)
        if load.waiting_bytes + request.size_bytes > load.max_bytes:
            return self._full(load, f"{load.waiting_bytes} bytes wait, the most this queue takes")
        if request.deadline < NEVER and load.expected_service:
            wait = self.estimated_wait(load)
            work = int(self.caution * (wait + load.expected_service)) - load.expected_service
            return unreachable(request, load, now, wait, work)
        return None

    def _full(self, load: PoolLoad, message: str, *, displaces: bool = False) -> Refusal:
        """Come back when the queue has drained by a tenth, by the drain rate."""
        per_request = load.mean_service // max(1, load.parallel)
        hint = min(60 * SECOND, max(100 * MILLISECOND, load.waiting * per_request // 10))
        depth = {"queueDepth": str(load.waiting)}
        return Refusal(Reason.QUEUE_FULL, message, hint, depth, displaces)


@dataclass(frozen=True, slots=True)
class Guarded:
    """As `Bounded`, by the measured drain rate; tenants share.

    The queue is full at its bounds, or with more than drains in `longest`. While two or more
    tenants wait, none takes more than `tenant_share` of the queue. Who waits with less than
    `hopeless` times its expected service left is ended, or gets a smaller model: it would only be
    late, and take a slot from one that is not.
    """

    caution: float = 0.8
    longest: Duration = 60 * SECOND
    tenant_share: float = 0.25
    hopeless: float = 0.8

    def estimated_wait(self, load: PoolLoad) -> Duration:
        """Requests ahead, beyond the free slots, by the rate at which requests end."""
        if not load.drain_rate:
            return Bounded().estimated_wait(load)
        beyond = load.ahead - load.free_inputs + 1
        return int(max(0, beyond) / load.drain_rate * SECOND)

    def least_share(self) -> float:
        """As configured."""
        return self.hopeless

    def shedding(self) -> Shedding | None:
        """Nobody is turned away while the queue has room."""
        return None

    def decide(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        """QUEUE_FULL, DEADLINE_UNREACHABLE, or None."""
        if load.waiting_bytes + request.size_bytes > load.max_bytes:
            return self._full(load, f"{load.waiting_bytes} bytes wait, the most this queue takes")
        if request.request_class is _INTERACTIVE:
            refusal = self._crowded(load)
            if refusal is not None:
                return refusal
        if request.deadline < NEVER and load.expected_service:
            wait = self.estimated_wait(load)
            return unreachable(request, load, now, wait, int(self.caution * wait))
        return None

    def _crowded(self, load: PoolLoad) -> Refusal | None:
        most = load.max_requests
        if load.drain_rate:
            most = min(most, max(1, int(load.drain_rate * self.longest / SECOND)))
        if load.waiting >= most + load.free_inputs:
            text = f"{load.waiting} requests wait, the most this queue takes"
            return self._full(load, text, displaces=True)
        if load.tenants >= 2 and load.tenant_waiting >= max(1, self.tenant_share * most):
            text = f"{load.tenant_waiting} requests of this tenant wait, the most while others do"
            return self._full(load, text)
        return None

    def _full(self, load: PoolLoad, message: str, *, displaces: bool = False) -> Refusal:
        """Come back when the queue has drained by a tenth."""
        if load.drain_rate:
            hint = int(load.waiting / 10 / load.drain_rate * SECOND)
        else:
            hint = load.waiting * load.mean_service // max(1, load.parallel) // 10
        hint = min(60 * SECOND, max(100 * MILLISECOND, hint))
        depth = {"queueDepth": str(load.waiting)}
        return Refusal(Reason.QUEUE_FULL, message, hint, depth, displaces)


@dataclass(frozen=True, slots=True)
class Shed(Guarded):
    """As `Guarded`, and a pool that stays overloaded turns away always the same ones.

    Overloaded is a `window` in which even the shortest wait was above `target`. After it `fewer` of
    the admitted get in, after another one `more`: the most urgent, and of one priority the same
    tenants for an hour. Priority 9 and above always get in. Who permits a smaller model gets that.
    """

    target: Duration = 1 * SECOND
    window: Duration = 1 * SECOND
    fewer: float = 0.05
    more: float = 0.01

    def shedding(self) -> Shedding:
        """As configured."""
        return Shedding(self.target, self.window, self.fewer, self.more)


@dataclass(frozen=True, slots=True)
class Open:
    """Everything enters until the queue's hard bounds; deadlines only expire."""

    def estimated_wait(self, load: PoolLoad) -> Duration:
        """As `Bounded`."""
        return Bounded().estimated_wait(load)

    def least_share(self) -> float:
        """As `Bounded`."""
        return 0.0

    def shedding(self) -> Shedding | None:
        """Nobody is turned away while the queue has room."""
        return None

    def decide(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        """QUEUE_FULL or None."""
        refusal = Bounded().decide(request, load, now)
        return refusal if refusal is not None and refusal.reason is Reason.QUEUE_FULL else None
