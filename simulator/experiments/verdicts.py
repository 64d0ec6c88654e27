"""What did an experiment find? Rows of target, measured value, tolerance and verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simulator.pages.charts import Chart


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was predicted and measured."""

    what: str
    target: str
    measured: str
    tolerance: str = ""
    passed: bool
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Figures side by side, without a verdict."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Findings:
    """All that an experiment found; charts by the name of their file."""

    rows: list[Row]
    tables: list[Table] = field(default_factory=list)
    charts: dict[str, Chart] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A named experiment. A short run fits into a test, and proves less."""

    name: str
    title: str
    run: Callable[[bool], Findings]


def near(
    what: str,
    target: float,
    measured: float,
    *,
    share: float,
    error: float | None = None,
    note: str = "",
    digits: int = 4,
) -> Row:
    """Within `share` of the target. With `error`, a standard error: within three of it as well, and
    they must be small enough to tell.
    """
    off = abs(measured - target)
    passed = off <= share * abs(target)
    tolerance = f"{100 * share:g} %"
    shown = f"{measured:.{digits}g}"
    if error is not None:
        passed = passed and off <= 3 * error <= share * abs(target)
        tolerance = f"3 SE and {tolerance}"
        shown += f" ± {3 * error:.2g}"
    return Row(
        what=what,
        target=f"{target:.{digits}g}",
        measured=shown,
        tolerance=tolerance,
        passed=passed,
        note=note,
    )


def within(what: str, target: float, measured: float, *, error: float, note: str = "") -> Row:
    """Within three standard errors of the target, however large they are."""
    return Row(
        what=what,
        target=f"{target:.4g}",
        measured=f"{measured:.4g} ± {3 * error:.2g}",
        tolerance="3 SE",
        passed=abs(measured - target) <= 3 * error,
        note=note,
    )


def exactly(what: str, target: int, measured: int, note: str = "") -> Row:
    """Equal, as whole numbers are."""
    return Row(
        what=what,
        target=str(target),
        measured=str(measured),
        tolerance="exact",
        passed=target == measured,
        note=note,
    )


def holds(what: str, claim: str, measured: str, passed: bool, note: str = "") -> Row:
    """A claim that is true or not."""
    return Row(what=what, target=claim, measured=measured, passed=passed, note=note)


def render(rows: Sequence[Row]) -> str:
    """For a terminal."""
    head = ("", "target", "measured", "tolerance", "verdict")
    lines = [
        (r.what, r.target, r.measured, r.tolerance, "ok" if r.passed else "FAILED") for r in rows
    ]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(5)]
    text = []
    for line, note in zip([head, *lines], ["", *(r.note for r in rows)], strict=True):
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join(cells).rstrip() + (f"  ({note})" if note else ""))
    return "\n".join(text)


def markdown(rows: Sequence[Row]) -> str:
    """For a document."""
    lines = ["| | target | measured | tolerance | verdict |", "|---|---|---|---|---|"]
    for r in rows:
        verdict = "ok" if r.passed else "**failed**"
        what = f"{r.what} ({r.note})" if r.note else r.what
        lines.append(f"| {what} | {r.target} | {r.measured} | {r.tolerance} | {verdict} |")
    return "\n".join(lines)
