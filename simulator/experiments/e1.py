"""E1, physics: do a central queue and its servers behave as queueing theory says?

Method. One node of independent servers, mean service 10 ms (only the unit of time). The first
requests of each run go through the live scheduler in the simulator; their waits must equal those of
a model of a dozen lines (`naive.py`) to the nanosecond. That model then goes on alone, for as many
requests as bring three standard errors below 3 %: 80 million at 64 servers, which no real core
gets through in minutes. Its means, tails and chances of waiting are held against the closed forms.

Beside that, three laws hold exactly on every simulated run that starts and ends empty: Little's
(the integral of the number in the system is the sum of the times in it), work (busy time is the sum
of the services), and Kleinrock's conservation (on one server no order changes the sum of service
times wait).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from scheduler_service.core import CoreSettings
from scheduler_service.core import commands as cmd
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import MILLISECOND, NEVER, Instant
from scheduler_service.policies import build
from simulator.engines import IndependentEngine
from simulator.engines.interface import Engine, Host
from simulator.experiments import naive, statistics
from simulator.experiments.parallel import spread
from simulator.experiments.queueing import (
    cobham,
    erlang_c,
    md1_wait,
    md1_wait_quantile,
    mmc_wait,
    mmc_wait_quantile,
)
from simulator.experiments.statistics import Estimate
from simulator.experiments.verdicts import Experiment, Findings, Row, exactly, near, within
from simulator.fleet import Group
from simulator.kinds import NodeKind
from simulator.simulation import Plan, Run, simulate
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.world import WorldSettings

UNIT: Final = 10 * MILLISECOND
SIMULATED: Final = 200_000  # of each run, by the live core
SHORT: Final = 4_000
SHORT_ALONE: Final = 120_000


@dataclass(frozen=True)
class System:
    """M/M/c or M/D/1 at a load per server; `count` so that 3 standard errors are below 3 %."""

    servers: int
    rho: float
    count: int
    deterministic: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """In Kendall's letters."""
        return f"M/{'D' if self.deterministic else 'M'}/{self.servers} at {self.rho:g}"


SYSTEMS: Final = (
    System(1, 0.8, 6_000_000),
    System(1, 0.9, 20_000_000),
    System(2, 0.8, 5_000_000),
    System(4, 0.8, 6_000_000),
    System(16, 0.9, 28_000_000),
    System(64, 0.95, 80_000_000),
    System(1, 0.5, 2_000_000, deterministic=True),
    System(1, 0.8, 4_000_000, deterministic=True),
    System(1, 0.9, 8_000_000, deterministic=True),
)
STRICT: Final = System(4, 0.8, 6_000_000)
ONE: Final = System(1, 0.9, SIMULATED)


class WorkWaits(Watcher):
    """Sums of service, and of service times wait; waits by arrival."""

    def __init__(self) -> None:
        self.service = 0
        self.service_wait = 0
        self.by_arrival: dict[int, tuple[int, int]] = {}  # rid: (priority, wait)

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """Add one."""
        del now
        request = command.request
        service = request.context.arrival.service
        self.service += service
        self.service_wait += service * request.queue_time
        self.by_arrival[request.rid] = request.priority, request.queue_time


def independent(servers: int) -> NodeKind:
    """A node of servers that take what the workload says."""

    def make(host: Host) -> Engine:
        return IndependentEngine(host, servers)

    return NodeKind(name=f"{servers} servers", make=make, slots=servers)


def demands(system: System, priorities: tuple[int, ...] = (5,)) -> Iterator[naive.Demand]:
    """Poisson at the load, for ever; services of mean UNIT; priorities at random, equally often."""
    random = Random(f"e1/{system.name}" + (f"/{system.seed}" if system.seed else ""))
    gap = UNIT / (system.servers * system.rho)
    at = 0.0
    while True:
        at += random.expovariate(1.0) * gap
        service = UNIT if system.deterministic else round(random.expovariate(1.0) * UNIT)
        priority = priorities[int(random.random() * len(priorities))] if priorities[1:] else 5
        yield round(at), service, priority


def run(
    system: System, count: int, order: str = "fifo", priorities: tuple[int, ...] = (5,)
) -> tuple[Run, WorkWaits]:
    """The first `count` requests of a system, with the live core. No floor, no bounds."""
    queue = QueueSettings(max_requests=1 << 60, floor_every=0)
    core = CoreSettings(queue=queue, check_every=1 << 20)
    watcher = WorkWaits()
    plan = Plan(
        fleet=[Group(1, independent(system.servers))],
        policies=lambda: build({"order": order, "admission": "open"}),
        world=WorldSettings(core=core, sample_every=NEVER),
        watchers=[watcher],
    )
    first = itertools.islice(demands(system, priorities), count)
    arrivals = (Arrival(at, service=service, priority=p) for at, service, p in first)
    return simulate(plan, arrivals), watcher


def same_waits(system: System, short: bool) -> list[Row]:
    """The live core against the model, and the exact laws."""
    count = SHORT if short else SIMULATED
    done, seen = run(system, count)
    expected = list(naive.first_come(itertools.islice(demands(system), count), system.servers))
    found = [seen.by_arrival[rid][1] for rid in range(1, count + 1)]
    different = sum(a != b for a, b in zip(expected, found, strict=True))
    name, metrics = system.name, done.metrics
    return [
        exactly(f"{name}: waits of {count} requests that differ from the model's", 0, different),
        exactly(f"{name}: Little, request-ns", metrics.sojourn, metrics.in_system_integral),
        exactly(f"{name}: busy time, ns", seen.service, done.fleet.busy()),
    ]


def closed_forms(system: System, short: bool) -> list[Row]:
    """Mean, p99 and probability of a wait."""
    count = SHORT_ALONE if short else system.count
    found = statistics.waits(naive.first_come(demands(system), system.servers), count)
    load, name = system.servers * system.rho, system.name
    if system.deterministic:
        mean, tail = md1_wait(system.rho), md1_wait_quantile(system.rho, 0.99)
    else:
        mean = mmc_wait(system.servers, load)
        tail = mmc_wait_quantile(system.servers, load, 0.99)
    rows = [_row(f"{name}: mean wait", mean, found.mean, short)]
    if not short:  # a short batch hardly sees its p99
        rows.append(_row(f"{name}: p99 wait", tail, found.p99, short))
    if not system.deterministic:
        waited = erlang_c(system.servers, load)
        rows.append(_row(f"{name}: P(wait)", waited, found.waited, short, unit=1))
    return rows


def _row(what: str, target: float, found: Estimate, short: bool, unit: float = UNIT) -> Row:
    value, error = found.value / unit, found.error / unit
    if short:
        return within(what, target, value, error=error)
    return near(what, target, value, share=0.03, error=error)


def strict_priority(short: bool) -> list[Row]:
    """Two equal classes on four servers: Cobham's formula."""
    count = SHORT if short else SIMULATED
    _, seen = run(STRICT, count, "strict", (10, 1))
    first = itertools.islice(demands(STRICT, (10, 1)), count)
    expected = sorted(naive.strict(first, STRICT.servers))
    different = sum(a != b for a, b in zip(expected, sorted(seen.by_arrival.values()), strict=True))
    name = f"{STRICT.name}, strict"
    rows = [exactly(f"{name}: waits that differ from the model's", 0, different)]
    alone = SHORT_ALONE if short else STRICT.count
    pairs = list(naive.strict(itertools.islice(demands(STRICT, (10, 1)), alone), STRICT.servers))
    for label, priority, target in zip(
        ("high", "low"), (10, 1), cobham(4, 3.2, [0.5, 0.5]), strict=True
    ):
        waits = [wait for p, wait in pairs if p == priority]
        found = statistics.mean(waits, len(waits))
        rows.append(_row(f"{name}: mean wait, {label} class", target, found, short))
    return rows


def conservation(short: bool) -> list[Row]:
    """One server, three priorities: orders move waits about; their sum by work stays."""
    count = SHORT if short else SIMULATED
    sums = {o: run(ONE, count, o, (10, 5, 1))[1].service_wait for o in ("fifo", "aged", "strict")}
    return [
        exactly(f"{ONE.name}: service times wait, {order} against fifo", sums["fifo"], sums[order])
        for order in ("aged", "strict")
    ]


def _of_system(task: tuple[System, bool]) -> list[Row]:
    return same_waits(*task) + closed_forms(*task)


def measure(short: bool) -> Findings:
    """Everything; the longest systems first, so that no core waits for them in the end."""
    tasks = [(system, short) for system in SYSTEMS]
    longest = sorted(tasks, key=lambda task: -task[0].count)
    found = dict(zip(longest, spread(_of_system, longest, alone=short), strict=True))
    rows = [row for task in tasks for row in found[task]]
    return Findings(rows + strict_priority(short) + conservation(short))


E1 = Experiment("e1", "Physics: closed forms of queueing theory, and exact laws", measure)
