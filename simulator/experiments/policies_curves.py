"""What do the constants of the order buy? Sweeps over them, as a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from scheduler_service.core.types import SECOND
from simulator.experiments.policies_bounds import BOUND, UrgentFirst
from simulator.experiments.policies_runs import FAR, Outcome, Setup
from simulator.experiments.verdicts import Table
from simulator.pages.charts import Chart, Line, linear

FLOORS: Final = (2, 3, 4, 8, 16, 32, 0)
LEVELS: Final = (0, 1, 2, 4, 9)
PER_LEVEL_MS: Final = (20, 50, 100, 200, 500, 1_000, 2_000, 10_000)
AHEAD_S: Final = (0.5, 1, 2, 3, 5, 8, 15)  # the urgent, of all others
UNCAPPED: Final = 1_000_000  # levels


def paced(per_level_ms: int) -> tuple[tuple[str, int], ...]:
    """Options of `aged`: a level for so much waiting, without a cap."""
    return (("per_level", per_level_ms * 1_000_000), ("levels", UNCAPPED))


def groups(trace: str, minutes: int) -> dict[str, list[Setup]]:
    """All that is swept, by the line that it makes."""
    floors = [
        Setup(trace=trace, name=f"floor {every}", floor=every, minutes=minutes) for every in FLOORS
    ]
    levels = [
        Setup(trace=trace, name=f"levels {n}, floor {floor}", order=(("levels", n),),
              floor=floor, minutes=minutes)
        for floor in (8, 0)
        for n in LEVELS
    ]  # fmt: skip
    paces = [
        Setup(trace=trace, name=f"a level each {ms / 1000:g} s, no cap, no floor",
              order=paced(ms), floor=0, minutes=minutes)
        for ms in PER_LEVEL_MS
    ]  # fmt: skip

    def by_age(name: str, ahead: float, floor: int) -> Setup:
        order = UrgentFirst(ahead=round(ahead * SECOND))
        return Setup(trace=trace, name=name, ordering=order, floor=floor, minutes=minutes)

    one_line = [by_age(f"the urgent {s:g} s ahead, by age", s, 0) for s in AHEAD_S]
    one_line.insert(0, by_age("fifo", 0, 0))
    bounded = [by_age(f"{BOUND}, floor {n}", FAR / SECOND, n) for n in (2, 3, 4, 8, 0)]

    def router(name: str, *, urgent_first: bool) -> Setup:
        return Setup(trace=trace, name=name, names=(("order", "fifo"),), floor=0, central=False,
                     urgent_first=urgent_first, minutes=minutes)  # fmt: skip

    return {
        "one of 2 ... 32 to the oldest, and none": floors,
        "levels 0 ... 9, with the floor of 8 and with none": levels,
        "a level each 0.02 ... 10 s, no cap, no floor": paces,
        "by age, the urgent 0 (fifo) ... 15 s ahead": one_line,
        f"{BOUND}, floor of 2 ... 8, and none": bounded,
        "least loaded, and with the urgent first on nodes": [
            router("least loaded", urgent_first=False),
            router("least loaded, urgent first on nodes", urgent_first=True),
        ],
    }


def curves(
    trace: str, swept: Mapping[str, list[Setup]], found: Mapping[Setup, Outcome]
) -> tuple[Table, Chart]:
    """Urgent starts in time against the p99 wait of the least urgent."""
    lines = [
        Line(
            name=name,
            colour=number,
            x=[found[s].late for s in setups],
            y=[100 * found[s].urgent for s in setups],
            dots=True,
        )
        for number, (name, setups) in enumerate(swept.items())
    ]
    low = min(min(line.y) for line in lines)
    axis = linear([100.0], label="% of urgent")
    chart = Chart(
        title=f"{trace}: urgent starts in time (%) against the p99 wait of priority 1",
        about="Each dot is a run of the first twenty minutes; better is up and to the left.",
        lines=lines,
        x=linear([x for line in lines for x in line.x], label="p99 wait of priority 1, s"),
        y=replace(axis, low=5 * (low // 5)),
    )
    cells = [
        [
            setup.name,
            f"{100 * found[setup].urgent:.2f} %",
            f"{found[setup].late:.1f} s",
            f"{found[setup].most:.1f} s",
        ]
        for setups in swept.values()
        for setup in setups
    ]
    head = ["", "urgent starts in time", "p99 wait of priority 1", "longest"]
    return Table(f"{trace}, the first twenty minutes: what the constants buy", head, cells), chart
