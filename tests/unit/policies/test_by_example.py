"""Policies by worked examples; what holds for all of them is in tests/contract/test_policies.py."""

from __future__ import annotations

import pytest

from scheduler_service.core.interfaces import BatchView, Candidate, Close, ScaleView, WaitUntil
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.settings import FailoverSettings
from scheduler_service.core.types import (
    MILLISECOND,
    NEVER,
    SECOND,
    Attempt,
    Batch,
    Engine,
    Node,
    NodeSpec,
    Request,
    ServiceEstimate,
)
from scheduler_service.policies.autoscale import Threshold
from scheduler_service.policies.batching import Windowed
from scheduler_service.policies.degrade import FirstFeasible
from scheduler_service.policies.failover import Backoff
from scheduler_service.policies.hashing import hash64
from scheduler_service.policies.ordering import Aged, Fifo, Strict
from scheduler_service.policies.scorers import Completion
from tests.builders import engine, model

NOW = 1_000 * SECOND


def request(priority: int, age_s: float, place: int = 1) -> Request:
    """A request of that priority that came so long ago."""
    received = NOW - round(age_s * SECOND)
    return Request(place, "r", "m", priority, received_at=received, place=place, served_model="m")


def test_aged_order_of_three_requests() -> None:
    """p5 for 1 s is 5.1, p4 for 25 s is 6 (capped), p1 for 30 s is 3."""
    fresh, middle, old = request(5, 1, 3), request(4, 25, 2), request(1, 30, 1)
    order = sorted([fresh, middle, old], key=lambda r: Aged().key(r, NOW))
    assert order == [middle, fresh, old]


def test_strict_and_fifo_read_one_thing_each() -> None:
    low, high = request(1, 50, 1), request(10, 0, 2)
    assert min([low, high], key=lambda r: Strict().key(r, NOW)) is high
    assert min([low, high], key=lambda r: Fifo().key(r, NOW)) is low


def view(**fields: object) -> BatchView:
    """One input that has just come, of a batch of eight."""
    fields = {
        "waiting": 1, "inputs_max": 8, "oldest_at": NOW,
        "earliest_deadline": NEVER, "expected_service": 0, **fields,
    }  # fmt: skip
    return BatchView(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"waiting": 8}, Close("size")),
        ({}, WaitUntil(NOW + 10 * MILLISECOND)),
        ({"oldest_at": NOW - 4 * MILLISECOND}, WaitUntil(NOW + 6 * MILLISECOND)),
        ({"oldest_at": NOW - 10 * MILLISECOND}, Close("timeout")),
        ({"expected_service": 20 * MILLISECOND}, WaitUntil(NOW + 5 * MILLISECOND)),
        ({"expected_service": 3}, Close("idle_node")),
        ({"earliest_deadline": NOW + 8 * MILLISECOND}, WaitUntil(NOW + 3 * MILLISECOND)),
        ({"earliest_deadline": NOW + 4 * MILLISECOND}, Close("deadline")),
    ],
)
def test_windowed(fields: dict[str, object], verdict: Close | WaitUntil) -> None:
    assert Windowed().decide(view(**fields), NOW) == verdict


def test_windowed_without_a_wait_sends_at_once() -> None:
    assert Windowed(longest_wait=0).decide(view(), NOW) == Close("idle_node")


def an_engine(in_flight: int, learned: ServiceEstimate | None, configured: int = 0) -> Engine:
    """Four slots of one model."""
    spec = engine(slots=4, models=[model(configured_service=configured)])
    node = Node("n", "b", 1, NodeSpec((spec,)), 0, 0)
    made = Engine(node, spec, {m.model: m for m in spec.models}, in_flight_inputs=in_flight)
    if learned is not None:
        made.service["m"] = learned
    return made


def test_completion_prefers_what_was_measured_to_what_was_configured() -> None:
    learned = ServiceEstimate(2 * SECOND, 100.0, 5)
    estimate = Completion().estimate
    plain, tokens = request(5, 0), request(5, 0)
    tokens.output_tokens = 200
    assert estimate(plain, an_engine(0, learned, SECOND), NOW) == 2 * SECOND
    assert estimate(plain, an_engine(2, learned), NOW) == 3 * SECOND
    assert estimate(tokens, an_engine(0, learned), NOW) == 4 * SECOND
    assert estimate(plain, an_engine(0, None, SECOND), NOW) == SECOND
    assert estimate(plain, an_engine(0, None), NOW) == MILLISECOND


def test_learned_service_time_follows_slowly_and_scales_within_a_factor_of_ten() -> None:
    learned = ServiceEstimate()
    learned.learn(800, 10)
    learned.learn(1600, 10)
    assert learned.mean == 900
    assert learned.expect(1) == learned.expect(0) // 10
    assert learned.expect(10**9) == 9_000


def attempt_of(charged: int, max_attempts: int = 3, rid: int = 1) -> Attempt:
    """The attempt that has just failed."""
    failed = Request(rid, "r", "m", charged=charged, max_attempts=max_attempts)
    node = an_engine(0, None)
    return Attempt(1, charged, failed, node, "m", Batch("b", node, "m", False, "credit", 0), 1, 0)


def test_backoff_grows_within_its_ceiling_and_is_spread() -> None:
    policy = Backoff(FailoverSettings(backoff_base=100, backoff_max=300))
    for charged, ceiling in ((1, 100), (2, 200), (3, 300), (9, 300)):
        delays = {
            policy.decide(attempt_of(charged, 20, rid), Reason.ENGINE_ERROR, NOW).at - NOW  # type: ignore[union-attr]
            for rid in range(200)
        }
        assert 0 <= min(delays) < ceiling / 10
        assert ceiling * 0.9 < max(delays) < ceiling
        assert len(delays) > 40


def test_another_seed_is_another_delay() -> None:
    delays = {
        Backoff(seed=seed).decide(attempt_of(1), Reason.ENGINE_ERROR, NOW).at  # type: ignore[union-attr]
        for seed in range(20)
    }
    assert len(delays) > 15


def test_hash_is_the_same_everywhere_and_keeps_purposes_apart() -> None:
    assert hash64(1, 2, "retry") == 827742188740986560
    assert hash64(1, 2, "retry") != hash64(1, 2, "hedge")
    assert hash64(1, 23) != hash64(12, 3)


def test_first_feasible_takes_the_first_with_room_else_the_first_alive() -> None:
    dead, full, roomy = Candidate("a", 0, 9, 0), Candidate("b", 1, 1, 1), Candidate("c", 1, 2, 1)
    choose = FirstFeasible().choose
    assert choose(request(5, 0), [dead, full, roomy]) == "c"
    assert choose(request(5, 0), [dead, full]) == "b"
    assert choose(request(5, 0), [dead]) is None
    assert choose(request(5, 0), []) is None


def pool(**fields: object) -> ScaleView:
    """Two ready nodes of one to four; nothing waits, something runs."""
    fields = {
        "pool": "m", "waiting": 0, "oldest_wait": 0, "ready": 2, "starting": 0, "running": 1,
        "slots": 2, "min_nodes": 1, "max_nodes": 4, "last_out_at": -NEVER, "last_in_at": -NEVER,
        "idle_since": NEVER, **fields,
    }  # fmt: skip
    return ScaleView(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "desired"),
    [
        ({}, None),
        ({"waiting": 4}, None),
        ({"waiting": 5}, 3),
        ({"waiting": 1, "oldest_wait": 3 * SECOND}, None),
        ({"waiting": 1, "oldest_wait": 3 * SECOND + 1}, 3),
        ({"waiting": 50, "starting": 2}, None),
        ({"waiting": 50, "last_out_at": NOW - 10 * SECOND + 1}, None),
        ({"waiting": 50, "last_out_at": NOW - 10 * SECOND}, 3),
        ({"ready": 0, "min_nodes": 2}, 2),
        ({"idle_since": NOW - 60 * SECOND + 1}, None),
        ({"idle_since": NOW - 60 * SECOND}, 1),
        ({"idle_since": NOW - 60 * SECOND, "last_out_at": NOW - 9 * SECOND}, None),
        ({"idle_since": NOW - 60 * SECOND, "ready": 1}, None),
    ],
)
def test_threshold(fields: dict[str, object], desired: int | None) -> None:
    plan = Threshold().plan(pool(**fields), NOW)
    assert (plan.desired if plan else None) == desired
