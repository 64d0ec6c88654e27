"""Fair shares and deadlines inside of a band: the worked examples, weights, costs, pools."""

from __future__ import annotations

import pytest

from scheduler_service.core.fairness import TAG, FairBand, actual_cost, assess
from scheduler_service.core.interfaces import Discipline
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.queues import PoolQueue
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Request, ServiceEstimate
from scheduler_service.policies import build
from scheduler_service.policies.ordering import Aged, Fifo
from tests.builders import Agent, World, engine, queue


def request(place: int, tenant: str, cost: int, start: int = NEVER) -> Request:
    """Of that tenant and cost; `start`: the latest that meets its deadline."""
    made = Request(place, f"r{place}", "m", tenant=tenant, place=place)
    made.cost, made.latest_start = cost, start
    return made


def take(band: FairBand) -> str:
    """Dispatch the next; whose it was."""
    head = band.head()
    assert head is not None
    band.take(head, floor=False)
    return head.tenant


def fair_world(
    window: int = 0, names: str = "ab", each: int = 0, floor_every: int = 0
) -> tuple[World, Agent]:
    """One busy slot, and `each` requests of 1,000 tokens of every tenant waiting."""
    policies = build(options={"order": {"window": window}})
    world = World(policies=policies, queue=queue(floor_every=floor_every))
    agent = world.agent()
    world.submit(tenant="z")
    for name in names:
        for _ in range(each):
            world.submit(tenant=name, prompt_tokens=1_000)
    return world, agent


def starts(agent: Agent, **end: int) -> str:
    """Finish all that runs until nothing does; whose they were, in the order of their start."""
    order = ""
    while agent.running():
        agent.finish(*agent.running(), **end)
        order += "".join(r.tenant for r in agent.running())
    return order


def test_ageing_lifts_by_two_levels_and_the_eighth_goes_to_the_oldest() -> None:
    """Example 1: p5 for 1 s (5.1), p4 for 25 s (6, capped), p1 for 30 s (3)."""
    aged, now = Aged(), 30 * SECOND
    for since_floor, expected in ((0, [4, 5, 1]), (7, [1, 4, 5])):
        pool = PoolQueue(8, aged.discipline())
        pool.since_floor = since_floor
        for place, (priority, at) in enumerate([(1, 0), (4, 5), (5, 29)], 1):
            pool.push(Request(place, "", "m", priority, received_at=at * SECOND, place=place))
        walk, order = pool.walk(aged, now), []
        while (head := walk.peek()) is not None:
            walk.take(head)
            order.append(head.priority)
        walk.finish()
        assert order == expected


def test_two_tenants_of_unlike_costs_get_the_same() -> None:
    """Example 2: a queues 3 x 3,000, b 3 x 1,000: a b b b a a, level after four."""
    band = FairBand(Discipline(window=0), {})
    for place in range(1, 7):
        band.push(request(place, "ab"[place > 3], 3_000 if place <= 3 else 1_000))
    assert "".join(take(band) for _ in range(4)) == "abbb"
    assert {u.start for u in band.users.values()} == {3_000 * TAG}
    assert take(band) + take(band) == "aa"


def test_a_third_tenant_starts_level_with_the_others() -> None:
    """Example 3: it banked no credit while it was away."""
    band = FairBand(Discipline(window=0), {})
    for place in range(1, 9):
        band.push(request(place, "ab"[place % 2], 1_000))
    for _ in range(6):
        take(band)
    assert band.virtual == 3_000 * TAG
    band.push(request(9, "c", 1_000))
    assert band.users["c"].start == 3_000 * TAG
    assert sorted(take(band) for _ in range(3)) == ["a", "b", "c"]


def test_a_deadline_goes_first_only_within_the_window() -> None:
    """Example 4: b within it goes first; c, more urgent, is beyond it until V has moved on."""
    band = FairBand(Discipline(window=4_000), {})
    for place, (tenant, start, latest) in enumerate(
        [("a", 0, NEVER), ("b", 3_000, 200), ("c", 5_000, 50)], 1
    ):
        band.push(request(place, tenant, 1_500, latest))
        user = band.users[tenant]
        if start:
            band.reconcile(request(0, tenant, 0), start)
        assert user.start in (start * TAG, (start - 1) * TAG), "a cost is at least 1"
    assert take(band) == "b"
    band.push(request(4, "a", 1_500))
    assert take(band) == "a", "c is not eligible while V is 0"
    assert take(band) == "c", "V is 1,500 now"


def test_who_used_more_than_predicted_waits_for_the_difference() -> None:
    """Example 5: predicted 2,000, actual 5,000: the others get 3,000 first."""
    band = FairBand(Discipline(window=0), {})
    for place in range(1, 11):
        band.push(request(place, "ab"[place % 2], 1_000))
    first = band.head()
    assert first is not None
    first.cost = 2_000
    assert take(band) == "b"
    band.reconcile(first, 5_000)
    assert "".join(take(band) for _ in range(6)) == "aaaaab"


def test_corrections_come_from_results() -> None:
    """A tenant whose requests make ten times the output that was expected gets a tenth."""
    _, agent = fair_world(each=12)
    order = ""
    while agent.running() and len(order) < 11:
        (running,) = agent.running()
        used = 10_000 if running.tenant == "a" else 1_000
        agent.finish(running, input_tokens=used, output_tokens=0)
        order += "".join(r.tenant for r in agent.running())
    assert order.count("b") == 10


def test_weights_divide_a_band() -> None:
    """Three times as much for one that is configured so."""
    world = World(
        policies=build(options={"order": {"window": 0}}),
        queue=queue(floor_every=0, weights={"a": 3}),
    )
    agent = world.agent()
    world.submit(tenant="z")
    for name in "ab":
        world.submit(12, tenant=name, prompt_tokens=100)
    assert starts(agent, input_tokens=100, output_tokens=0)[:12].count("a") == 9


def test_users_stand_in_where_no_tenant_is_known() -> None:
    world, agent = fair_world()
    for user in ("one", "two"):
        world.submit(4, user_id=user, prompt_tokens=100)
    order = []
    while agent.running():
        agent.finish(*agent.running(), input_tokens=100, output_tokens=0)
        order += [r.user_id for r in agent.running()]
    assert [sorted(order[n : n + 2]) for n in (0, 2, 4, 6)] == [["one", "two"]] * 4


def test_a_flood_of_one_tenant_does_not_hold_up_another() -> None:
    """Nine to one in requests, half and half in service, and no slot idle."""
    world, agent = fair_world(names="a", each=90)
    world.submit(10, tenant="b", prompt_tokens=1_000)
    assert starts(agent, input_tokens=1_000, output_tokens=0)[:20].count("b") == 10


def test_retries_are_charged_once_and_keep_their_place() -> None:
    world, agent = fair_world(each=4)
    agent.finish(*agent.running(), output_tokens=0)
    (first,) = agent.running()
    band = world.scheduler.state.pools["m"].queue.fair_band(first)
    assert band is not None
    finish = band.users[first.tenant].finish
    agent.finish(first, reason=Reason.ENGINE_BUSY, refused=True)
    world.advance(0.2)
    (other,) = agent.running()
    assert other.tenant != first.tenant, "a share has been had, so the other is next"
    agent.finish(other, output_tokens=0)
    assert agent.running() == [first], "before all others of its tenant"
    assert band.users[first.tenant].finish == finish


def test_users_with_nothing_to_say_are_forgotten() -> None:
    world, agent = fair_world(names="abcdefgh", each=3)
    starts(agent, input_tokens=1_000, output_tokens=0)
    world.submit(2, tenant="last", prompt_tokens=5_000)
    starts(agent, input_tokens=5_000, output_tokens=0)
    band = world.scheduler.state.pools["m"].queue.fair_band(Request(0, "", "m"))
    assert band is not None
    assert list(band.users) == ["last"]


def test_one_that_cannot_be_placed_holds_up_nobody_and_catches_up() -> None:
    world = World(policies=build(options={"order": {"window": 0}}), queue=queue(floor_every=0))
    agent = world.agent("a", engine(), task_types=("chat",))
    world.submit(tenant="z", task_type="chat")
    stuck = world.submit(tenant="a", task_type="code", prompt_tokens=1_000)
    world.submit(6, tenant="b", task_type="chat", prompt_tokens=1_000)
    assert starts(agent) == "bbbbbb"
    assert stuck.attempts == ()


def test_cost_is_in_tokens_and_in_milliseconds_where_there_are_none() -> None:
    known = ServiceEstimate(mean=250 * MILLISECOND, tokens=40.0, samples=3)
    silent = ServiceEstimate(mean=250 * MILLISECOND, samples=3)
    cases = [
        (Request(1, "", "m", prompt_tokens=100, output_tokens=30), known, 160),
        (Request(1, "", "m", prompt_tokens=100), known, 180),
        (Request(1, "", "m"), known, 80),
        (Request(1, "", "m"), silent, 250),
        (Request(1, "", "m"), ServiceEstimate(), 1),
    ]
    for made, estimate, cost in cases:
        assess(made, estimate, estimate)
        assert made.cost == cost
    assert actual_cost(cases[0][0], 100, 50, SECOND) == 200
    assert actual_cost(cases[0][0], 0, 0, SECOND) == 160, "the engine does not say"
    assert actual_cost(cases[3][0], 0, 0, SECOND) == 1_000


def test_latest_start_leaves_time_for_the_service() -> None:
    made = Request(1, "", "m", deadline=9 * SECOND)
    assess(made, ServiceEstimate(), ServiceEstimate(mean=2 * SECOND, samples=1))
    assert made.latest_start == 7 * SECOND


def test_what_is_learned_meanwhile_lets_no_like_request_pass_another() -> None:
    world = World(queue=queue(floor_every=0))
    agent = world.agent()
    world.submit(timeout=60)
    world.advance(1.5)
    early = world.submit(3, timeout=60)
    world.advance(0.5)
    agent.finish(*agent.running())  # the first that ends: 2 s, where nothing was known
    world.advance(0.1)
    late = world.submit(2, timeout=60)
    order = []
    while agent.running():
        order += [r.rid for r in agent.running()]
        agent.finish(*agent.running())
    assert order == [r.rid for r in early + late]


def test_each_pool_may_have_an_order_of_its_own() -> None:
    world = World(policies=build(orderings={"plain": Fifo()}), queue=queue(floor_every=0))
    agent = world.agent("a", engine(slots=1, models=["m", "plain"]))
    for name, expected in (("plain", [1, 10]), ("m", [10, 1])):
        world.submit(model=name)
        for priority in (1, 10):
            world.submit(model=name, priority=priority)
        order = []
        while agent.running():
            agent.finish(*agent.running())
            order += [r.priority for r in agent.running()]
        assert order == expected


@pytest.mark.parametrize(("sjf", "first"), [(False, 900), (True, 9)])
def test_cheaper_ones_go_first_only_where_that_is_asked_for(sjf: bool, first: int) -> None:
    band = FairBand(Discipline(sjf=sjf), {})
    band.push(request(1, "a", 900))
    band.push(request(2, "a", 9))
    head = band.head()
    assert head is not None
    assert head.cost == first
