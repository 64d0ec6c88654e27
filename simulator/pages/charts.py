"""How are lines and ranges drawn? As SVG with round numbers along its axes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from simulator.pages.page import COLOURS

WIDTH: Final = 520
HEIGHT: Final = 250
LEFT: Final = 54
RIGHT: Final = 14
TOP: Final = 10
BOTTOM: Final = 46
DASHES: Final = ("", "7 4", "2 3", "10 3 2 3", "1 4", "12 5")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Values along one side."""

    low: float = 0.0
    high: float = 1.0
    label: str = ""
    logarithmic: bool = False
    percent: bool = False

    def place(self, value: float) -> float:
        """0..1 along the axis."""
        if self.logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values."""
        if self.logarithmic:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            step = max(1, -(-(last - first) // 6))
            return [10.0**power for power in range(first, last + 1, step)]
        distance = _step(self.high - self.low)
        count = int((self.high - self.low) / distance + 1e-9)
        return [self.low + distance * number for number in range(count + 1)]

    def told(self, value: float) -> str:
        """With three digits that say something."""
        return f"{100 * value:.4g}%" if self.percent else number(value)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run's values; `colour` is the number of the run."""

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one axis."""

    title: str
    about: str
    lines: Sequence[Line]
    x: Axis
    y: Axis
    steps: bool = False  # a value holds until the next one
    mark: float | None = None  # a value of y to keep in view
    marks: Sequence[tuple[float, str]] = field(default_factory=tuple)  # of x, with words


def linear(values: Sequence[float], *, label: str = "", percent: bool = False) -> Axis:
    """From 0 to a round number that none exceeds."""
    most = max([value for value in values if math.isfinite(value)], default=0.0)
    if percent and most <= 1.0:
        return Axis(high=1.0, label=label, percent=True)
    step = _step(most or 1.0)
    return Axis(high=step * math.ceil((most or 1.0) / step - 1e-9), label=label, percent=percent)


def spanning(values: Sequence[float], *, label: str = "") -> Axis:
    """From 0 to the largest of them."""
    return Axis(high=max(values, default=0.0) or 1.0, label=label)


def logarithmic(values: Sequence[float], *, label: str = "", least: float = 1e-3) -> Axis:
    """Whole powers of ten around the values; what is below `least` stands at its end."""
    positive = [value for value in values if value > 0]
    low = max(least, min(positive, default=least))
    high = max(max(positive, default=1.0), low * 10)
    return Axis(
        low=10.0 ** math.floor(math.log10(low) + 1e-9),
        high=10.0 ** math.ceil(math.log10(high) - 1e-9),
        label=label,
        logarithmic=True,
    )


def number(value: float) -> str:
    """ "1.2k", "0.03", "12"."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _step(width: float) -> float:
    """A round distance that gives four to eight ticks."""
    raw = width / 5
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw - 1e-12)


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float, height: float = HEIGHT) -> float:
    return height - BOTTOM - axis.place(value) * (height - TOP - BOTTOM)


def plot(chart: Chart) -> list[str]:
    """Axes, marks and lines, as parts of an SVG of WIDTH by HEIGHT."""
    parts = [_frame(chart.x, chart.y, HEIGHT)]
    if chart.mark is not None:
        at = _y(chart.y, chart.mark)
        parts.append(_rule(LEFT, WIDTH - RIGHT, at, at))
    for value, words in chart.marks:
        at = _x(chart.x, value)
        parts.append(_rule(at, at, TOP, HEIGHT - BOTTOM))
        parts.append(f'<text x="{at + 4:.1f}" y="{TOP + 12}">{escape(words)}</text>')
    return parts + [_path(chart, line) for line in chart.lines]


def draw(chart: Chart) -> str:
    """A figure."""
    parts = plot(chart)
    parts.append(
        f'<line class="rule" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="0" x2="0" '
        'stroke="var(--soft)" style="visibility:hidden"/>'
    )
    data = escape(json.dumps(_reading(chart), ensure_ascii=False), quote=True)
    return _figure(chart.title, chart.about, HEIGHT, "".join(parts), f' data-plot="{data}"')


def _figure(title: str, about: str, height: float, inside: str, more: str = "") -> str:
    return (
        f'<figure class="card"><h3>{escape(title)}</h3><figcaption>{escape(about)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}"{more}>'
        f'{inside}</svg><div class="read" aria-live="off"></div></figure>'
    )


def _rule(x1: float, x2: float, y1: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="var(--bad)" '
        'stroke-dasharray="4 4"/>'
    )


def _frame(x: Axis, y: Axis, height: float) -> str:
    parts = []
    for value in y.ticks():
        at = _y(y, value, height)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" '
            f'stroke="var(--grid)"/><text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">'
            f"{y.told(value)}</text>"
        )
    parts.append(_along(x, height))
    return "".join(parts)


def _along(x: Axis, height: float) -> str:
    """The axis below."""
    low = height - BOTTOM
    parts = [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{low}" y2="{low}" stroke="var(--line)"/>']
    ticks = x.ticks()
    for count, value in enumerate(ticks):
        at = _x(x, value)
        anchor = "end" if count == len(ticks) - 1 and at > WIDTH - RIGHT - 12 else "middle"
        parts.append(
            f'<text x="{at:.1f}" y="{low + 20:.1f}" text-anchor="{anchor}">{x.told(value)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{height - 4:.1f}" text-anchor="middle">{escape(x.label)}</text>'
    )
    return "".join(parts)


def stroke(colour: int) -> str:
    """How a run's line looks."""
    dash = DASHES[colour % len(DASHES)]
    told = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="var(--run{colour % COLOURS})" stroke-width="2"{told}'


def _path(chart: Chart, line: Line) -> str:
    points = [(_x(chart.x, x), _y(chart.y, y)) for x, y in zip(line.x, line.y, strict=True)]
    if not points:
        return ""
    moves = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for x, y in points[1:]:
        moves.append(f"H{x:.1f}V{y:.1f}" if chart.steps else f"L{x:.1f} {y:.1f}")
    drawn = (
        f'<path d="{"".join(moves)}" fill="none" stroke-linejoin="round" {stroke(line.colour)}/>'
    )
    if line.dots:
        fill = f"var(--run{line.colour % COLOURS})"
        drawn += "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}"/>' for x, y in points
        )
    return drawn


def _reading(chart: Chart) -> dict[str, object]:
    """What the reading line needs: the longest line's places, and the values at each of them."""
    longest = max(chart.lines, key=lambda line: len(line.x), default=None)
    places = list(longest.x) if longest is not None else []
    return {
        "width": WIDTH,
        "at": [round(_x(chart.x, x), 1) for x in places],
        "labels": [f"{chart.x.label.partition(',')[0]} {chart.x.told(x)}" for x in places],
        "series": [
            {
                "name": line.name,
                "colour": line.colour % COLOURS,
                "values": [chart.y.told(_at(line, x)) for x in places],
            }
            for line in chart.lines
            if line.x
        ],
    }


def _at(line: Line, x: float) -> float:
    """The value at the last point that is not behind `x`."""
    low, high = 0, len(line.x) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if line.x[middle] <= x else (low, middle - 1)
    return line.y[low]


@dataclass(frozen=True, kw_only=True)
class Range:
    """From the median to a far quantile, for one run in one group."""

    name: str
    colour: int
    low: float
    high: float


def draw_ranges(
    title: str, about: str, groups: Sequence[tuple[str, Sequence[Range]]], x: Axis
) -> str:
    """Groups below each other, a bar for each run."""
    row, gap = 15, 12
    height = TOP + BOTTOM + sum(len(ranges) * row + gap for _, ranges in groups)
    parts = []
    for value in x.ticks():
        at = _x(x, value)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{height - BOTTOM}" '
            'stroke="var(--grid)"/>'
        )
    top = float(TOP + gap / 2)
    for name, ranges in groups:
        middle = top + len(ranges) * row / 2
        parts.append(
            f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>'
        )
        for given in ranges:
            parts.append(_bar(x, given, top + row / 2))
            top += row
        top += gap
    parts.append(_along(x, height))
    return _figure(title, about, height, "".join(parts))


def _bar(x: Axis, given: Range, at: float) -> str:
    low, high = _x(x, given.low), _x(x, given.high)
    fill = f"var(--run{given.colour % COLOURS})"
    told = f"{given.name}: p50 {number(given.low)} s, p99 {number(given.high)} s"
    return (
        f'<g><title>{escape(told)}</title><line x1="{low:.1f}" x2="{high:.1f}" y1="{at:.1f}" '
        f'y2="{at:.1f}" {stroke(given.colour)}/>'
        f'<circle cx="{low:.1f}" cy="{at:.1f}" r="3.5" fill="var(--card)" stroke="{fill}" '
        f'stroke-width="2"/><circle cx="{high:.1f}" cy="{at:.1f}" r="4.5" fill="{fill}"/></g>'
    )


def swatch(colour: int) -> str:
    """A short piece of a run's line, for the legend."""
    return (
        '<svg width="34" height="10" aria-hidden="true"><line x1="0" x2="34" y1="5" y2="5" '
        f"{stroke(colour)}/></svg>"
    )
