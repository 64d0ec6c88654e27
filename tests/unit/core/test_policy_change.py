"""Other policies take over while requests wait and run: nobody is lost, the new order holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Outcome, Reason, RequestClass, RequestState
from scheduler_service.core.settings import (
    AutoscaleSettings,
    FailoverSettings,
    HealthSettings,
    Hedge,
    Patience,
    QueueSettings,
)
from scheduler_service.core.types import NEVER, SECOND, Request
from scheduler_service.policies import build
from scheduler_service.policies.ordering import Fifo
from tests.builders import World, engine, seconds, static


def change(world: World, policies: Any = None, **parts: Any) -> ev.PoliciesChanged:
    """What is in force, but for this."""
    state = world.scheduler.state
    now = state.settings
    in_force = {
        "queue": now.queue, "health": now.health, "failover": now.failover,
        "autoscale": now.autoscale,
    }  # fmt: skip
    return ev.PoliciesChanged(policies or state.policies, **{**in_force, **parts})


def order_of(world: World, requests: list[Request], **end: int) -> list[str]:
    """Who goes one after the other on a single slot."""
    agent = world.agents["n0"]
    done: list[str] = []
    while len(done) < len(requests):
        running = agent.running()
        done += [r.request_id for r in running if r in requests]
        agent.finish(*running, **end)
    return done


def waiting_world() -> tuple[World, list[Request]]:
    """One runs on the only slot; behind it wait priorities 2, 9, 5, in this order."""
    world = World()
    world.agent("n0", engine(slots=1))
    world.submit()
    return world, [world.submit(priority=p, request_id=f"p{p}") for p in (2, 9, 5)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("aged", ["p9", "p5", "p2"]), ("fifo", ["p2", "p9", "p5"])],
)
def test_those_who_wait_go_by_the_new_order(order: str, expected: list[str]) -> None:
    world, requests = waiting_world()
    world.step(change(world, build({"order": "fifo" if order == "aged" else "aged"})))
    world.step(change(world, build({"order": order})))
    assert order_of(world, requests) == expected


def test_a_pool_of_its_own_order_alone_changes() -> None:
    world = World(known_models=frozenset({"m", "s"}))
    world.agent("n0", engine("e0", slots=1, models=["m"]), engine("e1", slots=1, models=["s"]))
    world.submit()
    world.submit(model="s")
    m = [world.submit(priority=p, request_id=f"m{p}") for p in (2, 9)]
    s = [world.submit(priority=p, request_id=f"s{p}", model="s") for p in (2, 9)]
    world.step(change(world, build(orderings={"s": Fifo()})))
    done = order_of(world, [*m, *s])
    assert [i for i in done if i[0] == "m"] == ["m9", "m2"]
    assert [i for i in done if i[0] == "s"] == ["s2", "s9"]


def test_a_weight_given_to_a_tenant_who_waits_counts_from_now_on() -> None:
    world = World()
    world.agent("n0", engine(slots=1))
    world.submit(tenant="x")
    for n in range(8):
        for tenant in ("gold", "other"):
            world.submit(tenant=tenant, request_id=f"{tenant}{n}", prompt_tokens=100)
    queue = replace(world.scheduler.state.settings.queue, weights={"gold": 3.0}, floor_every=0)
    strict = build({"order": "fair"})
    world.step(change(world, strict, queue=queue))
    waiting = [r for r in world.scheduler.state.requests.values() if r.in_queue]
    first = order_of(world, waiting, input_tokens=100)[:8]
    assert sum(i.startswith("gold") for i in first) == 6


def test_what_users_had_counts_on_when_only_a_parameter_changes() -> None:
    """One had eight turns while alone in its band; the tags say so to the heir of the band."""
    world = World(policies=build({"order": "strict"}, {"order": {"window": 0}}))
    agent = world.agent("n0", engine(slots=1))
    world.submit(tenant="b", prompt_tokens=10)
    for n in range(12):
        world.submit(tenant="a", request_id=f"a{n}", prompt_tokens=10)
    world.submit(tenant="b", request_id="b0", prompt_tokens=10)
    agent.finish(*agent.running())
    band = world.scheduler.state.pools["m"].queue.open_fair_bands()[0]
    tags = {name: user.start for name, user in band.users.items()}
    world.step(change(world, build({"order": "strict"}, {"order": {"window": 1}})))
    heir = world.scheduler.state.pools["m"].queue.open_fair_bands()[0]
    assert heir is not band
    assert {name: user.start for name, user in heir.users.items()} == tags
    assert heir.virtual == band.virtual


def test_a_request_that_came_back_keeps_its_old_place() -> None:
    world = World()
    first = world.agent("n0", engine(slots=1))
    moved = world.submit(request_id="moved")
    later = world.submit(request_id="later")
    world.step(ev.PoolPaused("m", True))
    first.lose_stream(goodbye=True)
    world.advance(6)
    assert moved.state is RequestState.QUEUED
    world.step(change(world, build({"order": "fifo"})))
    world.step(change(world, build({"order": "edf"})))
    world.agent("n0", engine(slots=1))
    world.step(ev.PoolPaused("m", False))
    assert order_of(world, [moved, later]) == ["moved", "later"]


def test_what_runs_goes_on_and_ends_as_ever() -> None:
    world, _ = waiting_world()
    running = world.agents["n0"].running()[0]
    world.step(change(world, build({"order": "fifo", "failover": "backoff", "score": "estimate"})))
    assert running.live
    world.agents["n0"].finish(running)
    assert running.outcome is Outcome.SUCCEEDED


def test_limits_of_the_queue_hold_at_once() -> None:
    world, _ = waiting_world()
    queue = replace(world.scheduler.state.settings.queue, max_requests=3)
    world.step(change(world, queue=queue))
    assert world.submit(priority=2).reason is Reason.QUEUE_FULL


def test_the_floor_follows_its_setting() -> None:
    world = World()
    world.agent("n0", engine(slots=1))
    world.submit()
    old = world.submit(priority=1, request_id="old")
    urgent = [world.submit(priority=10, request_id=f"u{n}") for n in range(4)]
    queue = replace(world.scheduler.state.settings.queue, floor_every=2)
    world.step(change(world, queue=queue))
    assert "old" in order_of(world, [old, *urgent])[:2]


@pytest.mark.parametrize("again", [False, True])
def test_deadlines_out_of_reach_are_judged_by_the_admission_of_now(again: bool) -> None:
    """`guarded` ends who cannot make it any more; `bounded` lets them wait to their deadlines."""
    world = World()
    agent = world.agent("n0", engine(slots=1))
    for _ in range(3):  # one takes four seconds
        one = world.submit()
        world.advance(4)
        agent.finish(one)
    world.submit()
    late = world.submit(deadline=world.now + seconds(9))
    world.step(change(world, build({"admission": "guarded"})))
    if again:
        world.step(change(world, build({"admission": "bounded"})))
    world.advance(8.5)
    assert late.outcome is (None if again else Outcome.EXPIRED)
    world.advance(1)
    assert late.outcome is Outcome.EXPIRED


def test_a_pool_is_relieved_or_not_by_the_policy_of_now() -> None:
    world = World(known_models=frozenset({"m", "s"}))
    agent = world.agent("n0", engine("e0", slots=1), engine("e1", slots=8, models=["s"]))
    for _ in range(3):
        one = world.submit()
        world.advance(2)
        agent.finish(one)
    waiting = [world.submit(degrade=("s",)) for _ in range(20)]
    world.advance(20)
    assert not any(r.degraded for r in waiting)
    world.step(change(world, build({"degrade": "pressed"})))
    world.advance(30)
    assert any(r.degraded for r in waiting)
    world.step(change(world, build({"degrade": "never"})))
    count = sum(r.degraded for r in waiting)
    world.advance(30)
    assert sum(r.degraded for r in waiting) == count
    assert ("pressure", "m") not in world.scheduler.state.timers


def test_shedding_begins_and_ends_with_its_policy() -> None:
    world, _ = waiting_world()
    pool = world.scheduler.state.pools["m"]
    world.step(change(world, build({"admission": "shed"})))
    cursor = pool.cursor
    assert cursor is not None
    world.step(change(world, build({"admission": "shed"})))
    assert pool.cursor is cursor
    world.step(change(world, build({"admission": "bounded"})))
    assert pool.cursor is None


def test_an_attempt_that_runs_already_is_held_to_a_new_time_limit() -> None:
    world = World()
    world.agent("n0", engine(slots=1))
    request = world.submit()
    failover = FailoverSettings(max_attempts=1, patience=Patience(total=2 * SECOND))
    policies = build(options={"failover": {"settings": failover}})
    world.step(change(world, policies, failover=failover))
    world.advance(3)
    assert next(iter(request.attempts)).reason is Reason.ENGINE_STALLED
    world.step(change(world, failover=FailoverSettings()))
    assert world.scheduler.state.pools["m"].patience is None


def test_slow_attempts_get_rivals_or_none_by_the_settings_of_now() -> None:
    world = World()
    agents = [world.agent(name, engine(slots=2)) for name in ("n0", "n1")]
    on = FailoverSettings(hedge=Hedge(share=1.0, fewest=3))
    world.step(change(world, failover=on))
    pool = world.scheduler.state.pools["m"]
    learnt = pool.hedging
    assert learnt is not None
    for _ in range(6):
        one = world.submit()
        world.advance(0.1)
        next(a for a in agents if one in a.running()).finish(one)
    slow = world.submit()
    world.step(change(world, failover=replace(on, retry_burst=50)))
    assert pool.hedging is learnt
    world.advance(5)
    assert len(slow.attempts) == 2
    world.step(change(world, failover=FailoverSettings()))
    assert pool.hedging is None
    other = world.submit()
    world.advance(5)
    assert len(other.attempts) == 1


def test_a_batch_limit_that_another_rule_learnt_is_forgotten() -> None:
    world = World(policies=build({"batch": "feasible"}))
    agent = world.agent("n0", static(slots=4))
    world.submit(4)
    world.advance(1)
    agent.finish(*agent.running())
    known = world.scheduler.state.nodes["n0"].engines["e0"].batch_times["m"]
    known.size_limit = 2
    world.step(change(world, build({"batch": "feasible"})))
    assert known.size_limit == 2
    world.step(change(world, build({"batch": "windowed"})))
    assert known.size_limit == 0


def test_the_time_without_a_node_is_the_one_of_now() -> None:
    world = World(known_models=frozenset({"m"}))
    request = world.submit()
    queue = QueueSettings(no_node_grace=2 * SECOND)
    world.step(change(world, queue=queue))
    world.advance(3)
    assert request.reason is Reason.NO_CAPACITY


def test_lengths_are_learnt_as_the_settings_say() -> None:
    world, _ = waiting_world()
    state = world.scheduler.state
    world.step(change(world, queue=QueueSettings(learn_lengths=True)))
    learnt = state.lengths
    assert learnt is not None
    world.step(change(world, queue=QueueSettings(learn_lengths=True, headroom=1)))
    assert state.lengths is learnt
    world.step(change(world, queue=QueueSettings()))
    assert state.lengths is None


def test_a_fresh_core_goes_on_with_what_was_changed() -> None:
    world, _ = waiting_world()
    world.step(change(world, build({"order": "fifo"}), autoscale=AutoscaleSettings(max_nodes=9)))
    successor = world.scheduler.successor()
    assert successor.state.policies.ordering == Fifo()
    assert successor.state.settings.autoscale.max_nodes == 9


def test_job_items_that_run_make_room_by_the_rule_of_now() -> None:
    world = World(policies=build({"preempt": "never"}))
    world.agent("n0", engine(slots=1))
    item = world.submit(request_class=RequestClass.JOB)
    world.advance(5)
    urgent = world.submit(priority=10)
    world.advance(5)
    assert item.live
    world.step(change(world, build({"preempt": "after_run"})))
    world.advance(1)
    assert urgent.live
    assert world.scheduler.state.totals.preemptions == 1


def test_the_health_settings_are_the_ones_of_now() -> None:
    world, _ = waiting_world()
    world.step(change(world, health=HealthSettings(eject_base=7 * SECOND, warm_up=NEVER)))
    assert world.scheduler.state.settings.health.eject_base == 7 * SECOND
