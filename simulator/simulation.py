"""What does one need to ask a question? A workload, a fleet, policies and an objective: one call.

`simulate` builds the world, runs it to the end and counts. What it takes is data, so a comparison
of policies is a loop over `Plan`s with the same workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.types import NEVER, Instant
from scheduler_service.policies import build
from simulator.callers import Callers, Terms
from simulator.eventlog import EventLog, Sink
from simulator.fleet import Fleet, Group
from simulator.metrics import Metrics
from simulator.summary import Objective, Summary, summarise
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.world import World, WorldSettings

Prepare = Callable[[World, Fleet], None]


@dataclass(kw_only=True)
class Plan:
    """One run."""

    name: str = ""
    fleet: Sequence[Group]
    policies: Callable[[], PolicySet] = build  # fresh ones: some remember
    world: WorldSettings = field(default_factory=WorldSettings)
    terms: Terms = field(default_factory=Terms)
    objective: Objective = field(default_factory=Objective)
    managed: bool = False  # an autoscaler may drain the nodes
    prepare: Sequence[Prepare] = ()  # put faults on the agenda, or look closer
    watchers: Sequence[Watcher] = ()
    log: Sink | None = None
    until: Instant = NEVER


@dataclass
class Run:
    """What came of it."""

    summary: Summary
    metrics: Metrics
    world: World
    fleet: Fleet
    drained: bool  # all work came to its end


def simulate(plan: Plan, arrivals: Iterable[Arrival]) -> Run:
    """Run the plan on these arrivals, which are used up."""
    world = World(plan.world, plan.policies())
    metrics, log = Metrics(), EventLog(plan.log)
    for watcher in (metrics, log, *plan.watchers):
        world.watch(watcher)
    fleet = Fleet(world, plan.fleet, managed=plan.managed)
    for prepare in plan.prepare:
        prepare(world, fleet)
    Callers(world, arrivals, plan.terms)
    drained = world.run(plan.until)
    summary = summarise(metrics, fleet, plan.objective)
    summary.name, summary.seed = plan.name, plan.world.seed
    summary.log_digest, summary.log_lines = log.digest, log.lines
    return Run(summary, metrics, world, fleet, drained)
