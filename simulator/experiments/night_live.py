"""The night job against chat once more, with the live service, in real time.

The arrivals of the experiment `night`, for five minutes: real schedulers with a store of jobs, real
agents with the simulated engine, calls through the client library, all on this machine. The nights
of a case run side by side, each a pool of its own. What is judged is what the calls' results say
about their time in the queue. `python -m benchmarks.night` plays it (the simulator itself knows
nothing of servers); its figures depend on the machine, which should have nothing else to do.

In (b) all items start at once, and none may be stopped in its first 2 s; five minutes are too short
for that to drown in a p99, as it does in the twenty of `night`. So the first window has a row of
its own, and the p99 is that of the others. The simulator, with the same arrivals, has about the
same p99: what is decided live is what is decided there, plus some milliseconds a message.

The use of the slots is what the scheduler counts as taken, by a look each second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.experiments import night
from simulator.experiments.night import SEEDS, WINDOW_S, p99
from simulator.experiments.verdicts import Experiment, Findings, Row, holds

SECONDS, NIGHTS = 300, len(SEEDS)
SHORT_SECONDS, SHORT_NIGHTS, SHRINK = 90, 1, 5
UNSTOPPED_S: Final = 2.0  # in which no item may be stopped
SLACK_S: Final = 0.1  # of a live system, on waits that a rule bounds


@dataclass(frozen=True)
class Night:
    """What was seen of one."""

    waits: list[tuple[float, float]]  # (called at, waited), s
    ended: list[int]  # items so far, at the end of each window
    preempted: int
    failed: int

    def of(self, *, first: int = 0, end: int = 1 << 30) -> list[float]:
        """Waits of calls in these windows."""
        return [wait for at, wait in self.waits if first <= at // WINDOW_S < end]

    def fewest(self) -> int:
        """Items that ended in a window, the first aside, in which none can where they are long."""
        return min(now - before for before, now in zip(self.ended, self.ended[1:], strict=False))


@dataclass(frozen=True)
class Case:
    """The nights of one configuration."""

    nights: list[Night]
    use: float

    def waits(self, *, first: int = 0, end: int = 1 << 30) -> list[float]:
        """Of all nights."""
        return [wait for one in self.nights for wait in one.of(first=first, end=end)]


def live(seconds: int, nights: int, shrink: float) -> dict[str, Case]:
    """Play them, in processes of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.night", f"--seconds={seconds}", f"--nights={nights}",
         f"--shrink={shrink}"],
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return {name: _case(seen) for name, seen in json.loads(done.stdout).items()}


def _case(seen: Mapping[str, Any]) -> Case:
    return Case([Night(**one) for one in seen["nights"]], seen["use"])


def short_items(case: Case) -> list[Row]:
    """(a)."""
    (one,) = case.nights
    windows = range(len(one.ended))
    worst = max(p99(one.of(first=window, end=window + 1)) for window in windows)
    return [
        holds("(a) items of 1 s, no preemption: the worst window's p99 wait of priority 10",
              "at most 2 s", f"{worst:.2f} s", worst <= 2),
        holds("(a) items that end in the slowest window", "some", str(one.fewest()),
              one.fewest() > 0),
    ]  # fmt: skip


def long_items(case: Case, name: str, most_s: float, least: float, simulated: float) -> list[Row]:
    """(b)."""
    tail, first = p99(case.waits(first=1)), max(case.waits(end=1))
    fewest = min(one.fewest() for one in case.nights)
    stopped = sum(one.preempted for one in case.nights)
    return [
        holds(f"(b) items of 30 s, {name}: p99 wait of priority 10 from the second window on",
              f"at most {most_s} s", f"{tail:.2f} s, in the simulator {simulated:.2f} s",
              tail <= most_s),
        holds(f"(b) {name}: longest wait in the first window",
              f"at most the {UNSTOPPED_S:g} s in which none is stopped, and {SLACK_S} s",
              f"{first:.2f} s", first <= UNSTOPPED_S + SLACK_S),
        holds(f"(b) {name}: use of the slots", f"at least {100 * least:.0f} %",
              f"{100 * case.use:.1f} %", case.use >= least),
        holds(f"(b) {name}: items that end in the slowest window", "some", str(fewest),
              fewest > 0),
        holds(f"(b) {name}: items stopped", "some", str(stopped), stopped > 0),
    ]  # fmt: skip


def simulated(seconds: int, nights: int, headroom: int) -> float:
    """The same p99 in simulated time."""
    waits = []
    for seed in SEEDS[:nights]:
        plan = night.Night(items=600, item_s=30, rate=2.0, until_s=seconds, headroom=headroom,
                           seed=seed)  # fmt: skip
        waits += night.play(plan)[1].all(first=1)
    return p99(waits)


def measure(short: bool) -> Findings:
    """All cases at once."""
    seconds, nights, shrink = (
        (SHORT_SECONDS, SHORT_NIGHTS, SHRINK) if short else (SECONDS, NIGHTS, 1)
    )
    seen = live(seconds, nights, shrink)
    limits = (("preemption", 1.0, 0.99), ("preemption, headroom of 1", 0.5, 0.90))
    rows = short_items(seen["short items"])
    for headroom, (name, most_s, least) in enumerate(limits):
        rows += long_items(seen[name], name, most_s, least, simulated(seconds, nights, headroom))
    tail = p99(seen["no preemption"].waits())
    failed = sum(one.failed for case in seen.values() for one in case.nights)
    rows += [
        holds("(b) no preemption: p99 wait of priority 10", "about an item: 20 s to 30 s",
              f"{tail:.1f} s", 20 <= tail <= 30),
        holds("items that failed or expired", "none", str(failed), failed == 0),
    ]  # fmt: skip
    return Findings(rows)


NIGHT_LIVE: Final = Experiment("night-live", "The night job with the live service", measure)
