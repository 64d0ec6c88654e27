"""One configuration on one trace: what is run, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scheduler_service.core import CoreSettings
from scheduler_service.core.interfaces import Ordering, PolicySet
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import NEVER, SECOND, Duration
from scheduler_service.policies import build
from simulator.callers import Terms
from simulator.engines import IndependentEngine, linear
from simulator.engines.interface import Host
from simulator.experiments import e2_rules
from simulator.fleet import Group, kind
from simulator.kinds import NodeKind
from simulator.metrics import Metrics
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
TENANTS: Final = 100
# Later than any hour ends: deadlines that are this far beyond their starts order, and drop nothing.
FAR: Final = 24 * 3600 * SECOND
# Of slots-70B: ns for a request, each prompt token, each output token.
BASE, PER_PROMPT, PER_OUTPUT = 24_300_000, 70_800, 34_500_000


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One configuration on one trace."""

    trace: str
    name: str
    names: tuple[tuple[str, str], ...] = ()
    order: tuple[tuple[str, Any], ...] = ()  # options of the order
    ordering: Ordering | None = None  # instead of one that is in the registry
    floor: int = 8
    central: bool = True
    view: Duration = 0  # of a router: how old its look at the nodes may be
    urgent_first: bool = False  # on a router's nodes
    more: int = 0  # nodes beside those of all others
    tenants: int = TENANTS
    draw: int = 1  # of priorities and tenants: which requests have which
    deadlines: bool = False  # requests have some, in the order of the latest starts
    minutes: int = 60


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it."""

    urgent: float  # share that started in time
    late: float  # p99 wait of the least urgent, s
    usual: float  # mean wait of the least urgent, s
    most: float  # the longest of them, s
    mean: float  # wait of all, s
    attained: Mapping[int, float] = field(default_factory=dict)  # by priority
    tokens_per_s: float = 0.0
    done: bool = True


def policies(setup: Setup) -> PolicySet:
    """As the configuration says; the router has a picker of its own."""
    made = build({"admission": "open", **dict(setup.names)}, {"order": dict(setup.order)})
    if setup.ordering is not None:
        return replace(made, ordering=setup.ordering)
    if setup.central:
        return made
    router = e2_rules.RulePicker(e2_rules.least_loaded, ())
    return replace(made, scorer=e2_rules.Counts(setup.view), picker=router)


def play(setup: Setup) -> Outcome:
    """Run it, to the last request."""
    queue = QueueSettings(max_requests=1 << 60, floor_every=setup.floor)
    guess = TenantMean()
    plan = Plan(
        name=setup.name,
        fleet=[Group(NODES[setup.trace] + setup.more, node(setup))],
        policies=lambda: policies(setup),
        world=WorldSettings(core=CoreSettings(queue=queue, check_every=1 << 20),
                            sample_every=NEVER),
        terms=Terms(
            predict=guess,
            timeouts={p: start + FAR for p, start in STARTS.items()} if setup.deadlines else {},
        ),
        watchers=[guess],
    )  # fmt: skip
    hour = Assignment(seed=setup.draw, tenants=setup.tenants)(load(setup.trace))
    run = simulate(plan, between(hour, 0, 60 * setup.minutes))
    return judged(run.metrics, run.summary.output_tokens_per_s, central=setup.central)


def node(setup: Setup) -> NodeKind:
    """Of a router: one that takes any number, and serves in its own order."""
    slots = kind("slots-70B", SLOTS)
    if setup.central:
        return slots
    service = linear(BASE, PER_PROMPT, PER_OUTPUT)

    def make(host: Host) -> IndependentEngine:
        return IndependentEngine(host, SLOTS, service, urgent_first=setup.urgent_first)

    return replace(slots, look_ahead=1 << 40, make=make)


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
            wait = rows.total[index] - work(rows.prompt_tokens[index], rows.output_tokens[index])
        waits[priority].append(wait)
    return replace(outcome(waits), tokens_per_s=tokens_per_s, done=len(rows) == metrics.submitted)


def work(prompt_tokens: int, output_tokens: int) -> Duration:
    """What a request of that size takes on its slot."""
    return BASE + round(PER_PROMPT * prompt_tokens + PER_OUTPUT * output_tokens)


def outcome(waits: Mapping[int, Sequence[int]]) -> Outcome:
    """Of waits in ns, by priority."""
    met = {p: sum(w <= STARTS[p] for w in values) for p, values in waits.items()}
    urgent = [p for p in waits if p >= URGENT]
    least = sorted(waits[min(waits)])
    return Outcome(
        urgent=sum(met[p] for p in urgent) / max(1, sum(len(waits[p]) for p in urgent)),
        late=quantile(least, 0.99) / SECOND,
        usual=sum(least) / len(least) / SECOND,
        most=least[-1] / SECOND,
        mean=sum(map(sum, waits.values())) / max(1, sum(map(len, waits.values()))) / SECOND,
        attained={p: met[p] / max(1, len(waits[p])) for p in waits},
    )
