"""E5, shortest job first: what does knowing lengths buy?

One server whose requests take 24.3 ms + 0.0708 ms per prompt token + 34.5 ms per output token,
lengths of the Azure traces, Poisson arrivals. First come and shortest first have closed forms for
these lengths (M/G/1), which meet the table of targets; small models that meet them as well say what
a noisy prediction, or the prompt's length alone, is worth.

The live core must wait as the model of first come does, to the nanosecond. Its own `sjf` sorts by
powers of two of the predicted cost (prompt + 2 * output tokens), so it is shown outputs only, where
cost is in proportion to time, and may lose a little to the true order.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

from scheduler_service.core import CoreSettings
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.policies import build
from simulator.callers import Terms
from simulator.experiments import naive, statistics
from simulator.experiments.e1 import WorkWaits, independent
from simulator.experiments.parallel import spread
from simulator.experiments.queueing import mg1_sjf_waits, mg1_wait
from simulator.experiments.verdicts import Experiment, Findings, Row, exactly, holds, near
from simulator.fleet import Group
from simulator.pages.charts import Chart, Line, linear
from simulator.predictors import oracle
from simulator.simulation import Plan, simulate
from simulator.workload.arrival import Arrival
from simulator.workload.traces import load
from simulator.world import WorldSettings

BASE, PER_PROMPT, PER_OUTPUT = 24.3, 0.0708, 34.5  # ms
COUNT: Final = 3_000_000
SHORT: Final = 150_000
# Mean waits in seconds, first come and shortest first, by load.
TABLE: Final = {
    "azure-conv": {
        0.5: (5.82, 4.47), 0.7: (13.6, 8.79), 0.8: (23.3, 13.4), 0.9: (52.4, 25.3),
        0.95: (111.0, 45.7),
    },
    "azure-code": {
        0.5: (2.46, 1.70), 0.7: (5.74, 2.93), 0.8: (9.84, 3.89), 0.9: (22.1, 5.52),
        0.95: (46.7, 7.28),
    },
}  # fmt: skip
# Mean waits at 0.8 by order: what the server is told of the length.
TOLD: Final = {
    "azure-conv": {"noise of 0.5": 14.6, "noise of 1": 16.0, "prompt": 28.4},
    "azure-code": {"noise of 0.5": 4.16, "noise of 1": 4.78, "prompt": 8.75},
}
# Mean slowdown at 0.8, first come and shortest first.
SLOWDOWNS: Final = {"azure-conv": (7.2, 2.9), "azure-code": (17.1, 5.5)}

Pair = tuple[int, int]
Rank = Callable[[Pair, Random], float]


def service(pair: Pair) -> float:
    """Seconds of one request."""
    return (BASE + PER_PROMPT * pair[0] + PER_OUTPUT * pair[1]) / 1000


def pairs_of(trace: str) -> list[Pair]:
    """All lengths of the trace."""
    return [(a.prompt_tokens, a.output_tokens) for a in load(trace)]


def exact(pair: Pair, _random: Random) -> float:
    """The true time."""
    return service(pair)


def prompt(pair: Pair, _random: Random) -> float:
    """The prompt's length."""
    return pair[0]


def noisy(sigma: float) -> Rank:
    """The true time times a log-normal factor."""
    return lambda pair, random: service(pair) * math.exp(sigma * random.gauss(0, 1))


RANKS: Final[dict[str, Rank]] = {
    "shortest": exact,
    "noise of 0.5": noisy(0.5),
    "noise of 1": noisy(1.0),
    "prompt": prompt,
}


@dataclass(frozen=True)
class Cell:
    """One order on one trace at one load."""

    trace: str
    rho: float
    order: str  # "first come", or one of RANKS
    count: int


def demands(cell: Cell) -> Iterator[tuple[int, int, float]]:
    """(arrival, service, rank), for ever."""
    pairs = pairs_of(cell.trace)
    random = Random(f"e5/{cell.trace}/{cell.rho}")
    noise = Random(f"e5/{cell.trace}/noise")
    rank = RANKS.get(cell.order, exact)
    gap = sum(map(service, pairs)) / len(pairs) / cell.rho * SECOND
    at = 0.0
    while True:
        at += random.expovariate(1.0) * gap
        pair = pairs[int(random.random() * len(pairs))]
        yield round(at), round(service(pair) * SECOND), rank(pair, noise)


def smallest_rank(work: Iterator[tuple[int, int, float]]) -> Iterator[int]:
    """Waits at one server that takes the smallest rank next, in order of start."""
    waiting: list[tuple[float, int, int]] = []
    free_at = 0
    following = next(work)
    while True:
        at, made, rank = following
        if waiting and free_at < at:
            _, came, lasts = heapq.heappop(waiting)
            yield free_at - came
            free_at += lasts
        elif free_at <= at:
            yield 0
            free_at = at + made
            following = next(work)
        else:
            heapq.heappush(waiting, (rank, at, made))
            following = next(work)


def mean_wait(cell: Cell) -> statistics.Estimate:
    """In seconds, by a model."""
    if cell.order == "first come":
        waits = naive.first_come(((at, made, 5) for at, made, _ in demands(cell)), 1)
    else:
        waits = smallest_rank(demands(cell))
    found = statistics.mean(waits, cell.count)
    return statistics.Estimate(found.value / SECOND, found.error / SECOND)


def closed_forms(trace: str) -> list[Row]:
    """The table's targets against the formulas, which need no simulation."""
    services = [service(pair) for pair in pairs_of(trace)]
    mean = sum(services) / len(services)
    second = sum(s * s for s in services) / len(services)
    rows = []
    for rho, (first, shortest) in TABLE[trace].items():
        rate = rho / mean
        rows += [
            near(f"{trace} at {rho}: first come, closed form, s",
                 first, mg1_wait(rate, mean, second), share=0.01),
            near(f"{trace} at {rho}: shortest first, closed form, s",
                 shortest, fmean(mg1_sjf_waits(rate, services)), share=0.01),
        ]  # fmt: skip
    return rows + slowdowns(trace, services)


def slowdowns(trace: str, services: list[float]) -> list[Row]:
    """Response over service, by the same formulas; and how long the longest wait for it."""
    services = sorted(services)
    count = len(services)
    rate = 0.8 * count / sum(services)
    come = mg1_wait(rate, sum(services) / count, sum(s * s for s in services) / count)
    waits = mg1_sjf_waits(rate, services)
    first, shortest = SLOWDOWNS[trace]
    return [
        near(f"{trace} at 0.8: first come, mean slowdown", first,
             1 + come * sum(1 / s for s in services) / count, share=0.01),
        near(f"{trace} at 0.8: shortest first, mean slowdown", shortest,
             1 + sum(w / s for w, s in zip(waits, services, strict=True)) / count, share=0.01),
        near(f"{trace} at 0.8: shortest first, wait of the longest over that of first come",
             1 / (1 - 0.8), waits[-1] / come, share=0.05),
    ]  # fmt: skip


def simulated(short: bool) -> list[Row]:
    """The models against the table, at the loads where a run is long enough to say something."""
    cells, targets = [], []
    for trace, by_load in TABLE.items():
        for rho in (0.5, 0.8):
            first, shortest = by_load[rho]
            for order, target in (("first come", first), ("shortest", shortest)):
                cells.append(Cell(trace, rho, order, SHORT if short else COUNT))
                targets.append(target)
        for order, target in TOLD[trace].items():
            cells.append(Cell(trace, 0.8, order, SHORT if short else COUNT))
            targets.append(target)
    found = spread(mean_wait, cells, alone=short)
    share = 0.35 if short else 0.05
    return [
        near(f"{c.trace} at {c.rho}: {c.order}, simulated, s", target, f.value, share=share)
        for c, target, f in zip(cells, targets, found, strict=True)
    ]


def _live(cell: Cell, order: str, *, sjf: bool = False) -> tuple[list[int], list[int]]:
    """Waits by arrival of the live core, and those that the cell's model has, in order of start."""
    pairs = pairs_of(cell.trace)
    seen = WorkWaits()
    queue = QueueSettings(max_requests=1 << 60, floor_every=0)
    core = CoreSettings(queue=queue, check_every=1 << 20)
    plan = Plan(
        fleet=[Group(1, independent(1))],
        policies=lambda: build(
            {"order": order, "admission": "open"}, {"order": {"sjf": True} if sjf else {}}
        ),
        world=WorldSettings(core=core, sample_every=NEVER),
        terms=Terms(predict=oracle),
        watchers=[seen],
    )
    by_time = {round(service(pair) * SECOND): pair[1] for pair in pairs}
    first = itertools.islice(demands(cell), cell.count)
    simulate(plan, (Arrival(at, 0, by_time[made], service=made) for at, made, _ in first))
    return [seen.by_arrival[rid][1] for rid in sorted(seen.by_arrival)], _model(cell)


def _model(cell: Cell) -> list[int]:
    """All of the first `count`, to the last."""
    first = itertools.islice(demands(cell), cell.count)
    if cell.order == "first come":
        return list(naive.first_come(((at, made, 5) for at, made, _ in first), 1))
    return list(itertools.islice(smallest_rank(_and_never(first)), cell.count))


def _and_never(work: Iterator[tuple[int, int, float]]) -> Iterator[tuple[int, int, float]]:
    """After the last one a long time passes."""
    yield from work
    yield 1 << 62, 1, math.inf


def live(trace: str, short: bool) -> list[Row]:
    """The live core against the models, on the same arrivals."""
    count = 3_000 if short else 60_000
    found, expected = _live(Cell(trace, 0.8, "first come", count), "fifo")
    different = sum(a != b for a, b in zip(found, expected, strict=True))
    rows = [exactly(f"{trace}: waits of {count} requests that differ, first come", 0, different)]
    first_come = sum(found) / count / SECOND
    found, expected = _live(Cell(trace, 0.8, "shortest", count), "fair", sjf=True)
    mean, best = sum(found) / count / SECOND, sum(expected) / count / SECOND
    rows.append(
        holds(
            f"{trace}: the core's sjf, mean wait",
            f"within 12 % of {best:.3g} s, the true order's",
            f"{mean:.3g} s, first come {first_come:.3g} s",
            best * 0.999 <= mean <= 1.12 * best,
        )
    )
    return rows


def closed_chart(trace: str) -> Chart:
    """Both formulas over the load."""
    services = [service(pair) for pair in pairs_of(trace)]
    mean = sum(services) / len(services)
    second = sum(s * s for s in services) / len(services)
    loads = list(TABLE[trace])
    lines = [
        Line(name="first come", colour=0, dots=True, x=loads,
             y=[mg1_wait(rho / mean, mean, second) for rho in loads]),
        Line(name="shortest first", colour=1, dots=True, x=loads,
             y=[fmean(mg1_sjf_waits(rho / mean, services)) for rho in loads]),
    ]  # fmt: skip
    return Chart(
        title=f"{trace}: mean wait in s over the load",
        about="By the closed forms.",
        lines=lines,
        x=linear([1.0], label="load"),
        y=linear([y for line in lines for y in line.y]),
    )


def measure(short: bool) -> Findings:
    """Everything."""
    rows = list(itertools.chain.from_iterable(closed_forms(trace) for trace in TABLE))
    for trace in TABLE:
        rows += live(trace, short)
    charts = {trace: closed_chart(trace) for trace in TABLE}
    return Findings(rows + simulated(short), charts=charts)


E5 = Experiment("e5", "Shortest job first against first come", measure)
