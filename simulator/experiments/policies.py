"""Policies on two real hours: who keeps urgent deadlines, and what do the others pay for it?

Azure's hours of conversations and of code on as many nodes of eight slots as are full at their
peaks, and all policies as configurations of one run: the same requests, tenants and priorities
(10 % of priority 10, 20 % of 7, 50 % of 5, 20 % of 1, a hundred tenants of Zipf's law). Each
request should start by a deadline of its own: within 3 s where it is urgent (10 and 7), within
10 s at 5, within 60 s at 1. It is judged, not enforced: whoever is late is served all the same, so
that every configuration does the same work and none looks better for what it drops. `edf` alone is
told of them, a day later each, which is the same order and lets nothing expire.

`least loaded` is the usual router without a central queue: each request goes at once to the node
with the fewest, and waits there, first come first served, or, as engines with priorities of their
own do, the most urgent first. It runs on the same core, with nodes that take any number, and sees
them as they are at that very instant, which is the best that a router can know; or as they were up
to 5 s ago, as routers do.

The target was "better than least loaded in both": more urgent starts in time, and a shorter p99
wait of the least urgent. One line by age meets it. No order can that serves the urgent first and
lets no request of priority 1 pass an older one of 5 or 1:

- What one queue gains by itself is what `fifo` has: better in both, on both hours, in the draw of
  priorities of the first table and in eight draws together (in single ones the p99 hangs on which
  few requests are drawn). It is little: 7 % of the p99 wait of all on the hour of conversations,
  and less than 1 % on that of code. The mean wait of all is about the same in every order that does
  not look at lengths (the conservation law of E1, and a row below); so what the urgent gain beyond
  that, others pay.
- The bound, on one server. When such an order starts a request r of priority 1, it has served all
  older ones of 5 and 1, and all urgent ones that have come, since the server was last idle. So r
  starts no earlier than at the first instant by which the server has been busy for as long as those
  of them take that came before it. "Urgent first, all others by age" serves nothing else before r,
  so it starts r at that very instant: no order of the kind starts any r sooner. With many slots the
  same requests go first, but who is in the slots decides when one is free; there it holds up to the
  few percent by which the mean wait of all differs from order to order. Shares between tenants let
  requests of priority 1 pass each other: that chooses who of them waits, and so moves their p99,
  but not their mean, which is above the router's as well.
- That bound is above the router's p99 on both hours, in each of eight draws of priorities. The
  default is further up, for it lets 5 go before 1, as its priorities say. It spends what the queue
  gains, and the wait of priority 1 up to a bound on starting, on the urgent.
- In between, the urgent stand in the line of all, as if they had come some seconds sooner. In the
  draw of the first table that is better in both on both hours up to one second, and misses 4 and 7
  points of the urgent starts that strict levels have; with all draws together it is so on the hour
  of conversations alone. Where 2 points are missed at most, the p99 is above the router's.
- What is left is to let priority 1 pass older requests of 5. Shares between tenants do that, for
  heavy tenants wait behind light ones: with a level for each 50 ms of waiting, no cap and no floor;
  or with the urgent first and all others by age between the shares. Priority 5 pays then, and what
  comes of it on the hour of code hangs on who the heavy tenants are (the table of draws). Neither
  is the default: the first serves by age under a lasting overload, so that the urgent wait with all
  others (E3's table); the second makes one priority of 5 and 1; and neither has a bound on
  starting.

Against the router whose nodes serve the urgent first, which buys as much with priorities as the
default does, the default starts as many of the urgent in time or more, its longest wait of priority
1 is shorter, and where all requests are one tenant's (the traces name none) so is its p99: nothing
but the queue differs then. With a hundred tenants the default shares priority 1 between them, which
the router does not; on the hour of conversations that costs it the p99, not the longest wait.

What a router needs instead of a queue is nodes: the table has how many more it takes to start as
many of the urgent in time.

The curves sweep the constants of the default over the first twenty minutes: how often the oldest
goes first (`floor_every`), how many levels waiting lifts a request (`levels`), and how fast
(`per_level`). Between priorities as far apart as these (10, 7, 5, 1), at 10 s a level and waits of
some seconds, two levels hardly change an order: the floor is what serves the least urgent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from scheduler_service.core.types import SECOND
from simulator.experiments.parallel import spread
from simulator.experiments.policies_bounds import BOUND, DRAWS, UrgentFirst, both, bounds, hour
from simulator.experiments.policies_curves import curves, groups, paced
from simulator.experiments.policies_runs import NODES, SLOTS, STARTS, Outcome, Setup, play
from simulator.experiments.verdicts import Experiment, Findings, Row, Table, holds

STALE: Final = 5 * SECOND
SWEEP_MINUTES: Final = 20
PACE_MS: Final = 50
MORE: Final = 6  # nodes that a router may have beside those of the others
QUICK: Final = "aged, a level each 50 ms, no cap, no floor"
ROUTER: Final = "least loaded"
URGENT_ROUTER: Final = "least loaded, urgent first on nodes"
STALE_ROUTER: Final = "least loaded, by a look at most 5 s old"
ALONE: Final = ", one tenant"
SHARED: Final = "urgent first, all others by age between shares"
SHARED_DRAWS: Final = 4  # of those whose shares the live core has to play
# What no row of a short run is about.
LONG: Final = ("strict", "aged, no floor", "aged, sjf", "aged, uncapped", QUICK, SHARED, "fair",
               "edf", "guarded", "estimate, hot_cold")  # fmt: skip


def setups(trace: str, minutes: int) -> list[Setup]:
    """All that are compared; the default first."""

    def of(name: str, **fields: Any) -> Setup:
        return Setup(trace=trace, name=name, minutes=minutes, **fields)

    def order(name: str) -> tuple[tuple[str, str], ...]:
        return (("order", name),)

    def router(name: str, **fields: Any) -> Setup:
        return of(name, names=order("fifo"), floor=0, central=False, **fields)

    return [
        of("default"),
        of("fifo", names=order("fifo"), floor=0),
        of("strict, no floor", names=order("strict"), floor=0),
        of("strict", names=order("strict")),
        of("aged, no floor", floor=0),
        of("aged, sjf", order=(("sjf", True),)),
        of("aged, uncapped", names=order("aged_uncapped"), floor=0),
        of(QUICK, order=paced(PACE_MS), floor=0),
        of(SHARED, ordering=UrgentFirst(shares=True), floor=0),
        of(BOUND, ordering=UrgentFirst(), floor=0),
        of("fair", names=order("fair"), floor=0),
        of("edf", names=order("edf"), floor=0, deadlines=True),
        of("guarded", names=(("admission", "guarded"),)),
        of("estimate, hot_cold", names=(("score", "estimate"), ("pick", "hot_cold"))),
        router(ROUTER),
        router(URGENT_ROUTER, urgent_first=True),
        router(STALE_ROUTER, view=STALE),
        of("default" + ALONE, tenants=1),
        router(URGENT_ROUTER + ALONE, urgent_first=True, tenants=1),
        *(router(with_more(n), more=n) for n in range(1, MORE + 1)),
    ]


def with_more(nodes: int) -> str:
    """The plain router with so many nodes more."""
    return f"{ROUTER}, {nodes} more node{'s' * (nodes > 1)}"


def redrawn(trace: str) -> dict[str, list[Setup]]:
    """Those that let priority 1 pass 5, under further draws of priorities and tenants."""
    again = [setup for setup in setups(trace, 60) if setup.name in (QUICK, SHARED)]
    return {
        setup.name: [setup, *(replace(setup, draw=n) for n in range(2, SHARED_DRAWS + 1))]
        for setup in again
    }


def compared(trace: str, found: Mapping[str, Outcome], *, whole: bool) -> list[Row]:
    """What the default promises against others; `whole`: and what takes an hour to show."""
    mine, fifo, strict = found["default"], found["fifo"], found["strict, no floor"]
    stale = found[STALE_ROUTER]
    same = [o for name, o in found.items() if "more node" not in name]
    apart = max(abs(o.tokens_per_s / mine.tokens_per_s - 1) for o in same)
    rows = [
        holds("urgent starts in time, against fifo", "more", points(mine, fifo),
              mine.urgent > fifo.urgent),
        holds("urgent starts in time, against strict without floor", "within 2 points",
              points(mine, strict), abs(mine.urgent - strict.urgent) <= 0.02),
        holds("p99 wait of priority 1, against strict without floor", "less", waits(mine, strict),
              mine.late < strict.late),
        *against_routers(found),
        holds(f"urgent starts in time, against {STALE_ROUTER}", "more", points(mine, stale),
              mine.urgent > stale.urgent),
        holds(f"mean wait of all, against {STALE_ROUTER}", "less",
              f"{mine.mean:.2f} s against {stale.mean:.2f} s", mine.mean < stale.mean),
        holds("tokens per second, of all on as many nodes", "within 1 %",
              f"{100 * apart:.2f} % apart", apart <= 0.01),
    ]  # fmt: skip
    if whole:
        rows += quick_ageing(found)
    return [replace(row, what=f"{trace}: {row.what}") for row in rows]


def quick_ageing(found: Mapping[str, Outcome]) -> list[Row]:
    """Better than the plain router in both; and what no order changes."""
    quick, plain, fifo = found[QUICK], found[ROUTER], found["fifo"]
    blind = [found[name] for name in ("default", "strict, no floor", "strict", QUICK, "fair")]
    moved = max(abs(outcome.mean / fifo.mean - 1) for outcome in blind)
    return [
        holds(f"{QUICK}: urgent starts in time, against {ROUTER}", "more", points(quick, plain),
              quick.urgent > plain.urgent),
        holds(f"{QUICK}: p99 wait of priority 1, against {ROUTER}", "less", waits(quick, plain),
              quick.late < plain.late),
        holds("mean wait of all, of five orders against fifo", "within 10 %",
              f"{100 * moved:.1f} % apart", moved <= 0.1),
    ]  # fmt: skip


def against_routers(found: Mapping[str, Outcome]) -> list[Row]:
    """That see the nodes as they are."""
    mine, fifo = found["default"], found["fifo"]
    plain, urgent = found[ROUTER], found[URGENT_ROUTER]
    alone, lone_router = found["default" + ALONE], found[URGENT_ROUTER + ALONE]
    return [
        holds(f"urgent starts in time, against {ROUTER}", "more", points(mine, plain),
              mine.urgent > plain.urgent),
        holds(f"mean wait of all, fifo against {ROUTER}", "less",
              f"{fifo.mean:.2f} s against {plain.mean:.2f} s", fifo.mean < plain.mean),
        holds(f"urgent starts in time, against {URGENT_ROUTER}", "as many",
              points(mine, urgent), mine.urgent >= urgent.urgent),
        holds(f"longest wait of priority 1, against {URGENT_ROUTER}", "less",
              f"{mine.most:.1f} s against {urgent.most:.1f} s", mine.most < urgent.most),
        holds(f"one tenant: urgent starts in time, against {URGENT_ROUTER}", "as many",
              points(alone, lone_router), alone.urgent >= lone_router.urgent),
        holds(f"one tenant: p99 wait of priority 1, against {URGENT_ROUTER}", "less",
              waits(alone, lone_router), alone.late < lone_router.late),
        nodes_instead(found),
    ]  # fmt: skip


def nodes_instead(found: Mapping[str, Outcome]) -> Row:
    """The least that let a plain router start as many of the urgent in time."""
    mine = found["default"]
    enough = (n for n in range(1, MORE + 1) if found[with_more(n)].urgent >= mine.urgent)
    more = next(enough, None)
    said = f"more than {MORE}" if more is None else str(more)
    return holds("nodes more with which least loaded starts as many of the urgent in time",
                 "at least 1", said, mine.urgent > found[ROUTER].urgent)  # fmt: skip


def points(mine: Outcome, other: Outcome) -> str:
    """Urgent starts in time."""
    return f"{100 * mine.urgent:.1f} % against {100 * other.urgent:.1f} %"


def waits(mine: Outcome, other: Outcome) -> str:
    """The p99 of the least urgent."""
    return f"{mine.late:.1f} s against {other.late:.1f} s"


def draws_table(
    trace: str, drawn: Mapping[str, Sequence[Outcome]], routed: Sequence[Outcome]
) -> Table:
    """Each beside the plain router, which has the same waits in each draw, of other requests."""

    def said(found: Outcome) -> str:
        return f"{100 * found.urgent:.1f} %, {found.late:.1f} s"

    lines = [[ROUTER, *map(said, routed), ""]]
    for name, outcomes_of in drawn.items():
        won = sum(both(mine, other) for mine, other in zip(outcomes_of, routed, strict=True))
        lines.append([name, *map(said, outcomes_of), f"{won} of {len(routed)}"])
    return Table(
        f"{trace}, where priority 1 passes 5: urgent starts in time and p99 wait of priority 1, by "
        "draw of priorities and tenants",
        ["", *map(str, range(1, len(routed) + 1)), "better in both"],
        lines,
    )


def table(trace: str, found: Mapping[str, Outcome]) -> Table:
    """Everything of one trace."""
    return Table(
        f"{trace} on {NODES[trace]} nodes of {SLOTS} slots: started in time, by priority; waits of "
        "priority 1; output",
        [
            "",
            "urgent",
            "10",
            "7",
            "5",
            "1",
            "p99 wait of 1",
            "longest of 1",
            "mean of all",
            "tokens/s",
        ],
        [
            [
                name,
                f"{100 * o.urgent:.1f} %",
                *(f"{100 * o.attained[p]:.1f} %" for p in STARTS),
                f"{o.late:.1f} s",
                f"{o.most:.1f} s",
                f"{o.mean:.2f} s",
                f"{o.tokens_per_s:.1f}",
            ]
            for name, o in found.items()
        ],
    )


def measure(short: bool) -> Findings:
    """Both traces."""
    minutes = 10 if short else 60
    rows, tables, charts = [], [], {}
    for trace in ("azure-code",) if short else tuple(NODES):
        wanted = [s for s in setups(trace, minutes) if not (short and s.name in LONG)]
        swept = {} if short else groups(trace, SWEEP_MINUTES)
        drawn = {} if short else redrawn(trace)
        lines = [*swept.values(), *drawn.values()]
        found = outcomes([*wanted, *(s for line in lines for s in line)], alone=short)
        main = {s.name: found[s] for s in wanted}
        over = hour(trace, minutes=minutes, draws=2 if short else DRAWS)
        bound_rows, bound_table = bounds(over, main, router=ROUTER, mine="default", whole=not short)
        rows += compared(trace, main, whole=not short)
        rows += [replace(row, what=f"{trace}: {row.what}") for row in bound_rows]
        tables += [table(trace, main), bound_table]
        if not short:
            routed = over.each(over.routed())[:SHARED_DRAWS]
            by_draw = {name: [found[s] for s in setups] for name, setups in drawn.items()}
            swept_table, charts[f"{trace}-trade-off"] = curves(trace, swept, found)
            tables += [draws_table(trace, by_draw, routed), swept_table]
    return Findings(rows, tables, charts)


def outcomes(wanted: Sequence[Setup], *, alone: bool) -> dict[Setup, Outcome]:
    """Of each, once."""
    once = list(dict.fromkeys(wanted))
    return dict(zip(once, spread(play, once, alone=alone), strict=True))


POLICIES: Final = Experiment("policies", "All policies on Azure's two hours", measure)
