"""Servers that cannot keep up: with urgent requests, or with one tenant's."""

from __future__ import annotations

import itertools
from random import Random

from scheduler_service.core import CoreSettings
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import MILLISECOND, SECOND
from scheduler_service.policies import build
from simulator.callers import Terms
from simulator.engines import IndependentEngine
from simulator.fleet import Group
from simulator.kinds import NodeKind
from simulator.predictors import oracle
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


def run_crowd(order: str, options: dict[str, object], watcher: Watcher, *, seed: int = 1) -> Run:
    """Two tenants, nine requests of one to one of the other, both beyond their share, no floor."""
    random = Random(seed)
    kind = NodeKind(name="n", make=lambda host: IndependentEngine(host, 4), slots=4)
    instants = itertools.takewhile(lambda at: at < 10 * SECOND, poisson(1_000.0, seed=seed))
    arrivals = [
        Arrival(
            at,
            random.randint(1, 2_000),
            random.randint(1, 500),
            tenant="many" if random.random() < 0.9 else "few",
            service=50 * MILLISECOND,
        )
        for at in instants
    ]
    queue = QueueSettings(max_requests=1 << 30, floor_every=0)
    plan = Plan(
        fleet=[Group(1, kind)],
        policies=lambda: build({"order": order, "admission": "open"}, {"order": options}),
        world=WorldSettings(core=CoreSettings(queue=queue)),
        terms=Terms(predict=oracle),
        watchers=[watcher],
        until=20 * SECOND,
    )
    return simulate(plan, arrivals)
