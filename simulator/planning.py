"""How many nodes of which kind serve a workload well enough, and what does that cost?

For each kind the least number is searched by doubling and halving, so it is taken that one node
more never serves worse; the numbers around the answer are run too, which shows where that is not
so. Each point is a whole run of the live scheduler.

Two kinds together are tried only where they would cost less than the cheapest answer so far, so
that most pairs need few runs: a large kind for most of the load, say, and a small one for the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from simulator.kinds import NodeKind
from simulator.summary import Summary

AROUND: Final = 2  # numbers on each side of the answer that are run, too

Nodes = Sequence[tuple[NodeKind, int]]  # so many of each kind
Play = Callable[[Nodes], Summary]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One fleet."""

    kind: str  # two, joined by " + ", where they are mixed
    nodes: int
    fleet: str  # as `simulate --nodes` takes it
    attained: float
    wait_p99_s: float
    ttft_p99_s: float
    total_p99_s: float
    utilisation: float
    price_per_hour: float
    cost_per_million_tokens: float  # output tokens; of those made in the whole run


@dataclass
class Curve:
    """All that was run of one kind, or of two together."""

    kind: str
    calibration: str
    points: list[Point] = field(default_factory=list)  # by number of nodes; mixed: by price
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


def advise(
    kinds: Sequence[NodeKind], play: Play, *, target: float, most: int, mixed: bool = False
) -> Advice:
    """Search each kind, up to `most` nodes of it; `mixed`: each two of them, too."""
    advice = Advice(target, [_search(kind, play, target, most) for kind in kinds])
    if mixed:
        for one, other in itertools.combinations(kinds, 2):
            curve = _mix(one, other, play, advice, most)
            if curve.points:
                advice.curves.append(curve)
    return advice


def _search(kind: NodeKind, play: Play, target: float, most: int) -> Curve:
    points: dict[int, Point] = {}

    def serves(nodes: int) -> bool:
        if nodes not in points:
            points[nodes] = _point([(kind, nodes)], play)
        return points[nodes].attained >= target

    low, high = 0, 1  # `low` is too few
    while not serves(high):
        if high >= most:
            return Curve(kind.name, _calibration(kind), _sorted(points))
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if serves(middle) else (middle, high)
    for nodes in range(max(1, high - AROUND), min(most, high + AROUND) + 1):
        serves(nodes)
    return Curve(kind.name, _calibration(kind), _sorted(points), points[high])


def _mix(one: NodeKind, other: NodeKind, play: Play, advice: Advice, most: int) -> Curve:
    """For each number of the one the fewest of the other that serve well and still cost less."""
    best = advice.best
    price = math.inf if best is None else best.price_per_hour
    points: list[Point] = []
    answer: Point | None = None

    def tried(nodes: int, others: int) -> Point:
        points.append(_point([(one, nodes), (other, others)], play))
        return points[-1]

    for nodes in range(1, most):
        low, high = 0, _affordable(price - nodes * one.price_per_hour, other, most - nodes)
        if high == 0:
            break
        found = tried(nodes, high)
        if found.attained < advice.target:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            less = tried(nodes, middle)
            if less.attained >= advice.target:
                high, found = middle, less
            else:
                low = middle
        price, answer = found.price_per_hour, found
    marks = sorted({_calibration(one), _calibration(other)} - {""})
    points.sort(key=lambda point: (point.price_per_hour, point.fleet))
    return Curve(f"{one.name} + {other.name}", ", ".join(marks), points, answer)


def _affordable(rest: float, kind: NodeKind, most: int) -> int:
    """Nodes of that kind that cost less than `rest` an hour."""
    if kind.price_per_hour <= 0 or rest == math.inf:
        return most if rest > 0 else 0
    return max(0, min(most, math.ceil(rest / kind.price_per_hour) - 1))


def _calibration(kind: NodeKind) -> str:
    return kind.labels.get("calibration", "")


def _sorted(points: dict[int, Point]) -> list[Point]:
    return [points[nodes] for nodes in sorted(points)]


def _point(nodes: Nodes, play: Play) -> Point:
    summary = play(nodes)
    whole = summary.all
    tokens = whole.output_tokens
    return Point(
        kind=" + ".join(kind.name for kind, _ in nodes),
        nodes=sum(count for _, count in nodes),
        fleet=",".join(f"{count}x{kind.name}" for kind, count in nodes),
        attained=whole.attained,
        wait_p99_s=whole.wait.p99,
        ttft_p99_s=whole.ttft.p99,
        total_p99_s=whole.total.p99,
        utilisation=summary.utilisation,
        price_per_hour=sum(count * kind.price_per_hour for kind, count in nodes),
        cost_per_million_tokens=1e6 * summary.cost / tokens if tokens else 0.0,
    )
