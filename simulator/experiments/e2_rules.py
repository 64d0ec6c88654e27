"""Which node next? The rules that E2 compares, as functions of counts, and as policies of the core.

A rule sees how many requests each node has, itself or as of the last snapshot, how slow each node
is, and the request's number for its hash. The same functions pick in the live core and in the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from scheduler_service.core.hashing import hash64
from scheduler_service.core.interfaces import LoadSpread
from scheduler_service.core.types import Duration, Engine, Instant, Request

Rule = Callable[[int, Sequence[int], Sequence[float]], int]  # (number, counts, slowness) -> node
HOT: Final = 3


def anyone(number: int, counts: Sequence[int], _slow: Sequence[float]) -> int:
    """At random."""
    return hash64(0, number) % len(counts)


def in_turn(number: int, counts: Sequence[int], _slow: Sequence[float]) -> int:
    """Round robin."""
    return number % len(counts)


def samples(number: int, of: int, size: int) -> list[int]:
    """So many different ones, by hash."""
    draw, left = hash64(0, number), size
    found: list[int] = []
    while len(found) < of:
        draw, at = divmod(draw, left)
        for former in sorted(found):  # the at-th of those that are left
            at += at >= former
        found.append(at)
        left -= 1
    return found


def least_loaded_of(of: int) -> Rule:
    """The power of `of` choices, by count."""

    def rule(number: int, counts: Sequence[int], _slow: Sequence[float]) -> int:
        return min(samples(number, of, len(counts)), key=counts.__getitem__)

    return rule


def least_loaded(number: int, counts: Sequence[int], _slow: Sequence[float]) -> int:
    """Join the shortest queue; of equal ones any, by hash."""
    least = min(counts)
    shortest = [node for node, count in enumerate(counts) if count == least]
    return shortest[hash64(0, number) % len(shortest)]


def soonest_of(of: int) -> Rule:
    """The least estimate among samples: count times slowness."""

    def rule(number: int, counts: Sequence[int], slow: Sequence[float]) -> int:
        return min(samples(number, of, len(counts)), key=lambda n: (counts[n] + 1) * slow[n])

    return rule


def soonest(_number: int, counts: Sequence[int], slow: Sequence[float]) -> int:
    """The least estimate of all."""
    return min(range(len(counts)), key=lambda n: (counts[n] + 1) * slow[n])


def hot_cold(number: int, counts: Sequence[int], slow: Sequence[float]) -> int:
    """Five samples: of those that are not hot the soonest, else the least loaded."""
    found = samples(number, 5, len(counts))
    cold = [n for n in found if counts[n] <= HOT]
    if cold:
        return min(cold, key=lambda n: (counts[n] + 1) * slow[n])
    return min(found, key=counts.__getitem__)


class Counts:
    """A scorer that says how many requests a node has; `period` > 0: as of the last snapshot."""

    def __init__(self, period: Duration = 0) -> None:
        self._period = period
        self._taken = -1
        self._counts: dict[str, int] = {}

    def concerns(self, _request: Request) -> Hashable:
        """Nothing of it."""
        return None

    def estimate(self, _request: Request, engine: Engine, now: Instant) -> Duration:
        """The first look of a period is the snapshot: every node is looked at then."""
        if not self._period:
            return engine.in_flight_inputs
        if now // self._period != self._taken:
            self._taken = now // self._period
            self._counts = {}
        return self._counts.setdefault(engine.node.node_id, engine.in_flight_inputs)


class RulePicker:
    """A picker that asks a rule; nodes are scored in the order of their ids."""

    def __init__(self, rule: Rule, slow: Sequence[float]) -> None:
        self._rule = rule
        self._slow = slow

    def pick(
        self, scored: Sequence[tuple[Duration, Engine]], request: Request, _spread: LoadSpread
    ) -> Engine:
        """The rule's choice."""
        counts = [count for count, _ in scored]
        return scored[self._rule(request.rid, counts, self._slow)][1]
