"""The hot/cold rule, by worked examples."""

from __future__ import annotations

from collections import Counter

from scheduler_service.core.interfaces import LoadSpread
from scheduler_service.core.types import SECOND, Engine, Node, NodeSpec, Request
from scheduler_service.policies.pickers import HotCold
from tests.builders import engine


def engines(*loads: int) -> list[Engine]:
    """Engines of ten slots with so many inputs in flight."""
    made = []
    for number, load in enumerate(loads):
        spec = engine(slots=10)
        node = Node(f"n{number}", "b", 1, NodeSpec((spec,)), 0, 0)
        made.append(Engine(node, spec, {}, in_flight_inputs=load))
    return made


def picked(scores: list[int], loads: list[int], rid: int = 1) -> str:
    nodes = engines(*loads)
    spread = LoadSpread().fresh(SECOND, nodes)
    scored = list(zip(scores, nodes, strict=True))
    return HotCold().pick(scored, Request(rid, "r", "m"), spread).node.node_id


def test_hot_one_is_passed_over_though_it_looks_soonest() -> None:
    """Of seven the sixth load is the quantile 0.84 (index 5), so that 9 is hot."""
    assert picked([1, 5, 6, 7, 8, 9, 9], [9, 0, 1, 2, 3, 4, 5]) == "n1"


def test_soonest_of_the_cold_ones_is_taken() -> None:
    assert picked([9, 5, 2, 7, 8, 9, 9], [9, 0, 1, 2, 3, 4, 5]) == "n2"


def test_least_loaded_is_taken_where_all_that_were_drawn_are_hot() -> None:
    nodes = engines(8, 6, 7)
    spread = LoadSpread(0, [0.1] * 10, 10)
    scored = list(zip([1, 9, 5], nodes, strict=True))
    assert HotCold().pick(scored, Request(1, "r", "m"), spread) is nodes[1]


def test_equal_ones_get_equal_shares_by_hash() -> None:
    shares = Counter(picked([5, 5, 5, 5], [0, 0, 0, 0], rid) for rid in range(800))
    assert len(shares) == 4
    assert min(shares.values()) > 150


def test_spread_is_looked_at_every_hundred_milliseconds() -> None:
    nodes = engines(0, 1)
    spread = LoadSpread().fresh(SECOND, nodes)
    nodes[0].in_flight_inputs = 9
    assert spread.fresh(SECOND + 99_000_000, nodes).total == 1
    assert spread.fresh(SECOND + 100_000_000, nodes).total == 10
