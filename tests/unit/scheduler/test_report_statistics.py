"""What is counted per second, and what a window adds up to."""

from __future__ import annotations

import random

import pytest

from batchyard.v1 import types_pb2
from scheduler_service.core.events import SessionBroken
from scheduler_service.core.outcomes import EngineMode, Outcome, Reason, RequestClass
from scheduler_service.core.types import MICROSECOND, MILLISECOND, SECOND
from scheduler_service.report import histogram
from scheduler_service.report.buckets import ROWS_MAX
from scheduler_service.report.build import _add
from scheduler_service.report.timeline import POINTS_MAX, tenant_stats, timeline
from scheduler_service.report.window import Window
from tests.unit.scheduler.small_world import SmallWorld

INTERACTIVE = RequestClass.INTERACTIVE


def window(world: SmallWorld, seconds: int = 60) -> Window:
    return Window(world.statistics, world.clock.now(), seconds * SECOND)


async def test_percentiles_are_close_to_the_exact_ones() -> None:
    draw = random.Random(7)
    waits = [int(draw.expovariate(1 / 0.2) * SECOND) for _ in range(5_000)]
    bars: histogram.Bars = {}
    for wait in waits:
        histogram.add(bars, wait)
    for share in (0.1, 0.5, 0.99):
        exact = sorted(waits)[int(share * len(waits))]
        assert histogram.percentile(bars, share) == pytest.approx(exact, rel=0.07)
    assert histogram.percentile({}, 0.5) is None


@pytest.mark.parametrize("micros", [0, 1, 7, 8, 9, 15, 16, 1000, 123_456_789])
async def test_a_bar_holds_what_was_put_into_it(micros: int) -> None:
    bars: histogram.Bars = {}
    histogram.add(bars, micros * MICROSECOND)
    shown = histogram.percentile(bars, 1.0)
    assert shown == pytest.approx(micros * MICROSECOND, rel=0.0625)


async def test_arrivals_departures_and_waits_are_counted_by_band() -> None:
    world = SmallWorld()
    await world.join("n0")
    first, second = await world.submit(2, priority=7)
    await world.pass_time(2)
    await world.finish(first)
    flow = window(world).sums.flows["m", INTERACTIVE, 7]
    assert (flow.arrivals, flow.departures) == (2, 2)
    assert histogram.percentile(flow.waits, 0.5) == 0
    assert histogram.percentile(flow.waits, 1.0) == pytest.approx(2 * SECOND, rel=0.07)
    await world.finish(second)
    assert window(world).sums.flows["m", INTERACTIVE, 7].departures == 2


async def test_only_the_nodes_own_failures_count_against_it() -> None:
    """Behaviour 59: a prompt that is too long is not the node's fault."""
    world = SmallWorld()
    await world.join("n0", slots=9)
    requests = await world.submit(6, max_attempts=1)
    await world.pass_time(1)
    await world.finish(*requests[:3])
    await world.finish(requests[3], reason=Reason.CONTEXT_TOO_LONG)
    await world.finish(requests[4], reason=Reason.ENGINE_BUSY, refused=True)
    await world.finish(requests[5], reason=Reason.ENGINE_ERROR)
    figures = window(world).sums.nodes["n0"]
    assert (figures.succeeded, figures.failed) == (3, 1)
    assert figures.failure_rate == 0.25
    assert figures.avg_latency == 1 * SECOND


async def test_totals_of_the_window_are_those_since_it_began() -> None:
    world = SmallWorld()
    await world.join("n0", slots=2)
    await world.finish(*await world.submit(2))
    await world.pass_time(20)
    await world.finish(*await world.submit(1), output_tokens=9)
    await world.pass_time(5)
    assert window(world, 60).totals.outcomes[Outcome.SUCCEEDED] == 3
    recent = window(world, 10).totals
    assert (recent.received, recent.outcomes[Outcome.SUCCEEDED]) == (1, 1)
    assert recent.output_tokens == 9
    assert world.statistics.totals().received == 3


async def test_what_left_the_window_is_forgotten_but_for_the_totals() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.finish(*await world.submit(1))
    await world.pass_time(70)
    assert len(world.statistics._buckets) <= 62
    assert len(world.statistics._blocks) <= 8
    assert len(world.statistics.samples) <= 62
    assert window(world).totals.received == 0
    assert window(world).sums.flows == {}
    assert window(world, 3600).length == 60 * SECOND
    assert world.statistics.totals().received == 1


async def test_totals_of_a_lost_node_stay_counted() -> None:
    """Behaviour 112: its row goes, the sums stay."""
    world = SmallWorld()
    node = await world.join("n0")
    await world.finish(*await world.submit(1))
    await world.post(SessionBroken("n0", node.epoch))
    await world.pass_time(3)
    assert list(window(world).sums.lost) == ["n0"]
    await world.pass_time(700)
    assert "n0" not in world.nodes
    assert world.statistics.totals().outcomes[Outcome.SUCCEEDED] == 1
    await world.join("n0")
    assert world.statistics.node_totals["n0"] == [1, 0]


def test_cost_that_no_message_holds_is_cut_down() -> None:
    most = types_pb2.Money(currency="VND", micros=(1 << 63) - 1)
    assert _add(most, types_pb2.Money(currency="VND", micros=1)) == most


async def test_totals_survive_a_core_that_failed_and_was_replaced() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.finish(*await world.submit(2))
    world.driver.scheduler = world.new_scheduler()
    await world.submit(1, model="unknown")
    totals = world.statistics.totals()
    assert (totals.received, totals.outcomes[Outcome.SUCCEEDED]) == (3, 2)
    assert totals.outcomes[Outcome.REJECTED] == 1


async def test_a_sample_shows_queue_and_nodes_as_they_are() -> None:
    world = SmallWorld()
    await world.join("busy", slots=2)
    await world.join("idle", models=["other"])
    await world.submit(5)
    await world.pass_time(4)
    (pool,) = window(world).pool_samples("m")[-1:]
    assert (pool.waiting, pool.live_nodes, pool.idle_nodes) == (3, 1, 0)
    assert (pool.slots, pool.in_flight, pool.oldest_wait) == (2, 2, 4 * SECOND)
    (other,) = window(world).pool_samples("other")[-1:]
    assert (other.waiting, other.idle_nodes) == (0, 1)
    assert window(world).sums.nodes["busy"].utilization == 1.0
    assert window(world).sums.nodes["idle"].utilization == 0.0


async def test_the_slowest_are_named_slowest_first() -> None:
    world = SmallWorld()
    await world.join("n0", slots=30)
    requests = await world.submit(30)
    for request in requests:
        await world.pass_time(0.5)
        await world.finish(request)
    assert window(world).slowest() == requests[:9:-1]


async def test_costs_are_slot_time_with_what_was_wasted() -> None:
    world = SmallWorld()
    await world.join("n0", slots=4)
    (request,) = await world.submit(1, tenant="t", task_type="chat", inputs=2)
    await world.pass_time(3)
    await world.finish(request, reason=Reason.ENGINE_ERROR, output_tokens=5)
    await world.pass_time(1)
    await world.finish(request, output_tokens=7)
    cost = window(world).sums.costs["t", "m", "chat", "n0"]
    assert cost.requests == 1
    assert cost.slot_ns >= 2 * 3 * SECOND
    assert cost.node_ns == pytest.approx(cost.slot_ns / 4, abs=2)
    assert cost.output_tokens == 12


async def test_tenants_at_will_do_not_fill_the_memory() -> None:
    world = SmallWorld()
    await world.join("n0", slots=ROWS_MAX + 50)
    for number in range(ROWS_MAX + 50):
        await world.submit(1, tenant=f"t{number}")
    await world.finish(*world.driver.scheduler.state.requests.copy().values())
    costs = window(world).sums.costs
    assert len(costs) <= ROWS_MAX + 1
    assert sum(cost.requests for cost in costs.values()) == ROWS_MAX + 50


async def test_static_batches_tell_how_full_they_were() -> None:
    world = SmallWorld()
    await world.join("n0", slots=4, mode=EngineMode.STATIC)
    await world.submit(3)
    await world.pass_time(0.1)
    assert window(world).sums.fills == {"m": [1, 3, 4]}


async def test_refusals_are_counted_by_reason() -> None:
    world = SmallWorld()
    await world.join("n0")
    await world.submit(2, model="unknown")
    await world.submit(1, deadline=world.clock.now() + MILLISECOND)
    assert window(world).rejects == {"MODEL_NOT_FOUND": 2}


@pytest.mark.parametrize("length", [1, 9, 10, 11, 25, 59, 60])
async def test_blocks_add_up_to_what_their_seconds_do(length: int) -> None:
    world = SmallWorld()
    await world.join("n0", slots=9)
    for number in range(70):
        await world.finish(*await world.submit(1 + number % 3, tenant=f"t{number % 4}"))
        await world.pass_time(1)
        window(world, 60).sums  # a report on the way  # noqa: B018
    now = world.clock.now() // SECOND
    seconds = [b for s, b in world.statistics._buckets.items() if s >= now - length]
    sums = window(world, length).sums
    key = ("m", INTERACTIVE, 5)
    assert sums.flows[key].arrivals == sum(b.flows[key].arrivals for b in seconds if b.flows)
    assert sums.nodes["n0"].succeeded == sum(b.nodes["n0"].succeeded for b in seconds)
    assert sums.nodes["n0"].slots == 9 * len(seconds)


async def test_an_hour_is_remembered_by_ten_seconds_beyond_the_usual_window() -> None:
    world = SmallWorld()
    world.statistics.memory = 3600 * SECOND
    await world.join("n0", slots=2)
    await world.finish(*await world.submit(3, tenant="acme"))
    for _ in range(20):
        await world.pass_time(30)
        await world.finish(*await world.submit(1, tenant="acme"))
    recent, whole = window(world), window(world, 3600)
    assert sum(flow.departures for flow in recent.sums.flows.values()) < 5
    assert sum(flow.departures for flow in whole.sums.flows.values()) == 23
    assert whole.totals.received == 23
    assert [row.dispatched for row in tenant_stats(whole)] == [23]
    assert len(world.statistics._buckets) <= 63
    assert len(world.statistics.samples) <= 63 + 600 // 10
    points = timeline(whole, world.clock)
    assert 2 <= len(points) <= POINTS_MAX
    assert [p.time.ToNanoseconds() for p in points] == sorted(
        p.time.ToNanoseconds() for p in points
    )
