"""How many nodes of which kind serve a workload well enough, and what does that cost?

For each kind the least number is searched by doubling and halving, so it is taken that one node
more never serves worse; the numbers around the answer are run too, which shows where that is not
so. Each point is a whole run of the live scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from simulator.kinds import NodeKind
from simulator.summary import Summary

AROUND: Final = 2  # numbers on each side of the answer that are run, too

Play = Callable[[NodeKind, int], Summary]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One fleet."""

    kind: str
    nodes: int
    attained: float
    wait_p99_s: float
    ttft_p99_s: float
    total_p99_s: float
    utilisation: float
    price_per_hour: float
    cost_per_million_tokens: float  # output tokens; of those made in the whole run


@dataclass
class Curve:
    """All that was run of one kind."""

    kind: str
    calibration: str
    points: list[Point] = field(default_factory=list)  # by number of nodes
    answer: Point | None = None  # the least that serves well; None: not even the most does


@dataclass
class Advice:
    """The curves of all kinds, and the cheapest fleet that serves well."""

    target: float
    curves: list[Curve]

    @property
    def best(self) -> Point | None:
        """By price per hour, then by number; None: no kind does it."""
        good = [curve.answer for curve in self.curves if curve.answer is not None]
        return min(good, key=lambda p: (p.price_per_hour, p.nodes, p.kind), default=None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        best = self.best
        return {
            "target": self.target,
            "best": None if best is None else asdict(best),
            "curves": [asdict(curve) for curve in self.curves],
        }


def advise(kinds: Sequence[NodeKind], play: Play, *, target: float, most: int) -> Advice:
    """Search each kind, up to `most` nodes of it."""
    return Advice(target, [_search(kind, play, target, most) for kind in kinds])


def _search(kind: NodeKind, play: Play, target: float, most: int) -> Curve:
    points: dict[int, Point] = {}

    def serves(nodes: int) -> bool:
        if nodes not in points:
            points[nodes] = _point(kind, nodes, play(kind, nodes))
        return points[nodes].attained >= target

    low, high = 0, 1  # `low` is too few
    while not serves(high):
        if high >= most:
            return Curve(kind.name, kind.labels.get("calibration", ""), _sorted(points))
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if serves(middle) else (middle, high)
    for nodes in range(max(1, high - AROUND), min(most, high + AROUND) + 1):
        serves(nodes)
    return Curve(kind.name, kind.labels.get("calibration", ""), _sorted(points), points[high])


def _sorted(points: dict[int, Point]) -> list[Point]:
    return [points[nodes] for nodes in sorted(points)]


def _point(kind: NodeKind, nodes: int, summary: Summary) -> Point:
    whole = summary.all
    tokens = whole.output_tokens
    return Point(
        kind=kind.name,
        nodes=nodes,
        attained=whole.attained,
        wait_p99_s=whole.wait.p99,
        ttft_p99_s=whole.ttft.p99,
        total_p99_s=whole.total.p99,
        utilisation=summary.utilisation,
        price_per_hour=nodes * kind.price_per_hour,
        cost_per_million_tokens=1e6 * summary.cost / tokens if tokens else 0.0,
    )
