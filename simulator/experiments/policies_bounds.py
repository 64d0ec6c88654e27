"""How short can priority 1 wait where the urgent go first? A bound, and the way there.

The orders here look at age alone, so a model of a dozen lines plays them; the live core must come
to the model's figures. It is cheap enough to draw the priorities of the same arrivals many times,
and to judge all draws together: on one hour the p99 of priority 1 hangs on which eighteen requests
are drawn to be the unluckiest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from scheduler_service.core.interfaces import Discipline
from scheduler_service.core.types import SECOND, Duration, Instant, Request
from simulator.experiments import e2_rules
from simulator.experiments.naive import Demand, keyed, own_lines
from simulator.experiments.policies_runs import (
    FAR,
    NODES,
    SLOTS,
    URGENT,
    Outcome,
    outcome,
    work,
)
from simulator.experiments.verdicts import Row, Table, exactly, holds
from simulator.summary import quantile
from simulator.workload.assignment import Assignment, between
from simulator.workload.traces import load

DRAWS: Final = 8
POINTS: Final = 0.02  # of urgent starts in time, that may be missed against strict levels
HEAD_STARTS_S: Final = (0.5, 1, 2, 3, 5, 8, 15)
LEADS_S: Final = (1, 3, 5, 10, 20)  # of priority 5 over 1
BOUND: Final = "urgent first, all others by age"

Lines = list[int]  # waits in ns, in order of arrival


@dataclass(frozen=True, slots=True)
class UrgentFirst:
    """An order to compare with: the urgent by levels (10, 7), all others in one line by age.

    ahead: less than FAR: the urgent stand in that line, too, as if they had come so much earlier.
    lead: priority 5 goes before 1 as if it had come so much earlier; 0: by age.
    shares: tenants share within each priority, as in the default; else age alone counts there.
    """

    ahead: Duration = FAR
    lead: Duration = 0
    shares: bool = False

    def discipline(self) -> Discipline:
        """Bands by priority."""
        return Discipline(fair=self.shares)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """When it came, less what it is ahead."""
        del now
        return (self.place(head.received_at, head.priority), head.place)

    def place(self, at: Instant, priority: int) -> int:
        """The least goes next."""
        if priority < URGENT:
            return at - self.lead * (priority > 1)
        return at - (self.ahead if self.ahead < FAR else priority * FAR)


@dataclass(frozen=True)
class Hour:
    """The same arrivals under several draws of priorities."""

    trace: str
    draws: Sequence[Sequence[Demand]]

    def ordered(self, order: UrgentFirst) -> list[Lines]:
        """Waits under one queue of that order, for each draw."""
        servers = NODES[self.trace] * SLOTS
        return [keyed(draw, servers, order.place) for draw in self.draws]

    def routed(self) -> list[Lines]:
        """Waits with the plain router, which knows nothing of priorities: alike in each draw."""
        choose = partial(e2_rules.least_loaded, _slow=())
        return [own_lines(self.draws[0], NODES[self.trace], SLOTS, choose)] * len(self.draws)

    def each(self, waits: Sequence[Lines]) -> list[Outcome]:
        """What came of each draw."""
        return [outcome(_by_priority([pair])) for pair in zip(self.draws, waits, strict=True)]

    def together(self, waits: Sequence[Lines]) -> Outcome:
        """Of all draws as if they were one."""
        return outcome(_by_priority(list(zip(self.draws, waits, strict=True))))


def hour(trace: str, *, minutes: int, draws: int) -> Hour:
    """The arrivals, with draws 1, 2, ... of their priorities."""

    def drawn(seed: int) -> list[Demand]:
        arrivals = between(Assignment(seed=seed, tenants=1)(load(trace)), 0, 60 * minutes)
        return [(a.at, work(a.prompt_tokens, a.output_tokens), a.priority) for a in arrivals]

    return Hour(trace, [drawn(seed) for seed in range(1, draws + 1)])


def _by_priority(pairs: Sequence[tuple[Sequence[Demand], Lines]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {10: [], 7: [], 5: [], 1: []}
    for demands, waits in pairs:
        for (_, _, priority), wait in zip(demands, waits, strict=True):
            found[priority].append(wait)
    return found


def bounds(
    over: Hour, found: Mapping[str, Outcome], *, router: str, mine: str, whole: bool
) -> tuple[list[Row], Table]:
    """Why the default's p99 of priority 1 is above that of the plain router: the rows, and the
    table of what lies between one line for all and strict levels. `whole`: and what takes an hour
    to show.
    """
    routed = over.routed()
    line, bound = over.ordered(UrgentFirst(ahead=0)), over.ordered(UrgentFirst())
    models = {"fifo": line, BOUND: bound, router: routed}
    differ = sum(
        over.each(waits)[0] != replace(found[name], tokens_per_s=0.0)
        for name, waits in models.items()
    )
    rows = [
        exactly(f"of fifo, {router} and {BOUND}: figures that differ from the model's", 0, differ),
        *([_one_line(found["fifo"], found[router], line[0], routed[0], router)] if whole else []),
        _bound(over, bound, routed, router),
        _mean(over, bound, routed, router),
        _least_of_its_kind(over, bound),
        _head_start(over, bound, routed, router),
        verdict_on_default(found[mine], found[router], found[BOUND], router),
    ]
    return rows, _table(over, routed, bound, router)


def both(mine: Outcome, other: Outcome) -> bool:
    """More urgent starts in time, and a shorter p99 wait of priority 1."""
    return mine.urgent > other.urgent and mine.late < other.late


def _said(found: Outcome) -> str:
    return f"{100 * found.urgent:.1f} % and {found.late:.1f} s"


def _one_line(fifo: Outcome, routed: Outcome, line: Lines, nodes: Lines, router: str) -> Row:
    own, theirs = (quantile(sorted(waits), 0.99) / SECOND for waits in (line, nodes))
    return holds(
        f"one line by age (fifo), against {router}: urgent starts in time, p99 wait of priority 1, "
        "p99 wait of all",
        "better in all three",
        f"{_said(fifo)}, {own:.2f} s against {_said(routed)}, {theirs:.2f} s",
        both(fifo, routed) and own < theirs,
    )


def _bound(over: Hour, bound: list[Lines], routed: list[Lines], router: str) -> Row:
    pairs = list(zip(over.each(bound), over.each(routed), strict=True))
    longer = sum(own.late > theirs.late for own, theirs in pairs)
    together = over.together(bound).late, over.together(routed).late
    return holds(
        f"bound: p99 wait of priority 1 with {BOUND}, against {router}",
        "longer in every draw of priorities",
        f"in {longer} of {len(pairs)}; {pairs[0][0].late:.1f} s against {pairs[0][1].late:.1f} s, "
        f"all draws together {together[0]:.1f} s against {together[1]:.1f} s",
        longer == len(pairs),
    )


def _mean(over: Hour, bound: list[Lines], routed: list[Lines], router: str) -> Row:
    own, theirs = over.together(bound).usual, over.together(routed).usual
    return holds(
        f"mean wait of priority 1 with {BOUND}, against {router}, all draws together",
        "longer",
        f"{own:.2f} s against {theirs:.2f} s",
        own > theirs,
    )


def _least_of_its_kind(over: Hour, bound: list[Lines]) -> Row:
    orders = [UrgentFirst(lead=round(lead * SECOND)) for lead in LEADS_S] + [
        UrgentFirst(lead=FAR // 2)
    ]
    least = min(over.together(over.ordered(order)).late for order in orders)
    own = over.together(bound).late
    return holds(
        f"the urgent first, and 5 ahead of 1 by {LEADS_S[0]} s ... without end: the least p99 wait "
        "of priority 1, against the bound",
        "no less",
        f"{least:.1f} s against {own:.1f} s",
        least >= own,
    )


def _head_start(over: Hour, bound: list[Lines], routed: list[Lines], router: str) -> Row:
    """The first whole second that is enough."""
    wanted = over.together(bound).urgent - POINTS
    for ahead in range(61):
        own = over.together(over.ordered(UrgentFirst(ahead=ahead * SECOND)))
        if own.urgent >= wanted:
            break
    theirs = over.together(routed)
    return holds(
        "by age, the urgent so far ahead that 2 points are missed against strict levels at most: "
        f"p99 wait of priority 1, against {router}, all draws together",
        "longer",
        f"{ahead} s ahead: {_said(own)} against {_said(theirs)}",
        own.urgent >= wanted and own.late > theirs.late,
    )


def verdict_on_default(mine: Outcome, routed: Outcome, bound: Outcome, router: str) -> Row:
    """It has to win in both, unless no order that keeps priorities could."""
    beyond = bound.late > routed.late
    ahead = mine.urgent > routed.urgent
    won = "in both" if both(mine, routed) else "in the first" if ahead else "not in the first"
    return holds(
        f"default, against {router}: urgent starts in time, p99 wait of priority 1",
        "better in both, or in the first where the router is below the bound in the second",
        f"{_said(mine)} against {_said(routed)}, better {won}; bound {bound.late:.1f} s",
        ahead and (mine.late < routed.late or beyond),
    )


def _table(over: Hour, routed: list[Lines], bound: list[Lines], router: str) -> Table:
    orders = {"one line by age (fifo)": UrgentFirst(ahead=0)}
    orders |= {
        f"the urgent {s:g} s ahead": UrgentFirst(ahead=round(s * SECOND)) for s in HEAD_STARTS_S
    }
    orders[BOUND] = UrgentFirst()
    orders |= {f"and 5 ahead of 1 by {s} s": UrgentFirst(lead=s * SECOND) for s in LEADS_S}
    orders["strict levels"] = UrgentFirst(lead=FAR // 2)
    most = over.together(bound).urgent
    played = {router: routed} | {name: over.ordered(order) for name, order in orders.items()}
    theirs = over.each(routed)
    lines = []
    for name, waits in played.items():
        each, together = over.each(waits), over.together(waits)
        won = sum(both(mine, other) for mine, other in zip(each, theirs, strict=True))
        lines.append([
            name,
            f"{100 * together.urgent:.1f} %",
            f"{100 * (most - together.urgent):.1f}",
            f"{together.late:.1f} s",
            f"{together.usual:.2f} s",
            f"{100 * each[0].urgent:.1f} %, {each[0].late:.1f} s",
            "" if name == router else f"{won} of {len(theirs)}",
        ])  # fmt: skip
    return Table(
        f"{over.trace}, by age, {len(theirs)} draws of priorities together",
        ["", "urgent", "points missed", "p99 wait of 1", "mean wait of 1", "the first draw",
         "draws in which it is better in both"],
        lines,
    )  # fmt: skip
