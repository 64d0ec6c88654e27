"""Servers that do not mind each other: each item takes the time that it takes, whoever runs beside.

The machine of queueing theory. `slots` of them run at once, in order of arrival, or the most urgent
first.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence

from scheduler_service.core.types import Duration
from simulator.engines.interface import Host, Work


def given(work: Work) -> Duration:
    """The service time that its workload states."""
    return work.arrival.service


def linear(
    base: Duration, per_prompt_token: float, per_output_token: float
) -> Callable[[Work], Duration]:
    """base + a * prompt + b * output, in nanoseconds."""

    def duration(work: Work) -> Duration:
        made = per_output_token * work.to_make
        return base + round(per_prompt_token * work.prompt_tokens + made)

    return duration


class IndependentEngine:
    """`slots` equal servers with one queue; `urgent_first`: it is sorted by priority, then age."""

    def __init__(
        self,
        host: Host,
        slots: int,
        duration: Callable[[Work], Duration] = given,
        *,
        urgent_first: bool = False,
    ) -> None:
        self.busy: Duration = 0
        self._host = host
        self._free = slots
        self._duration = duration
        self._urgent_first = urgent_first
        self._waiting: deque[Work] = deque()
        self._running: dict[int, Work] = {}

    def submit(self, works: Sequence[Work], *, atomic: bool) -> None:
        """Start as many as there are free servers; the others wait."""
        del atomic
        for work in works:
            if self._free:
                self._start(work)
            elif self._urgent_first:
                insort(self._waiting, work, key=lambda waiting: -waiting.arrival.priority)
            else:
                self._waiting.append(work)

    def _start(self, work: Work) -> None:
        self._free -= 1
        agenda = self._host.agenda
        work.started_at = agenda.now
        self._running[work.dispatch_id] = work
        agenda.at(agenda.now + self._host.stretch(self._duration(work)), self._end, work)

    def _end(self, work: Work) -> None:
        if work.ended:
            return  # it was cancelled, or the process went
        work.complete = True
        work.made = work.to_make
        work.first_output_at = self._host.agenda.now
        self._leave(work)

    def _leave(self, work: Work) -> None:
        work.ended = True
        del self._running[work.dispatch_id]
        self.busy += self._host.agenda.now - work.started_at
        self._free += 1
        if self._waiting:
            self._start(self._waiting.popleft())
        self._host.ended((work,))

    def cancel(self, dispatch_id: int) -> None:
        """At once."""
        work = self._running.get(dispatch_id)
        if work is not None:
            self._leave(work)
            return
        for waiting in self._waiting:
            if waiting.dispatch_id == dispatch_id:
                self._waiting.remove(waiting)
                waiting.ended = True
                self._host.ended((waiting,))
                return

    def halt(self) -> None:
        """Forget everything."""
        for work in self._running.values():
            work.ended = True
            self.busy += self._host.agenda.now - work.started_at
        self._free += len(self._running)
        self._running.clear()
        self._waiting.clear()
