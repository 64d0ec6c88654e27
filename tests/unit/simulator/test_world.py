"""The world turns the live core, and modelled nodes answer it as sound agents do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from scheduler_service.core import CoreSettings
from scheduler_service.core import commands as cmd
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import NodeHealth, Outcome
from scheduler_service.core.settings import AutoscaleSettings, QueueSettings
from scheduler_service.core.types import MILLISECOND, SECOND, Instant, Request
from scheduler_service.policies import build
from simulator.calibration import MEASURED_2023
from simulator.callers import Terms
from simulator.checkers import Accounts, Broken
from simulator.engines import ContinuousEngine, ContinuousProfile, IndependentEngine
from simulator.fleet import Fleet, FleetError, Group, kind, parse, static
from simulator.kinds import LOADING_OBSERVED, NodeKind
from simulator.predictors import at_most, oracle
from simulator.simulation import Plan, Run, simulate
from simulator.summary import Objective
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival
from simulator.workload.processes import poisson, requests
from simulator.world import World, WorldSettings


def servers(slots: int = 1, **fields: object) -> NodeKind:
    values = {"name": "servers", "price_per_hour": 2.0, **fields}
    return NodeKind(make=lambda host: IndependentEngine(host, slots), slots=slots, **values)  # type: ignore[arg-type]


def play(
    arrivals: Iterable[Arrival],
    *groups: Group,
    core: CoreSettings | None = None,
    policies: PolicySet | None = None,
    watchers: Sequence[Watcher] = (),
    terms: Terms | None = None,
    prepare: Sequence[object] = (),
    managed: bool = False,
    **world: object,
) -> Run:
    """Run it with the accounts of the checkers beside it."""
    accounts = Accounts()
    plan = Plan(
        fleet=groups or [Group(1, servers())],
        policies=lambda: policies or build(),
        world=WorldSettings(core=core or CoreSettings(check_every=1), **world),  # type: ignore[arg-type]
        watchers=[accounts, *watchers],
        terms=terms or Terms(),
        prepare=prepare,  # type: ignore[arg-type]
        managed=managed,
    )
    run = simulate(plan, arrivals)
    if run.drained:
        run.world.advance_to(run.world.now + SECOND)
        accounts.close(run.world)
    return run


def asked(*services_s: float, at: Instant = 0) -> list[Arrival]:
    return [Arrival(at, service=round(s * SECOND)) for s in services_s]


class Waits(Watcher):
    """Of each request, in order of arrival."""

    def __init__(self) -> None:
        self.by_rid: dict[int, float] = {}

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        self.by_rid[command.request.rid] = command.request.queue_time / SECOND


def test_requests_wait_for_the_one_server_in_turn() -> None:
    waits = Waits()
    run = play(asked(2, 3, 1), watchers=[waits])
    assert list(waits.by_rid.values()) == [0, 2, 5]
    assert run.world.now >= 6 * SECOND
    assert run.summary.outcomes["succeeded"] == 3


def test_time_in_the_system_adds_up_by_both_counts() -> None:
    random_services = requests(
        poisson(3.0, seed=1), count=500, service=lambda r: r.randrange(SECOND // 2)
    )
    run = play(random_services)
    assert run.metrics.in_system_integral == run.metrics.sojourn > 0
    assert run.fleet.busy() > 0


def test_coalescing_lets_events_gather_before_a_step() -> None:
    arrivals = [Arrival(i * MILLISECOND, service=SECOND) for i in range(20)]
    alone = play([Arrival(a.at, service=a.service) for a in arrivals], Group(1, servers(20)))
    gathered = play(arrivals, Group(1, servers(20)), coalesce=10 * MILLISECOND)
    assert gathered.world.steps < alone.world.steps / 2
    assert gathered.summary.all.wait.most == 0
    assert gathered.summary.all.total.most == pytest.approx(1.01 + 0.01, abs=0.011)


def test_the_scheduler_s_own_time_can_be_charged() -> None:
    run = play(
        asked(1, 1), Group(1, servers(2)), decision_cost=lambda events, _: events * MILLISECOND
    )
    assert 1.0 < run.summary.all.total.most < 1.1


def test_a_killed_node_s_work_is_done_elsewhere() -> None:
    def kill(world: World, fleet: Fleet) -> None:
        world.agenda.at(SECOND, lambda _: fleet.nodes["n0000"].kill())

    run = play(asked(2, 2), Group(2, servers()), prepare=[kill])
    assert run.summary.failovers == 1
    assert run.summary.outcomes["succeeded"] == 2
    assert run.world.scheduler.state.nodes["n0000"].health is NodeHealth.LOST


def test_a_slow_node_is_avoided_once_it_is_known() -> None:
    def slow(_: World, fleet: Fleet) -> None:
        fleet.nodes["n0000"].slowness = 10.0

    arrivals = [Arrival(i * SECOND, service=SECOND // 2) for i in range(60)]
    run = play(arrivals, Group(2, servers(4)), prepare=[slow])
    nodes = run.world.scheduler.state.nodes
    assert nodes["n0001"].finished > 3 * nodes["n0000"].finished


def test_callers_who_leave_are_not_served() -> None:
    arrivals = asked(5, 5)
    arrivals[1].cancel_after = SECOND
    run = play(arrivals)
    assert run.summary.outcomes["cancelled"] == 1
    assert run.world.now < 8 * SECOND


def test_a_static_engine_gets_batches_within_its_limit() -> None:
    seen: list[int] = []

    class Sizes(Watcher):
        def on_commanded(self, now: Instant, commands: Sequence[cmd.Command]) -> None:
            seen.extend(len(c.batch.attempts) for c in commands if isinstance(c, cmd.DispatchBatch))

    group = Group(1, static(4, 20 * MILLISECOND, 2 * MILLISECOND))
    run = play([Arrival(0) for _ in range(10)], group, watchers=[Sizes()])
    assert max(seen) == 4
    assert run.summary.outcomes["succeeded"] == 10


def test_nodes_are_ordered_started_and_drained_by_the_autoscaler() -> None:
    group = Group(1, servers(1, cold_start=20 * SECOND))
    scaling = AutoscaleSettings(enabled=True, min_nodes=1, max_nodes=3)
    arrivals = [Arrival(i * SECOND // 2, service=SECOND) for i in range(120)]
    arrivals.append(Arrival(400 * SECOND, service=SECOND))
    run = play(arrivals, group, core=CoreSettings(autoscale=scaling, check_every=1), managed=True)
    assert len(run.fleet.nodes) == 3
    assert sum(n.up_since >= 0 for n in run.fleet.nodes.values()) == 1
    cold_hours = 2 * 20 / 3600
    assert run.fleet.ordered == 40 * SECOND
    assert run.summary.node_hours > cold_hours
    assert run.summary.cost == pytest.approx(2 * run.summary.node_hours, rel=1e-6)
    assert run.summary.scale_turns >= 4


def test_an_order_that_is_withdrawn_does_not_come() -> None:
    world = World(WorldSettings(), build())
    fleet = Fleet(world, [Group(1, servers(1, cold_start=10 * SECOND))])
    fleet.on_scale(cmd.RequestScale("m", 3, 1, 0, ""))
    assert fleet.starting == 2
    fleet.on_scale(cmd.RequestScale("m", 2, 1, 2, ""))
    world.advance_to(30 * SECOND)
    assert (len(fleet.nodes), fleet.starting) == (2, 0)


def test_what_is_refused_counts_against_the_objective() -> None:
    core = CoreSettings(queue=QueueSettings(max_requests=2), check_every=1)
    run = play(asked(1, 1, 1, 1, 1, at=SECOND), core=core)
    summary = run.summary
    assert (summary.rejected, summary.reasons) == (2, {"QUEUE_FULL": 2})
    assert summary.all.attained == pytest.approx(3 / 5)


def test_the_objective_is_met_by_wait_first_output_total_and_own_deadline() -> None:
    def attained(objective: Objective, timeout: int = 10) -> float:
        plan = Plan(fleet=[Group(1, servers())], objective=objective)
        arrivals = asked(2, 3, 1)
        for arrival in arrivals:
            arrival.timeout = timeout * SECOND
        return simulate(plan, arrivals).summary.all.attained

    assert attained(Objective()) == 1.0
    assert attained(Objective(wait=2 * SECOND)) == pytest.approx(2 / 3)
    assert attained(Objective(total=SECOND)) == 0.0
    assert attained(Objective(ttft=5 * SECOND)) == pytest.approx(2 / 3)
    assert attained(Objective(), timeout=4) == pytest.approx(1 / 3)


def test_cost_is_shared_by_slot_time() -> None:
    arrivals = asked(1, 3)
    arrivals[0].tenant, arrivals[1].tenant = "a", "b"
    bill = play(arrivals, Group(1, servers(2))).summary.cost_per_tenant
    assert bill["b"] == pytest.approx(3 * bill["a"])
    assert bill["a"] == pytest.approx(2.0 / 2 / 3600)


def test_fleets_are_read_from_text() -> None:
    first, second = parse("4xH100-70B, A100x4-70B@16")
    assert (first.count, first.kind.name, first.kind.slots) == (4, "H100-70B", 64)
    assert (second.count, second.kind.slots) == (1, 16)
    assert kind("H100-70B-2025").labels["calibration"] == "2025"
    with pytest.raises(FleetError, match="known: H100-70B"):
        parse("2xH200")
    with pytest.raises(FleetError, match="COUNTxKIND"):
        parse("4*H100-70B")
    with pytest.raises(FleetError, match="COUNTxKIND"):
        parse("1xH100-70B@" + 20 * "9")


def test_tokens_beyond_a_node_s_memory_are_not_sent() -> None:
    """Two that fit alone, but not together, are not sent together."""
    profile = ContinuousProfile(cost=MEASURED_2023["H100-70B"].cost, slots=4, kv_tokens=1_000)
    small = NodeKind(
        name="small",
        make=lambda host: ContinuousEngine(host, profile),
        slots=4,
        kv_capacity=1_000,
    )
    arrivals = [Arrival(SECOND, 600, 50) for _ in range(3)]
    run = play(arrivals, Group(1, small), terms=Terms(predict=oracle))
    engine = run.fleet.nodes["n0000"].engine
    assert isinstance(engine, ContinuousEngine)
    assert engine.preemptions == 0
    assert run.summary.outcomes["succeeded"] == 3
    assert run.summary.all.wait.most >= 2 * run.summary.all.wait.p50 > 0


def test_a_node_whose_memory_overflows_says_so_and_gets_less() -> None:
    """Outputs are longer than what was predicted, so that the memory fills and it preempts."""
    profile = ContinuousProfile(cost=MEASURED_2023["H100-70B"].cost, slots=8, kv_tokens=2_000)
    small = NodeKind(
        name="small", make=lambda host: ContinuousEngine(host, profile), slots=8, kv_capacity=2_000
    )
    arrivals = [Arrival(i * SECOND // 4, 100, 600) for i in range(40)]
    run = play(arrivals, Group(1, small), terms=Terms(predict=at_most(50)))
    engine = run.world.scheduler.state.nodes["n0000"].engines["e0"]
    assert engine.preemptions
    assert 0 < engine.slots_limit < 8
    assert run.summary.outcomes["succeeded"] == 40


def test_cold_starts_may_be_drawn_from_what_was_observed() -> None:
    observed = servers(1, cold_starts=LOADING_OBSERVED)
    drawn = sorted(observed.cold_start_of(1, number) / SECOND for number in range(2_000))
    assert drawn[1_000] == pytest.approx(22.7, abs=1.0)
    assert drawn[1_800] == pytest.approx(42.0, abs=1.5)
    assert drawn[-1] <= 79.4
    assert observed.cold_start_of(1, 7) == observed.cold_start_of(1, 7)


def test_nodes_state_the_speed_that_their_engines_have() -> None:
    spec = kind("H100-70B", 16).spec().engines[0]
    model = spec.models[0]
    assert spec.kv_capacity == pytest.approx(1_330_000, rel=0.01)
    assert model.prefill_rate == pytest.approx(2048 / 0.137, rel=0.01)
    assert model.token_times[0][0] == 1
    assert model.token_times[-1][0] == 16
    assert model.token_times[-1][1] > model.token_times[0][1]


def test_accounts_catch_a_second_outcome() -> None:
    accounts = Accounts()
    request = Request(1, "r1", "m")
    accounts.on_submitted(0, [request])
    finish = cmd.FinishRequest(request, Outcome.FAILED)
    accounts.on_commanded(1, [finish])
    with pytest.raises(Broken, match="two outcomes"):
        accounts.on_commanded(2, [finish])
    with pytest.raises(Broken, match="came twice"):
        accounts.on_submitted(3, [request])
    with pytest.raises(Broken, match="holds 3 of 2"):
        accounts.on_held(3, "n0", 3, 2)
