"""A night job against chat: stored items fill the slots, fresh urgent requests still start soon."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from scheduler_service.core import CoreSettings
from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import SECOND, Duration, Instant
from scheduler_service.policies import build
from simulator.engines import IndependentEngine
from simulator.engines.independent import given
from simulator.engines.interface import Host, Make, Work
from simulator.fleet import Group
from simulator.kinds import NodeKind
from simulator.simulation import Plan, Run, simulate
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.world import WorldSettings

SLOTS = 8
WINDOW_S = 30


class Continuing(IndependentEngine):
    """Goes on from what it did before it was stopped, as a model does from its partial output."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, SLOTS, self._rest)
        self._done: dict[int, Duration] = {}  # by identity of the arrival
        self._agenda = host.agenda

    def _rest(self, work: Work) -> Duration:
        return work.arrival.service - self._done.get(id(work.arrival), 0)

    def cancel(self, dispatch_id: int) -> None:
        work = self._running.get(dispatch_id)
        if work is not None:
            done = self._done.get(id(work.arrival), 0)
            self._done[id(work.arrival)] = done + self._agenda.now - work.started_at
        super().cancel(dispatch_id)


class Waits(Watcher):
    """Queue waits of chat, and ends of job items, by window of submission and of end."""

    def __init__(self) -> None:
        self.chat: dict[int, list[float]] = {}
        self.items: dict[int, int] = {}

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        request = command.request
        if request.request_class is RequestClass.JOB:
            window = now // SECOND // WINDOW_S
            self.items[window] = self.items.get(window, 0) + 1
        else:
            window = request.received_at // SECOND // WINDOW_S
            self.chat.setdefault(window, []).append(request.queue_time / SECOND)


def arrivals(items: int, item_s: int, rate: float, until_s: int, seed: int) -> Iterator[Arrival]:
    """All items at once, then chat at `rate` a second, of a second each."""
    draw = Random(f"{seed}/night")
    for _ in range(items):
        yield Arrival(0, service=item_s * SECOND, priority=1, request_class=RequestClass.JOB)
    at = 0.0
    while (at := at + draw.expovariate(rate)) < until_s:
        yield Arrival(round(at * SECOND), service=SECOND, priority=10, tenant="chat")


def anew(host: Host) -> IndependentEngine:
    """An engine in which what was stopped starts from the beginning."""
    return IndependentEngine(host, SLOTS, given)


def night(
    items: int,
    item_s: int,
    rate: float,
    until_s: int,
    *,
    preempt: str = "after_run",
    headroom: int = 0,
    make: Make = Continuing,
) -> tuple[Run, Waits]:
    """Eight slots for so many seconds."""
    waits = Waits()
    kind = NodeKind(name="n", make=make, slots=SLOTS)
    core = CoreSettings(queue=QueueSettings(headroom=headroom), check_every=1_000)
    plan = Plan(
        fleet=[Group(1, kind)],
        policies=lambda: build({"preempt": preempt}),
        world=WorldSettings(core=core),
        watchers=[waits],
        until=until_s * SECOND,
    )
    return simulate(plan, arrivals(items, item_s, rate, until_s, seed=1)), waits


def p99(waits: Sequence[float]) -> float:
    """By rank."""
    return sorted(waits)[math.ceil(0.99 * len(waits)) - 1]


def use(run: Run) -> float:
    """Share of slot time that was worked in."""
    return run.fleet.busy() / run.fleet.capacity()


def test_short_items_need_no_preemption() -> None:
    """Eight slots, 4,000 items of 1 s, four fresh requests of priority 10 a second: at most 2 s of
    waiting in every window of 30 s.
    """
    _, waits = night(4_000, 1, 4.0, 900, preempt="never")
    assert len(waits.chat) == 900 // WINDOW_S
    assert max(p99(chat) for chat in waits.chat.values()) <= 2
    assert all(waits.items.get(window, 0) > 0 for window in range(900 // WINDOW_S))


@pytest.mark.parametrize(("headroom", "most_s", "least_use"), [(0, 1.0, 0.99), (1, 0.5, 0.90)])
def test_long_items_make_room(headroom: int, most_s: float, least_use: float) -> None:
    """Items of 30 s, two fresh requests a second. In the first window, left out, all items are
    younger than two seconds at once; the job gets on in every one after it.
    """
    run, waits = night(600, 30, 2.0, 1_200, headroom=headroom)
    steady = [wait for window, chat in waits.chat.items() if window for wait in chat]
    assert p99(steady) <= most_s
    assert use(run) >= least_use
    assert all(waits.items.get(window, 0) > 0 for window in range(1, 1_200 // WINDOW_S))


def test_without_preemption_long_items_hold_chat_up() -> None:
    """What the two above are compared with: about the length of an item."""
    _, waits = night(400, 30, 2.0, 900, preempt="never")
    assert p99([wait for chat in waits.chat.values() for wait in chat]) > 15


def test_items_that_start_anew_hold_chat_up_no_longer() -> None:
    """They lose what they did; chat does not care."""
    _, waits = night(400, 30, 2.0, 900, make=anew)
    assert p99([wait for window, chat in waits.chat.items() if window for wait in chat]) <= 1
