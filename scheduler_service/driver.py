"""Who drives the core? One writer on the event loop: inbox -> step -> effects -> observers.

Theory of operation. Everything that happens is posted here, by the servicers, on the loop's thread.
The first post of an iteration schedules one turn at its end, so all that came meanwhile is applied
in one step; under a load of single calls a turn may wait for more (`gathering.py`). No task, lock
or timer exists per request: the loop has one timer, for the core's next wake-up, and one for a turn
that waits. A step takes at most `max_events` events; while more wait, turns follow each other with
the loop's other work in between.

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
from scheduler_service.core.events import (
    Event,
    ItemsFinished,
    RequestsCancelled,
    RequestsSubmitted,
)
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import Request
from scheduler_service.gathering import Gathering

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
        self._later: list[Observe] = []
        self._faulty: list[Observe] = []  # observers that have raised
        self._on_fault = on_fault
        self._max_events = max_events
        self._inbox: deque[Event] = deque()
        self._loop = asyncio.get_running_loop()
        self._turn_due = False
        self._gathering = Gathering(clock.cpu)
        self._waiting = 0  # requests and results in the inbox
        self._alone = 0  # of the requests, those that have an RPC of their own
        self._gather_timer: asyncio.TimerHandle | None = None  # while the turn waits for more
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._records: list[Record] = []  # that those who are shown later were not shown yet
        self._closed = False

    def post(self, event: Event) -> None:
        """Something happened; it is applied in the next turn."""
        self._inbox.append(event)
        if type(event) is ItemsFinished:
            self._waiting += len(event.items)
        self._schedule()

    def submit(self, request: Request, *, alone: bool = False) -> None:
        """Post one request; those of one turn travel together. `alone`: its RPC has no other."""
        self._waiting += 1
        self._alone += alone
        last = self._inbox[-1] if self._inbox else None
        if type(last) is RequestsSubmitted:
            last.requests.append(request)
            if self._gather_timer is not None:  # else a turn comes anyway
                self._schedule()
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

    def observe(self, observer: Observe, *, later: bool = False) -> None:
        """Hand all further records to `observer`, too; `later`: not before what the turn commanded
        is on its way. For those on whose word nothing waits: an engine may stand idle meanwhile.
        """
        (self._later if later else self._observers).append(observer)

    def close(self) -> None:
        """No further turns; what is still in the inbox is dropped."""
        self._closed = True
        for timer in (self._timer, self._gather_timer):
            if timer is not None:
                timer.cancel()
        self._tell_later()

    def _schedule(self) -> None:
        if not self._turn_due:
            if not self._closed:
                self._turn_due = True
                self._loop.call_soon(self._turn_or_wait)
        elif self._gather_timer is not None and self._gathering.is_enough(self._waiting):
            self._gather_timer.cancel()
            self._gather_timer = None
            self._loop.call_soon(self._turn)

    def _turn_or_wait(self) -> None:
        wait = self._gathering.wait(self.clock.now(), self._waiting)
        if wait:
            self._gather_timer = self._loop.call_later(wait / 1e9, self._turn)
        else:
            self._turn()

    def _turn(self) -> None:
        self._turn_due = False
        self._gather_timer = None
        if self._closed:
            return
        self._tell_later()  # a further step may change what the records tell of
        inbox = self._inbox
        happened = [inbox.popleft() for _ in range(min(len(inbox), self._max_events))]
        try:
            now = self.clock.now()
            self._gathering.turned(now, self._alone)
            self._waiting = self._alone = 0
            commands = self.scheduler.step(now, happened)
            self._execute(commands)
            records = self.scheduler.take_records()
        except Exception as fault:  # a bug of ours: see the module's docstring
            self.faults += 1
            log.critical(
                "the core failed and starts anew", exc_info=fault, extra={"event": "core_failed"}
            )
            inbox.clear()
            self.scheduler = self._on_fault(fault)
        else:
            for observer in self._observers:
                self._tell(observer, records)
            if records and self._later:
                self._records = records
                self._loop.call_soon(self._tell_later)
        if inbox and not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)
        self._arm()

    def _tell_later(self) -> None:
        """Tell those of the last turn who are told later, unless they know already."""
        if self._records:
            records, self._records = self._records, []
            for observer in self._later:
                self._tell(observer, records)

    def _tell(self, observer: Observe, records: Sequence[Record]) -> None:
        try:
            observer(records)
        except Exception:  # it watches; what it watches goes on
            self.faults += 1
            if observer not in self._faulty:
                self._faulty.append(observer)
                log.exception(
                    "%r failed; further faults of it are only counted",
                    observer,
                    extra={"event": "observer_failed"},
                )

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
