"""The night job: stored items fill the slots, and fresh urgent requests still start soon.

Eight slots. (a) 4,000 items of 1 s, and urgent requests of 1 s at four a second: without any
preemption the p99 wait in each window of 30 s stays within 2 s, for a slot is free soon. (b) Items
of 30 s, urgent requests of 1 s at two a second: without preemption they wait for about an item;
with it for less than a second while 99 % of the slots' time is worked in; with one slot of headroom
less than half a second, at 90 %. The job gets on in every window.

No item is stopped before it has run for 2 s. In (b) all start at once, so nothing can give way in
the first two seconds; they are part of the p99, which is that of six nights together. Engines go on
from what an item had done, as a model does from its partial output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from scheduler_service.core import CoreSettings
from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import SECOND, Duration, Instant
from scheduler_service.policies import build
from simulator.engines import IndependentEngine
from simulator.engines.independent import given
from simulator.engines.interface import Host, Make, Work
from simulator.experiments.verdicts import Experiment, Findings, Row, holds
from simulator.fleet import Group
from simulator.kinds import NodeKind
from simulator.pages.charts import Chart, Line, linear
from simulator.simulation import Plan, Run, simulate
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.world import WorldSettings

SLOTS: Final = 8
WINDOW_S: Final = 30
SEEDS: Final = (1, 2, 3, 4, 5, 6)  # one night has 24 waits above its p99


class Continuing(IndependentEngine):
    """Goes on from what it did before it was stopped, as a model does from its partial output."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, SLOTS, self._rest)
        self._done: dict[int, Duration] = {}  # by identity of the arrival
        self._agenda = host.agenda

    def _rest(self, work: Work) -> Duration:
        return work.arrival.service - self._done.get(id(work.arrival), 0)

    def cancel(self, dispatch_id: int) -> None:
        """Keep what was done."""
        work = self._running.get(dispatch_id)
        if work is not None:
            done = self._done.get(id(work.arrival), 0)
            self._done[id(work.arrival)] = done + self._agenda.now - work.started_at
        super().cancel(dispatch_id)


def anew(host: Host) -> IndependentEngine:
    """An engine in which what was stopped starts from the beginning."""
    return IndependentEngine(host, SLOTS, given)


class Waits(Watcher):
    """Queue waits of chat, and ends of job items, by window of submission and of end."""

    def __init__(self) -> None:
        self.chat: dict[int, list[float]] = {}
        self.items: dict[int, int] = {}

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """One more."""
        request = command.request
        if request.request_class is RequestClass.JOB:
            window = now // SECOND // WINDOW_S
            self.items[window] = self.items.get(window, 0) + 1
        else:
            window = request.received_at // SECOND // WINDOW_S
            self.chat.setdefault(window, []).append(request.queue_time / SECOND)

    def all(self, *, first: int = 0) -> list[float]:
        """Waits of chat from that window on."""
        return [wait for window, waits in self.chat.items() if window >= first for wait in waits]

    def idle(self, until_s: int) -> int:
        """Windows without an item that ended, the first and the last aside."""
        return sum(not self.items.get(w, 0) for w in range(1, until_s // WINDOW_S))


@dataclass(frozen=True, kw_only=True)
class Night:
    """One night."""

    items: int
    item_s: int
    rate: float  # urgent requests per second
    until_s: int
    preempt: str = "after_run"
    headroom: int = 0
    make: Make = Continuing
    seed: int = 1


def arrivals(night: Night) -> Iterator[Arrival]:
    """All items at once, then chat of a second each."""
    draw = Random(f"{night.seed}/night")
    for _ in range(night.items):
        service = night.item_s * SECOND
        yield Arrival(0, service=service, priority=1, request_class=RequestClass.JOB)
    at = 0.0
    while (at := at + draw.expovariate(night.rate)) < night.until_s:
        yield Arrival(round(at * SECOND), service=SECOND, priority=10, tenant="chat")


def play(night: Night) -> tuple[Run, Waits]:
    """Eight slots for so many seconds."""
    waits = Waits()
    core = CoreSettings(queue=QueueSettings(headroom=night.headroom), check_every=1_000)
    plan = Plan(
        fleet=[Group(1, NodeKind(name="n", make=night.make, slots=SLOTS))],
        policies=lambda: build({"preempt": night.preempt}),
        world=WorldSettings(core=core),
        watchers=[waits],
        until=night.until_s * SECOND,
    )
    return simulate(plan, arrivals(night)), waits


def p99(waits: Sequence[float]) -> float:
    """By rank."""
    return sorted(waits)[math.ceil(0.99 * len(waits)) - 1]


def use(run: Run) -> float:
    """Share of slot time that was worked in."""
    return run.fleet.busy() / run.fleet.capacity()


def short_items() -> list[Row]:
    """(a)."""
    night = Night(items=4_000, item_s=1, rate=4.0, until_s=900, preempt="never")
    _, waits = play(night)
    worst = max(p99(chat) for chat in waits.chat.values())
    ended = min(waits.items.get(window, 0) for window in range(900 // WINDOW_S))
    return [
        holds("(a) items of 1 s, no preemption: the worst window's p99 wait of priority 10",
              "at most 2 s", f"{worst:.2f} s", worst <= 2 and len(waits.chat) == 900 // WINDOW_S),
        holds("(a) items that end in the slowest window", "some", str(ended), ended > 0),
    ]  # fmt: skip


def long_items(nights: dict[str, list[tuple[Run, Waits]]], until_s: int) -> list[Row]:
    """(b)."""
    rows = []
    limits = (("preemption", 1.0, 0.99), ("preemption, headroom of 1", 0.5, 0.90))
    for name, most_s, least in limits:
        played = nights[name]
        tail = p99([wait for _, waits in played for wait in waits.all()])
        late = max(p99(waits.all()) for _, waits in played)
        used = min(use(run) for run, _ in played)
        idle = sum(waits.idle(until_s) for _, waits in played)
        rows += [
            holds(f"(b) items of 30 s, {name}: p99 wait of priority 10", f"at most {most_s} s",
                  f"{tail:.2f} s (worst night {late:.2f} s)", tail <= most_s),
            holds(f"(b) {name}: use of the slots", f"at least {100 * least:.0f} %",
                  f"{100 * used:.1f} %", used >= least),
            holds(f"(b) {name}: windows in which no item ended", "none", str(idle), idle == 0),
        ]  # fmt: skip
    tail = p99([wait for _, waits in nights["no preemption"] for wait in waits.all()])
    rows.append(
        holds("(b) no preemption: p99 wait of priority 10", "about an item: 20 s to 30 s",
              f"{tail:.1f} s", 20 <= tail <= 30)
    )  # fmt: skip
    return rows


def measure(short: bool) -> Findings:
    """Both, and what it is without."""
    until_s, seeds = (900, (1, 2)) if short else (1_200, SEEDS)

    def nights(preempt: str = "after_run", headroom: int = 0) -> list[tuple[Run, Waits]]:
        return [
            play(
                Night(
                    items=600, item_s=30, rate=2.0, until_s=until_s,
                    preempt=preempt, headroom=headroom, seed=seed,
                )
            )
            for seed in seeds
        ]  # fmt: skip

    played = {
        "no preemption": nights("never"),
        "preemption": nights(),
        "preemption, headroom of 1": nights(headroom=1),
    }
    lines = [
        Line(
            name=name,
            colour=number,
            x=[float(w * WINDOW_S) for w in sorted(all_[0][1].chat)],
            y=[p99(all_[0][1].chat[w]) for w in sorted(all_[0][1].chat)],
        )
        for number, (name, all_) in enumerate(played.items())
    ]
    chart = Chart(
        title="Items of 30 s: p99 wait of urgent requests in each window of 30 s, in s",
        about="One night. The first window holds the start, at which nothing may be stopped yet.",
        lines=lines,
        x=linear([x for line in lines for x in line.x], label="s"),
        y=linear([y for line in lines for y in line.y]),
    )
    rows = short_items() + long_items(played, until_s)
    return Findings(rows, charts={"waits": chart})


NIGHT: Final = Experiment("night", "A night job against chat", measure)
