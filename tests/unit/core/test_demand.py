"""How much work comes, and what the scaling law makes of it in the core."""

from __future__ import annotations

import pytest

from scheduler_service.core import commands as cmd
from scheduler_service.core.demand import Demand, advised_spare
from scheduler_service.core.interfaces import PoolLoad
from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.queues import PoolQueue
from scheduler_service.core.settings import AutoscaleSettings
from scheduler_service.core.state import Pool
from scheduler_service.core.types import SECOND
from scheduler_service.policies import build
from tests.builders import World, engine, model, seconds, settings


def world(**limits: int | bool) -> World:
    """Scaling by the law, from none to ten nodes; the model is known before any node has it."""
    fields = {"enabled": True, "min_nodes": 0, "max_nodes": 10, **limits}
    scale = AutoscaleSettings(**fields)  # type: ignore[arg-type]
    core = settings(autoscale=scale, known_models=frozenset({"m"}))
    return World(core, build({"autoscale": "law"}))


def test_demand_is_that_of_the_last_minute() -> None:
    demand = Demand()
    for second in range(120):
        demand.add(second * SECOND, 3 * SECOND)
        demand.add(second * SECOND + 1, SECOND)
    assert demand.erlangs(119 * SECOND) == pytest.approx(4.0)
    assert demand.erlangs(149 * SECOND) == pytest.approx(2.0)
    assert demand.erlangs(500 * SECOND) == 0
    assert len(demand.seconds) == 0


def test_peak_is_that_of_five_minutes_and_growth_that_of_one() -> None:
    demand = Demand()
    for second in range(700):
        demand.add(second * SECOND, (10 if 100 <= second < 160 else 1) * SECOND)
        demand.look(second * SECOND)
        if second == 300:
            assert demand.peak() == pytest.approx(10.0)
    assert demand.peak() == pytest.approx(1.0)
    assert demand.growth == pytest.approx(9.0)
    assert len(demand.history) <= 301


def test_spare_nodes_are_advised_where_starts_take_longer_than_a_minute() -> None:
    pool = Pool("m", PoolQueue(8), PoolLoad(0, 0, 0, 0, 0, 0, 0, 0, 10, 1 << 30))
    pool.demand.growth, pool.demand.slots_per_node = 20.0, 8
    assert advised_spare(pool, 30 * SECOND) == 0
    assert advised_spare(pool, 120 * SECOND) == 5


def test_first_arrival_starts_a_node_at_once() -> None:
    """It does not wait for a tick, and is not given up while the node may still come."""
    w = world(tick=seconds(100))
    w.step()
    request = w.submit()
    w.advance(0.01)
    assert [c.desired for c in w.of(cmd.RequestScale)] == [1]
    w.advance(100)
    assert w.outcome(request) is None
    w.agent(managed=True)
    w.agents["n0"].finish(request)
    assert w.outcome(request) is not None


def test_node_that_never_comes_ends_the_wait() -> None:
    w = world()
    request = w.submit()
    w.advance(200)
    assert w.result(request).reason.name == "NO_CAPACITY"


def test_cold_start_is_measured() -> None:
    w = world()
    w.submit()
    w.advance(0.01)
    w.advance(45)
    w.agent(managed=True)
    demand = w.scheduler.state.pools["m"].demand
    assert demand.cold_start / SECOND == pytest.approx(45, abs=0.1)


def test_cold_start_is_that_of_each_node_while_others_follow() -> None:
    """One was asked for at 0 s, others at 10 s; each took 30 s, whatever was asked for last."""
    w = world()
    w.submit()
    w.advance(10)
    w.submit(100)
    w.advance(2)
    assert len(w.of(cmd.RequestScale)) >= 2
    w.advance(18)
    w.agent("n0", managed=True)
    demand = w.scheduler.state.pools["m"].demand
    assert demand.cold_start / SECOND == pytest.approx(30, abs=0.1)
    w.advance(11)
    w.agent("n1", managed=True)
    assert demand.cold_start / SECOND == pytest.approx(30.5, abs=1)


def test_job_items_are_no_demand() -> None:
    w = world()
    w.submit(20, request_class=RequestClass.JOB)
    w.advance(10)
    assert not w.of(cmd.RequestScale)


def test_law_follows_the_demand_that_it_sees() -> None:
    """4 requests a second of 2 s each are 8 Erlangs: (8 + 3.1) / 2 = 5.6 nodes of two slots."""
    w = world()
    stated = [model(configured_service=2 * SECOND)]
    for number in range(5):
        w.agent(f"n{number}", engine(slots=2, models=stated), managed=True)
    for _ in range(240):
        w.submit()
        w.advance(0.25)
        w.step(*[agent.beat() for agent in w.agents.values()])
        done = w.now - 2 * SECOND
        for agent in list(w.agents.values()):
            for held in list(agent.held.values()):
                if held.attempt.started_at <= done:
                    agent.finish(held.attempt.request)
        want = w.of(cmd.RequestScale)
        if want and want[-1].desired > len(w.agents):
            w.agent(f"n{len(w.agents)}", engine(slots=2, models=stated), managed=True)
    assert len(w.agents) == 6
