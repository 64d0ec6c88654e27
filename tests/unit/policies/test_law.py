"""The refined scaling law, by worked examples."""

from __future__ import annotations

import math

import pytest

from scheduler_service.core.interfaces import ScalePlan, ScaleView
from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.policies.autoscale import Law

NOW = 10_000 * SECOND


def pool(**fields: object) -> ScaleView:
    """Five ready nodes of eight slots under 20 Erlangs, which need 3.1; steady for long."""
    fields = {
        "pool": "m", "waiting": 0, "oldest_wait": 0, "ready": 5, "starting": 0, "running": 20,
        "slots": 40, "min_nodes": 0, "max_nodes": 50, "last_out_at": -NEVER, "last_in_at": -NEVER,
        "idle_since": NEVER, "erlangs": 20.0, "peak_erlangs": 20.0, "slots_per_node": 8,
        "cold_start": 30 * SECOND, "watched": NOW, **fields,
    }  # fmt: skip
    return ScaleView(**fields)  # type: ignore[arg-type]


def desired(**fields: object) -> int | None:
    plan = Law().plan(pool(**fields), NOW)
    assert plan is None or isinstance(plan, ScalePlan)
    return plan.desired if plan else None


@pytest.mark.parametrize(
    ("erlangs", "servers"), [(10, 14), (40, 48), (100, 111), (400, 422), (1000, 1034)]
)
def test_square_root_staffing_is_within_one_of_what_erlangs_formula_needs(
    erlangs: int, servers: int
) -> None:
    """For a fifth of the arrivals to wait at most."""
    view = pool(slots_per_node=1)
    assert abs(math.ceil(Law().nodes_for(view, erlangs)) - servers) <= 1
    assert erlang_c(servers, erlangs) <= 0.201
    assert erlang_c(servers - 1, erlangs) > 0.199


def erlang_c(servers: int, erlangs: float) -> float:
    """Share of Poisson arrivals that wait."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = erlangs * blocked / (n + erlangs * blocked)
    load = erlangs / servers
    return blocked / (1 - load + load * blocked)


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        # 40 Erlangs: (40 + 6.96) / 8 = 5.87, up from 5; nodes that start count.
        ({"erlangs": 40.0, "peak_erlangs": 40.0}, 6),
        ({"erlangs": 40.0, "peak_erlangs": 40.0, "starting": 1}, None),
        # At most doubling, by four where there are few, within the maximum.
        ({"erlangs": 400.0}, 10),
        ({"erlangs": 400.0, "ready": 2}, 6),
        ({"erlangs": 400.0, "max_nodes": 7}, 7),
        # Many wait: one more at once, unless one is starting; a long queue drains in 30 s.
        ({"waiting": 5}, 6),
        ({"waiting": 5, "starting": 1}, None),
        ({"waiting": 1, "oldest_wait": 3 * SECOND + 1}, 6),
        ({"waiting": 1, "oldest_wait": 3 * SECOND}, None),
        # (20 + 1200 / 30) / 8 = 7.5; with starts of 120 s (20 + 1200 / 120) / 8 = 3.75.
        ({"waiting": 300, "queued_work": 1200 * SECOND}, 8),
        ({"waiting": 300, "queued_work": 1200 * SECOND, "cold_start": 120 * SECOND}, 6),
        # Spare nodes come on top.
        ({"min_spare": 3}, 7),
        # The first request of an empty pool.
        ({"ready": 0, "waiting": 1, "erlangs": 0.0, "peak_erlangs": 0.0}, 1),
        ({"ready": 0, "erlangs": 0.0, "peak_erlangs": 0.0}, None),
        ({"ready": 0, "min_nodes": 2}, 2),
    ],
)
def test_up(fields: dict[str, object], nodes: int | None) -> None:
    # What could go down at the same time is not asked here.
    assert desired(**{"last_in_at": NOW, **fields}) == nodes


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        # The need is ceil(3.1 + 0.1) = 4, one node a step.
        ({}, 4),
        ({"ready": 4}, None),
        ({"ready": 30}, 27),
        ({"ready": 30, "min_nodes": 29}, 29),
        ({"min_spare": 1}, None),
        # The highest need of five minutes counts, not the present one.
        ({"erlangs": 5.0, "peak_erlangs": 30.0}, None),
        ({"waiting": 1}, None),
        ({"watched": 299 * SECOND}, None),
        ({"last_out_at": NOW - 300 * SECOND + 1}, None),
        ({"last_out_at": NOW - 300 * SECOND}, 4),
        ({"last_in_at": NOW - 60 * SECOND + 1}, None),
        ({"last_in_at": NOW - 60 * SECOND}, 4),
    ],
)
def test_down(fields: dict[str, object], nodes: int | None) -> None:
    assert desired(**fields) == nodes


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({}, 0),
        ({"idle_since": NOW - 90 * SECOND + 1}, None),
        ({"min_nodes": 1}, None),
        ({"min_spare": 1}, None),
        ({"last_out_at": NOW - 299 * SECOND}, None),
    ],
)
def test_last_node_goes_after_a_minute_and_a_half(
    fields: dict[str, object], nodes: int | None
) -> None:
    quiet = {"ready": 1, "erlangs": 0.0, "peak_erlangs": 0.0, "idle_since": NOW - 90 * SECOND}
    assert desired(**{**quiet, **fields}) == nodes


def test_jobs_ask_for_nodes_only_where_they_are_given_a_window() -> None:
    """6,400 s of slots within 100 s are 64 slots, eight nodes of eight."""
    view = pool(job_work=6_400 * SECOND)
    assert Law().plan(view, NOW) == Law().plan(pool(), NOW)
    plan = Law(job_window=100 * SECOND).plan(view, NOW)
    assert plan is not None
    assert plan.desired == 8
    assert "job" in plan.reason
