"""Who drives the core? One writer on the event loop: inbox -> step -> effects -> observers.

Theory of operation. Everything that happens is posted here, by the servicers, on the loop's thread.
The first post of an iteration schedules one turn at its end, so all that came meanwhile is applied
in one step. No task, lock or timer exists per request: the loop has one timer, for the core's next
wake-up. A step takes at most `max_events` events; while more wait, turns follow each other with the
loop's other work in between.

A fault of the core (`InvariantViolation` or any other exception of `step`) is never hidden, and
never a crash loop: the state cannot be trusted any more, so `on_fault` ends every open call with
INTERNAL, closes the node sessions (agents come back by themselves) and installs a fresh core. What
waited in the inbox was about those calls and sessions, and is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from scheduler_service.clock import Clock
from scheduler_service.core import Scheduler
from scheduler_service.core.commands import Command
from scheduler_service.core.events import Event, RequestsCancelled, RequestsSubmitted
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import Request

log = logging.getLogger(__name__)

Execute = Callable[[Sequence[Command]], None]
Observe = Callable[[Sequence[Record]], None]


class Driver:
    """The single owner of the core. All methods are for the loop's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock: Clock,
        execute: Execute,
        observers: Sequence[Observe] = (),
        on_fault: Callable[[BaseException], Scheduler],
        max_events: int = 256,
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.faults = 0
        self._execute = execute
        self._observers = list(observers)
        self._faulty: list[Observe] = []  # observers that have raised
        self._on_fault = on_fault
        self._max_events = max_events
        self._inbox: deque[Event] = deque()
        self._loop = asyncio.get_running_loop()
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._closed = False

    def post(self, event: Event) -> None:
        """Something happened; it is applied at the end of this loop iteration."""
        self._inbox.append(event)
        self._schedule()

    def submit(self, request: Request) -> None:
        """Post one request; those of one iteration travel together."""
        last = self._inbox[-1] if self._inbox else None
        if type(last) is RequestsSubmitted:
            last.requests.append(request)
        else:
            self.post(RequestsSubmitted([request]))

    def cancel(self, rid: int, reason: Reason, message: str = "") -> None:
        """Post one cancel; the core handles cancels before all else."""
        last = self._inbox[-1] if self._inbox else None
        if type(last) is RequestsCancelled and last.reason is reason and last.message == message:
            last.rids.append(rid)
        else:
            self.post(RequestsCancelled([rid], reason, message))

    def wake(self) -> None:
        """Take a turn though nothing happened: the core arms its own timers."""
        self._schedule()

    def observe(self, observer: Observe) -> None:
        """Hand all further records to `observer`, too."""
        self._observers.append(observer)

    def close(self) -> None:
        """No further turns; what is still in the inbox is dropped."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if not self._turn_due and not self._closed:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self._closed:
            return
        inbox = self._inbox
        happened = [inbox.popleft() for _ in range(min(len(inbox), self._max_events))]
        try:
            commands = self.scheduler.step(self.clock.now(), happened)
            self._execute(commands)
            records = self.scheduler.take_records()
        except Exception as fault:  # a bug of ours: see the module's docstring
            self.faults += 1
            log.critical("the core failed and starts anew", exc_info=fault)
            inbox.clear()
            self.scheduler = self._on_fault(fault)
        else:
            for observer in self._observers:
                self._tell(observer, records)
        if inbox:
            self._schedule()
        self._arm()

    def _tell(self, observer: Observe, records: Sequence[Record]) -> None:
        try:
            observer(records)
        except Exception:  # it watches; what it watches goes on
            self.faults += 1
            if observer not in self._faulty:
                self._faulty.append(observer)
                log.exception("%r failed; further faults of it are only counted", observer)

    def _arm(self) -> None:
        """Keep one timer, for the core's next wake-up."""
        at = self.scheduler.next_wakeup()
        if self._timer is not None:
            if at == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer_at = at
            delay = max(0.0, (at - self.clock.now()) / 1e9)
            self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._schedule()
