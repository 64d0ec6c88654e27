"""A node with nothing around its engine: what was submitted, when it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.core.types import Duration, Instant
from simulator.agenda import Agenda
from simulator.engines.interface import Engine, Make, Work
from simulator.workload.arrival import Arrival


@dataclass(frozen=True)
class End:
    """One item's end."""

    at: Instant
    dispatch_id: int
    made: int
    complete: bool
    first_output_at: Instant


class Bench:
    """Hosts one engine."""

    def __init__(self, make: Make) -> None:
        self.agenda = Agenda()
        self.ends: list[End] = []
        self.words = 0
        self.slowness = 1.0
        self.engine: Engine = make(self)

    def ended(self, works: Sequence[Work]) -> None:
        now = self.agenda.now
        self.ends += [End(now, w.dispatch_id, w.made, w.complete, w.first_output_at) for w in works]

    def progressed(self, works: Sequence[Work]) -> None:
        self.words += len(works)

    def stretch(self, duration: Duration) -> Duration:
        return round(duration * self.slowness)

    def submit(self, *arrivals: Arrival, atomic: bool = False, first_id: int = 0) -> list[Work]:
        """At each arrival's instant; a batch at that of the first."""
        works = [Work(first_id + i, arrival) for i, arrival in enumerate(arrivals)]
        if atomic:
            self.at(arrivals[0].at, lambda: self.engine.submit(works, atomic=True))
        else:
            for work in works:
                self.agenda.at(
                    work.arrival.at, lambda _, w=work: self.engine.submit([w], atomic=False)
                )
        return works

    def at(self, instant: Instant, act) -> None:  # type: ignore[no-untyped-def]
        self.agenda.at(instant, lambda _: act())

    def run(self) -> list[End]:
        """To the end of the agenda; the ends in order."""
        while len(self.agenda):
            self.agenda.run_instant(self.agenda.next())
        return self.ends
