"""How large a run fits into minutes? A thousand nodes and a million requests on one core.

The live core with its own policies, nodes modelled directly: eight slots each with Azure's lengths
of conversations, at 85 % of what they can do. Events within 5 ms are one step of the core, as a
busy live loop gathers them. Prints seconds, memory and microseconds per request.
"""

from __future__ import annotations

import resource
import time
from typing import Final

from scheduler_service.core.types import MILLISECOND, NEVER
from simulator.experiments.verdicts import Experiment, Findings, exactly, holds
from simulator.fleet import Group, kind
from simulator.simulation import Plan, simulate
from simulator.workload.assignment import Assignment
from simulator.workload.lengths import preset
from simulator.workload.processes import poisson, requests
from simulator.world import WorldSettings

NODES, REQUESTS = 1_000, 1_000_000
PER_NODE: Final = 0.85 * 8 / 7.39  # requests per second: mean service 7.39 s on 8 slots
MINUTES, GIBIBYTES = 10, 4


def measure(short: bool) -> Findings:
    """One run."""
    nodes, count = (40, 4_000) if short else (NODES, REQUESTS)
    plan = Plan(
        fleet=[Group(nodes, kind("slots-70B"))],
        world=WorldSettings(coalesce=5 * MILLISECOND, sample_every=NEVER),
    )
    instants = poisson(PER_NODE * nodes, seed=1)
    arrivals = Assignment()(requests(instants, preset("azure-conv"), count=count))
    begun = time.process_time()
    run = simulate(plan, arrivals)
    seconds = time.process_time() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    each = 1e6 * seconds / count
    found = [
        exactly(f"{nodes} nodes: requests that succeeded", count, run.summary.all.succeeded),
        holds("time on one core", f"below {MINUTES} min", f"{seconds:.0f} s, {each:.0f} us each",
              seconds < 60 * MINUTES),
        holds("memory", f"below {GIBIBYTES} GiB", f"{memory:.2f} GiB", memory < GIBIBYTES),
    ]  # fmt: skip
    return Findings(found)


SCALE = Experiment("scale", "A thousand nodes and a million requests", measure)
