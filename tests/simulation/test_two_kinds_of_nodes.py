"""Nodes modelled directly answer the core as nodes that run the agent's own core do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler_service.core import CoreSettings
from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.policies import build
from simulator.agent_node import AgentNode
from simulator.callers import Callers
from simulator.checkers import Accounts
from simulator.fleet import kind
from simulator.kinds import NodeKind
from simulator.metrics import Metrics
from simulator.network import Network, NetworkOptions
from simulator.nodes import ModelledNode
from simulator.summary import Part, summarise
from simulator.workload.arrival import Arrival
from simulator.workload.lengths import preset
from simulator.workload.processes import poisson, requests
from simulator.world import World, WorldSettings


def arrivals(rate: float) -> Iterator[Arrival]:
    later = (at + SECOND for at in poisson(rate, seed=5))  # once the nodes are there
    return requests(later, preset("azure-conv"), count=300, seed=5)


def run(node_kind: NodeKind, rate: float, *, agents: bool) -> Part:
    settings = WorldSettings(core=CoreSettings(), seed=1, sample_every=NEVER)
    world = World(settings, build({"order": "fifo"}))
    metrics, accounts = Metrics(), Accounts()
    world.watch(metrics)
    world.watch(accounts)
    network = Network(world.agenda, NetworkOptions(delay=1, sigma=0.0), seed=1)
    for number in range(2):
        if agents:
            AgentNode(world, network, f"n{number}", node_kind).start()
        else:
            ModelledNode(world, f"n{number}", node_kind).join()
    Callers(world, arrivals(rate))
    assert world.run(10_000 * SECOND)
    world.advance_to(world.now + SECOND)
    accounts.close(world)
    return summarise(metrics).all


@pytest.mark.parametrize(
    ("node_kind", "rate"),
    [(kind("slots-70B", 4), 1.0), (kind("H100-70B", 8), 3.0), (kind("static", 8), 100.0)],
    ids=lambda value: getattr(value, "name", value),
)
def test_both_kinds_of_nodes_give_the_same_times(node_kind: NodeKind, rate: float) -> None:
    modelled, real = (run(node_kind, rate, agents=agents) for agents in (False, True))
    assert modelled.requests == real.requests == 300
    assert real.wait.mean == pytest.approx(modelled.wait.mean, rel=0.02, abs=0.002)
    assert real.total.mean == pytest.approx(modelled.total.mean, rel=0.01, abs=0.003)
    assert real.total.p99 == pytest.approx(modelled.total.p99, rel=0.02, abs=5 / 1000)
