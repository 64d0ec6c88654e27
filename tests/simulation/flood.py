"""A flood of urgent requests over a few that are not, on servers that cannot keep up."""

from __future__ import annotations

import itertools
from random import Random

from scheduler_service.core import CoreSettings
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import MILLISECOND, SECOND
from scheduler_service.policies import build
from simulator.engines import IndependentEngine
from simulator.fleet import Group
from simulator.kinds import NodeKind
from simulator.simulation import Plan, Run, simulate
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.workload.processes import poisson
from simulator.world import WorldSettings


def run_flood(floor_every: int, watcher: Watcher, *, seed: int = 1) -> Run:
    """Load 1.3 of p=10, with one request of p=1 among thirty, until it drains."""
    random = Random(seed)
    kind = NodeKind(name="n", make=lambda host: IndependentEngine(host, 4), slots=4)
    instants = itertools.takewhile(lambda at: at < 30 * SECOND, poisson(104.0, seed=seed))
    arrivals = [
        Arrival(at, service=50 * MILLISECOND, priority=1 if random.random() < 1 / 30 else 10)
        for at in instants
    ]
    queue = QueueSettings(max_requests=1 << 30, floor_every=floor_every)
    plan = Plan(
        fleet=[Group(1, kind)],
        policies=lambda: build({"order": "strict", "admission": "open"}),
        world=WorldSettings(core=CoreSettings(queue=queue)),
        watchers=[watcher],
    )
    return simulate(plan, arrivals)
