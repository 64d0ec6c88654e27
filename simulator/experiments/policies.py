"""Policies on two real hours: who keeps urgent deadlines, and what do the others pay for it?

Azure's hours of conversations and of code on as many nodes of eight slots as are full at their
peaks, and all policies as configurations of one run: the same requests, tenants and priorities
(10 % of priority 10, 20 % of 7, 50 % of 5, 20 % of 1, a hundred tenants of Zipf's law). Each
request should start by a deadline of its own: within 3 s where it is urgent (10 and 7), within
10 s at 5, within 60 s at 1. It is judged, not enforced: whoever is late is served all the same, so
that every configuration does the same work and none looks better for what it drops.

`least loaded` is the usual router without a central queue: each request goes at once to the node
with the fewest, and waits there, first come first served. It runs on the same core, with nodes that
take any number.

One target cannot hold as put, "better than least loaded in both": shorter waits of the urgent *and*
of the least urgent. On the same slots no order changes the sum of waits by work (Kleinrock; E1
shows it to the nanosecond), so what the urgent gain, others pay: the p99 wait of priority 1 is
longer than under any rule that treats all alike, with a central queue or without. What a central
queue itself is worth shows between equals, `fifo` and the router, in the mean wait of all: little
while the router sees each node as it is at that very instant. Routers see their nodes as they were
some seconds ago; with a look at most 5 s old they herd, and lose both the urgent starts and the
mean.

The curves sweep the two constants of the default over the first twenty minutes: how often the
oldest goes first (`floor_every`), and how many levels waiting lifts a request (`levels`).
Between priorities as far apart as these (10, 7, 5, 1), at 10 s a level and waits of some seconds,
the levels hardly change an order: the floor is what serves the least urgent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scheduler_service.core import CoreSettings
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import NEVER, SECOND, Duration
from scheduler_service.policies import build
from simulator.callers import Terms
from simulator.experiments import e2_rules
from simulator.experiments.parallel import spread
from simulator.experiments.verdicts import Experiment, Findings, Row, Table, holds
from simulator.fleet import Group, kind
from simulator.metrics import Metrics
from simulator.pages.charts import Chart, Line, linear
from simulator.predictors import TenantMean
from simulator.simulation import Plan, simulate
from simulator.summary import quantile
from simulator.workload.assignment import Assignment, between
from simulator.workload.traces import load
from simulator.world import WorldSettings

STARTS: Final = {10: 3 * SECOND, 7: 3 * SECOND, 5: 10 * SECOND, 1: 60 * SECOND}
URGENT: Final = 7
NODES: Final = {"azure-conv": 6, "azure-code": 2}  # first come keeps 93 % and 90 % of 3 s
SLOTS: Final = 8
FLOORS: Final = (0, 2, 3, 4, 8, 16, 32)
LEVELS: Final = (0, 1, 2, 4, 9)
STALE: Final = 5 * SECOND
SWEEP_MINUTES: Final = 20
ROUTER: Final = "least loaded, no central queue"
STALE_ROUTER: Final = "least loaded, by a look at most 5 s old"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One configuration on one trace."""

    trace: str
    name: str
    names: tuple[tuple[str, str], ...] = ()
    order: tuple[tuple[str, Any], ...] = ()  # options of the order
    floor: int = 8
    central: bool = True
    view: Duration = 0  # of a router: how old its look at the nodes may be
    minutes: int = 60


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it."""

    urgent: float  # share that started in time
    late: float  # p99 wait of the least urgent, s
    mean: float  # wait of all, s
    most: float  # the longest of them, s
    attained: Mapping[int, float] = field(default_factory=dict)  # by priority
    tokens_per_s: float = 0.0
    done: bool = True


def setups(trace: str, minutes: int) -> list[Setup]:
    """All that are compared; the default first."""

    def of(name: str, **fields: Any) -> Setup:
        return Setup(trace=trace, name=name, minutes=minutes, **fields)

    def order(name: str) -> tuple[tuple[str, str], ...]:
        return (("order", name),)

    return [
        of("default"),
        of("fifo", names=order("fifo"), floor=0),
        of("strict, no floor", names=order("strict"), floor=0),
        of("strict", names=order("strict")),
        of("aged, no floor", floor=0),
        of("aged, sjf", order=(("sjf", True),)),
        of("aged, uncapped", names=order("aged_uncapped"), floor=0),
        of("fair", names=order("fair"), floor=0),
        of("guarded", names=(("admission", "guarded"),)),
        of("estimate, hot_cold", names=(("score", "estimate"), ("pick", "hot_cold"))),
        of(ROUTER, names=order("fifo"), floor=0, central=False),
        of(STALE_ROUTER, names=order("fifo"), floor=0, central=False, view=STALE),
    ]


def policies(setup: Setup) -> PolicySet:
    """As the configuration says; the router has a picker of its own."""
    made = build({"admission": "open", **dict(setup.names)}, {"order": dict(setup.order)})
    if setup.central:
        return made
    router = e2_rules.RulePicker(e2_rules.least_loaded, ())
    return replace(made, scorer=e2_rules.Counts(setup.view), picker=router)


def play(setup: Setup) -> Outcome:
    """Run it, to the last request."""
    node = kind("slots-70B", SLOTS)
    if not setup.central:
        node = replace(node, look_ahead=1 << 40)
    queue = QueueSettings(max_requests=1 << 60, floor_every=setup.floor)
    guess = TenantMean()
    plan = Plan(
        name=setup.name,
        fleet=[Group(NODES[setup.trace], node)],
        policies=lambda: policies(setup),
        world=WorldSettings(core=CoreSettings(queue=queue, check_every=1 << 20),
                            sample_every=NEVER),
        terms=Terms(predict=guess),
        watchers=[guess],
    )  # fmt: skip
    hour = Assignment(seed=1)(load(setup.trace))
    run = simulate(plan, between(hour, 0, 60 * setup.minutes))
    return judged(run.metrics, run.summary.output_tokens_per_s, central=setup.central)


def judged(metrics: Metrics, tokens_per_s: float, *, central: bool) -> Outcome:
    """Who started in time. Without a central queue the wait is on the node: the time that a
    request took beyond its service, which on these slots depends on nothing else.
    """
    rows = metrics.rows
    waits: dict[int, list[int]] = {priority: [] for priority in STARTS}
    for index, priority in enumerate(rows.priority):
        if central:
            wait = rows.wait[index]
        else:
            work = 24_300_000 + round(70_800 * rows.prompt_tokens[index])
            wait = rows.total[index] - work - 34_500_000 * rows.output_tokens[index]
        waits[priority].append(wait)
    met = {p: sum(w <= STARTS[p] for w in values) for p, values in waits.items()}
    urgent = [p for p in waits if p >= URGENT]
    least = sorted(waits[min(waits)])
    return Outcome(
        urgent=sum(met[p] for p in urgent) / max(1, sum(len(waits[p]) for p in urgent)),
        late=quantile(least, 0.99) / SECOND,
        mean=sum(map(sum, waits.values())) / max(1, len(rows)) / SECOND,
        most=least[-1] / SECOND,
        attained={p: met[p] / max(1, len(waits[p])) for p in waits},
        tokens_per_s=tokens_per_s,
        done=len(rows) == metrics.submitted,
    )


def compared(trace: str, found: Mapping[str, Outcome]) -> list[Row]:
    """What the default promises against three others."""
    mine, fifo = found["default"], found["fifo"]
    strict, router, stale = found["strict, no floor"], found[ROUTER], found[STALE_ROUTER]

    def points(other: Outcome) -> str:
        return f"{100 * mine.urgent:.1f} % against {100 * other.urgent:.1f} %"

    def waits(other: Outcome) -> str:
        return f"{mine.late:.1f} s against {other.late:.1f} s"

    rates = [outcome.tokens_per_s for outcome in (mine, fifo, strict, router, stale)]
    apart = max(abs(rate / rates[0] - 1) for rate in rates)
    rows = [
        holds("urgent starts in time, against fifo", "more", points(fifo),
              mine.urgent > fifo.urgent),
        holds("urgent starts in time, against strict without floor", "within 2 points",
              points(strict), abs(mine.urgent - strict.urgent) <= 0.02),
        holds("p99 wait of priority 1, against strict without floor", "less", waits(strict),
              mine.late < strict.late),
        holds(f"urgent starts in time, against {ROUTER}", "more", points(router),
              mine.urgent > router.urgent),
        holds(f"mean wait of all, fifo against {ROUTER}", "less",
              f"{fifo.mean:.2f} s against {router.mean:.2f} s", fifo.mean < router.mean),
        holds(f"urgent starts in time, against {STALE_ROUTER}", "more", points(stale),
              mine.urgent > stale.urgent),
        holds(f"mean wait of all, against {STALE_ROUTER}", "less",
              f"{mine.mean:.2f} s against {stale.mean:.2f} s", mine.mean < stale.mean),
        holds("tokens per second, all five", "within 1 %", f"{100 * apart:.2f} % apart",
              apart <= 0.01),
    ]  # fmt: skip
    return [replace(row, what=f"{trace}: {row.what}") for row in rows]


def table(trace: str, found: Mapping[str, Outcome]) -> Table:
    """Everything of one trace."""
    return Table(
        f"{trace} on {NODES[trace]} nodes of {SLOTS} slots: started in time, by priority; waits of "
        "priority 1; output",
        [
            "",
            "urgent",
            "10",
            "7",
            "5",
            "1",
            "p99 wait of 1",
            "longest of 1",
            "mean of all",
            "tokens/s",
        ],
        [
            [
                name,
                f"{100 * o.urgent:.1f} %",
                *(f"{100 * o.attained[p]:.1f} %" for p in STARTS),
                f"{o.late:.1f} s",
                f"{o.most:.1f} s",
                f"{o.mean:.2f} s",
                f"{o.tokens_per_s:.1f}",
            ]
            for name, o in found.items()
        ],
    )


def swept(trace: str, minutes: int) -> list[Setup]:
    """The floor's share at two levels, and levels with and without the floor."""
    floors = [
        Setup(trace=trace, name=f"floor {every}", floor=every, minutes=minutes) for every in FLOORS
    ]
    levels = [
        Setup(trace=trace, name=f"levels {n}, floor {every}", order=(("levels", n),), floor=every,
              minutes=minutes)
        for every in (8, 0)
        for n in LEVELS
    ]  # fmt: skip
    return floors + levels


def curves(trace: str, found: Mapping[str, Outcome]) -> tuple[Table, Chart]:
    """Urgent starts in time against the p99 wait of the least urgent."""
    groups = {
        "one of so many to the oldest: 2 ... 32, and none": [f"floor {n}" for n in FLOORS[1:]]
        + ["floor 0"],
        "levels 0 ... 9, with the floor of 8": [f"levels {n}, floor 8" for n in LEVELS],
        "levels 0 ... 9, no floor": [f"levels {n}, floor 0" for n in LEVELS],
    }
    lines = [
        Line(
            name=name,
            colour=number,
            x=[found[s].late for s in names],
            y=[100 * found[s].urgent for s in names],
            dots=True,
        )
        for number, (name, names) in enumerate(groups.items())
    ]
    low = min(min(line.y) for line in lines)
    axis = linear([100.0], label="% of urgent")
    chart = Chart(
        title=f"{trace}: urgent starts in time (%) against the p99 wait of priority 1",
        about="Each dot is a run of the first twenty minutes.",
        lines=lines,
        x=linear([x for line in lines for x in line.x], label="p99 wait of priority 1, s"),
        y=replace(axis, low=5 * (low // 5)),
    )
    cells = [
        [name, f"{100 * found[name].urgent:.2f} %", f"{found[name].late:.1f} s",
         f"{found[name].most:.1f} s"]
        for names in groups.values()
        for name in names
    ]  # fmt: skip
    head = ["", "urgent starts in time", "p99 wait of priority 1", "longest"]
    return Table(f"{trace}: what the two constants buy", head, cells), chart


def measure(short: bool) -> Findings:
    """Both traces."""
    minutes = 10 if short else 60
    rows, tables, charts = [], [], {}
    for trace in ("azure-code",) if short else tuple(NODES):
        plans = setups(trace, minutes) + ([] if short else swept(trace, SWEEP_MINUTES))
        found = dict(zip([p.name for p in plans], spread(play, plans, alone=short), strict=True))
        rows += compared(trace, found)
        tables.append(table(trace, {p.name: found[p.name] for p in setups(trace, minutes)}))
        if not short:
            swept_table, charts[f"{trace}-trade-off"] = curves(trace, found)
            tables.append(swept_table)
    return Findings(rows, tables, charts)


POLICIES: Final = Experiment("policies", "All policies on Azure's two hours", measure)
