"""E2, node choice: which rule sends requests to the right one of a hundred queues?

Nodes of one server, exponential services of mean 10 ms, each node with a queue of its own
(look-ahead without end), so that a choice once made stays. Every rule is run through the live core
as a picker on 32 nodes (of more it would not show them all), and must make the same choices as a
small model to the nanosecond; the model alone then runs on 100 and 1,000 nodes, long enough.
Targets: the supermarket model's closed form where there is one, else the figures of a simulation of
another hand, to 5 % (tails 15 %). At last the scheduler's own policies, learning as they do, go
through the live core on 100 nodes and are held against the rule that they come from.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from scheduler_service.core import CoreSettings
from scheduler_service.core import commands as cmd
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import MILLISECOND, NEVER, Duration, Instant
from scheduler_service.policies import build
from simulator.engines import IndependentEngine
from simulator.engines.interface import Engine, Host
from simulator.experiments import e2_rules as rules
from simulator.experiments import statistics
from simulator.experiments.parallel import spread
from simulator.experiments.queueing import round_robin, supermarket
from simulator.experiments.statistics import Estimate
from simulator.experiments.verdicts import Experiment, Findings, Row, exactly, holds, near
from simulator.fleet import Fleet, Group
from simulator.kinds import NodeKind
from simulator.simulation import Plan, simulate
from simulator.summary import quantile
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.world import World, WorldSettings

UNIT: Final = 10 * MILLISECOND
NODES: Final = 100
SLOW_SHARE: Final = 0.2
SEEN_BY_THE_CORE: Final = 32  # a pool's nodes that a picker gets to see, all of them
SLOWNESS: Final = 3.0
SIMULATED: Final = 10_000  # by the live core, per rule
ALONE: Final = 600_000
WARM_UP: Final = 20_000

RULES: Final[dict[str, rules.Rule]] = {
    "random": rules.anyone,
    "round robin": rules.in_turn,
    "least loaded of 2": rules.least_loaded_of(2),
    "least loaded of 3": rules.least_loaded_of(3),
    "least loaded": rules.least_loaded,
    "soonest of 2": rules.soonest_of(2),
    "hot and cold of 5": rules.hot_cold,
    "soonest": rules.soonest,
}


@dataclass(frozen=True)
class Cell:
    """One rule on one sort of nodes."""

    rule: str
    rho: float
    mixed: bool = False  # a fifth of the nodes at a third of the speed
    stale: float = 0.0  # age of the oldest snapshot, in services
    nodes: int = NODES
    count: int = ALONE

    @property
    def slow(self) -> list[float]:
        """By node."""
        return [
            SLOWNESS if self.mixed and n >= self.nodes * (1 - SLOW_SHARE) else 1.0
            for n in range(self.nodes)
        ]

    @property
    def name(self) -> str:
        """For tables."""
        sort = "mixed" if self.mixed else "equal"
        old = f", snapshots of {self.stale:g}" if self.stale else ""
        return f"{self.rule}, {sort} nodes at {self.rho:g}{old}"

    @property
    def period(self) -> Duration:
        """Between snapshots; 0: always fresh."""
        return round(self.stale * UNIT)


@dataclass(frozen=True)
class Responses:
    """Of one cell, in services."""

    mean: Estimate
    p99: float
    p999: float


def demands(cell: Cell) -> Iterator[tuple[Instant, Duration]]:
    """Poisson at the load of what the nodes can do, for ever."""
    random = Random(f"e2/{cell.rho}/{cell.mixed}/{cell.nodes}")
    gap = UNIT / (cell.rho * sum(1 / s for s in cell.slow))
    at = 0.0
    while True:
        at += random.expovariate(1.0) * gap
        yield round(at), round(random.expovariate(1.0) * UNIT)


def model(cell: Cell) -> Iterator[Duration]:
    """Response times, in order of arrival."""
    slow, rule, period = cell.slow, RULES[cell.rule], cell.period
    free = [0] * cell.nodes
    counts, seen = [0] * cell.nodes, [0] * cell.nodes
    taken = -1
    departures: list[tuple[Instant, int]] = []
    for number, (at, service) in enumerate(demands(cell), 1):
        while departures and departures[0][0] <= at:
            counts[heapq.heappop(departures)[1]] -= 1
        if not period:
            seen = counts
        elif at // period != taken:
            taken, seen = at // period, counts.copy()
        node = rule(number, seen, slow)
        made = service if slow[node] == 1.0 else round(service * slow[node])
        free[node] = max(free[node], at) + made
        counts[node] += 1
        heapq.heappush(departures, (free[node], node))
        yield free[node] - at


class ByArrival(Watcher):
    """Response times by rid."""

    def __init__(self) -> None:
        self.total: dict[int, Duration] = {}

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """One."""
        self.total[command.request.rid] = now - command.request.received_at


def ruled(cell: Cell) -> PolicySet:
    """The core's policies, with the cell's rule as picker."""
    return replace(
        build({"admission": "open", "order": "fifo"}),
        scorer=rules.Counts(cell.period),
        picker=rules.RulePicker(RULES[cell.rule], cell.slow),
    )


def live(cell: Cell, count: int, policies: Callable[[Cell], PolicySet] = ruled) -> list[Duration]:
    """Response times by the live core, in order of arrival."""

    def make(host: Host) -> Engine:
        return IndependentEngine(host, 1)

    def slow_down(_: World, fleet: Fleet) -> None:
        for node, slowness in zip(fleet.nodes.values(), cell.slow, strict=True):
            node.slowness = slowness

    kind = NodeKind(name="server", make=make, slots=1, look_ahead=1 << 40)
    queue = QueueSettings(max_requests=1 << 60, floor_every=0)
    seen = ByArrival()
    plan = Plan(
        fleet=[Group(cell.nodes, kind)],
        policies=lambda: policies(cell),
        world=WorldSettings(core=CoreSettings(queue=queue), sample_every=NEVER),
        prepare=[slow_down],
        watchers=[seen],
    )
    first = itertools.islice(demands(cell), count)
    simulate(plan, (Arrival(at, service=service) for at, service in first))
    return [seen.total[rid] for rid in sorted(seen.total)]


def same_choices(task: tuple[Cell, int]) -> Row:
    """The live core against the model."""
    cell, count = replace(task[0], nodes=SEEN_BY_THE_CORE), task[1]
    expected = list(itertools.islice(model(cell), count))
    found = live(cell, count)
    different = sum(a != b for a, b in zip(expected, found, strict=True))
    return exactly(f"{cell.name}: of {count} responses differ", 0, different)


def responses(cell: Cell) -> Responses:
    """By the model, after it has filled up."""
    values = model(cell)
    for _ in range(WARM_UP):
        next(values)
    found = list(itertools.islice(values, cell.count))
    mean = statistics.mean(iter(found), len(found))
    found.sort()
    return Responses(
        Estimate(mean.value / UNIT, mean.error / UNIT),
        quantile(found, 0.99) / UNIT,
        quantile(found, 0.999) / UNIT,
    )


def exponential(mean: float) -> tuple[float, float, float]:
    """(mean, p99, p99.9) of a law without memory."""
    return mean, mean * math.log(100), mean * math.log(1000)


# (cell, mean, p99, p99.9): closed forms for the first two, else of a simulation of another hand.
# (It had 10.4, 51 and 128 for random, whose p99.9 of one short run is far off the law's 69.)
TABLE: Final = (
    (Cell("random", 0.9, count=10 * ALONE), *exponential(10.0)),
    (Cell("round robin", 0.9, count=10 * ALONE), *exponential(round_robin(NODES, 0.9))),
    (Cell("least loaded of 2", 0.9), 2.63, 8.8, 12.0),
    (Cell("least loaded of 3", 0.9), 2.09, 7.5, 10.4),
    (Cell("least loaded of 2", 0.7, mixed=True), 2.29, 15.1, 25.3),
    (Cell("least loaded of 3", 0.7, mixed=True), 1.80, 11.4, 20.2),
    (Cell("soonest of 2", 0.7, mixed=True), 1.96, 8.5, 14.1),
    (Cell("hot and cold of 5", 0.7, mixed=True), 1.36, 5.8, 8.5),
    (Cell("soonest", 0.7, mixed=True), 1.01, 4.6, 6.9),
)
SUPERMARKET: Final = tuple(
    Cell(f"least loaded of {choices}", rho, nodes=1000, count=2 * ALONE)
    for choices, rho in ((2, 0.5), (2, 0.7), (2, 0.8), (2, 0.9), (2, 0.95), (3, 0.9))
)
STALE: Final = tuple(
    Cell(rule, 0.8, stale=age)
    for rule in ("least loaded of 2", "least loaded")
    for age in (0.0, 0.1, 1.0, 5.0)
)
STALE_MEANS: Final = (1.95, 1.99, 2.23, 3.04, 1.00, 1.23, 2.43, 5.59)


def _table(short: bool) -> list[Row]:
    cells = [_sized(cell, short) for cell, *_ in TABLE]
    rows = []
    for (cell, mean, p99, p999), found in zip(
        TABLE, spread(responses, cells, alone=short), strict=True
    ):
        name, loose = cell.name, 3.0 if short else 1.0
        rows.append(near(f"{name}: mean", mean, found.mean.value, share=0.05 * loose))
        rows.append(near(f"{name}: p99", p99, found.p99, share=0.15 * loose))
        if not short:
            rows.append(near(f"{name}: p99.9", p999, found.p999, share=0.15))
    return rows


def _supermarket(short: bool) -> list[Row]:
    if short:
        return []
    rows = []
    for cell, found in zip(SUPERMARKET, spread(responses, SUPERMARKET), strict=True):
        target = supermarket(int(cell.rule[-1]), cell.rho)
        what = f"{cell.rule}, {cell.nodes} nodes at {cell.rho:g}: mean, closed form"
        rows.append(near(what, target, found.mean.value, share=0.02, error=found.mean.error))
    return rows


def _stale(short: bool) -> list[Row]:
    others = Cell("random", 0.8), Cell("least loaded", 0.9)
    cells = [_sized(cell, short) for cell in (*STALE, *others)]
    found = spread(responses, cells, alone=short)
    means = [f.mean.value for f in found]
    rows = [
        near(f"{cell.name}: mean", target, mean, share=0.15 if short else 0.05)
        for cell, target, mean in zip(STALE, STALE_MEANS, means, strict=False)
    ]
    two, all_, blind, fresh = means[:4], means[4:8], means[8], means[9]
    rows.append(near(f"{others[1].name}: mean", 1.04, fresh, share=0.15 if short else 0.05))
    rows.append(
        holds(
            "herding: with snapshots of 1 the least loaded of all loses to that of 2",
            "more", f"{all_[2]:.3g} against {two[2]:.3g}", all_[2] > two[2],
        )
    )  # fmt: skip
    rows.append(
        holds(
            "herding: with snapshots of 5 it loses to random",
            "more", f"{all_[3]:.3g} against {blind:.3g}", all_[3] > blind,
        )
    )  # fmt: skip
    return rows


def own(_cell: Cell) -> PolicySet:
    """The scheduler's own rule: estimates that it learns, five samples, hot and cold."""
    return build({"admission": "open", "order": "fifo", "score": "estimate", "pick": "hot_cold"})


def _own(short: bool) -> list[Row]:
    """On mixed nodes, against the model of its rule; what it has to learn costs it something."""
    cell = Cell("hot and cold of 5", 0.7, mixed=True)
    count = 8_000 if short else 120_000
    found = live(cell, count, own)[count // 4 :]
    mean = sum(found) / len(found) / UNIT
    model_mean = responses(_sized(cell, short)).mean.value
    two = next(mean for known, mean, *_ in TABLE if known.rule == "soonest of 2")
    claim = f"within 20 % of {model_mean:.3g}, and below {two:g} of two samples"
    passed = mean < 1.2 * model_mean and mean < two
    return [holds("the scheduler's own policies, mixed nodes: mean", claim, f"{mean:.3g}", passed)]


def _sized(cell: Cell, short: bool) -> Cell:
    return replace(cell, count=60_000) if short else cell


def measure(short: bool) -> Findings:
    """Choices of the live core, then the tables."""
    count = 600 if short else SIMULATED
    cells = dict.fromkeys(
        [cell for cell, *_ in TABLE] + [Cell("least loaded", 0.8, stale=age) for age in (0.0, 1.0)]
    )
    rows = spread(same_choices, [(cell, count) for cell in cells], alone=short)
    return Findings(rows + _table(short) + _supermarket(short) + _stale(short) + _own(short))


E2 = Experiment("e2", "Node choice: samples, estimates, stale views", measure)
