"""The page of a plan: the answer, what each kind and number would cost, the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, Final

from simulator.pages.charts import Axis, Chart, Line, draw, linear, logarithmic, spanning, swatch
from simulator.pages.page import facts, page, table
from simulator.report import share

Curves = Sequence[Mapping[str, Any]]
_DEFINITIONS: Final = (
    "Served well is the share of all requests, refused ones included. The green rows are the "
    "fewest nodes of each kind that serve well."
)


@dataclass(frozen=True, slots=True)
class _Plot:
    """One value of the fleets, by what they cost."""

    key: str  # of a curve's point
    title: str
    about: str
    scale: Callable[[Sequence[float]], Axis]
    least: float = 0.0  # lower values are drawn here


def _shares(_: Sequence[float]) -> Axis:
    return linear([1.0], percent=True)


_PLOTS: Final = (
    _Plot(
        "attained",
        "Served well",
        "of all requests; the dashed red line is what is wanted",
        _shares,
    ),
    _Plot(
        "wait_p99_s",
        "p99 wait",
        "s in the queue, logarithmic",
        partial(logarithmic, least=0.01),
        least=0.01,
    ),
    _Plot("utilisation", "Utilisation", "of the slots", _shares),
    _Plot(
        "cost_per_million_tokens",
        "Cost of a million output tokens",
        "of the whole run",
        linear,
    ),
)


def curve_page(document: Mapping[str, Any], rows: Sequence[Sequence[str]], answer: str) -> str:
    """The whole page; `rows` is the table, its head first."""
    curves: Curves = document["curves"]
    marks = ", ".join(sorted({c["calibration"] for c in curves if c["calibration"]}))
    best = [n for n, row in enumerate(rows[1:]) if row[-1]]
    legend = "".join(f"<span>{swatch(n)}{escape(c['kind'])}</span>" for n, c in enumerate(curves))
    return page(
        f"Batchyard plan: {document['workload']}",
        [
            f"<h1>{escape(answer)}</h1>",
            facts(
                [
                    ("workload", document["workload"]),
                    ("requests", f"{document['requests']:,}"),
                    ("objective", f"{document['objective']}, for {share(document['target'])}"),
                    ("policy", document["policy"]),
                    ("calibration", marks),
                    ("seed", str(document["seed"])),
                ]
            ),
            f'<div class="legend">{legend}</div>',
            f'<div class="plots">{"".join(_plots(curves, document["target"]))}</div>',
            "<h2>All fleets that were run</h2>",
            table(rows, best=best),
            f'<p class="soft">{_DEFINITIONS}</p>',
        ],
    )


def _plots(curves: Curves, target: float) -> list[str]:
    return [_drawn(plot, curves, target) for plot in _PLOTS]


def _drawn(plot: _Plot, curves: Curves, target: float) -> str:
    lines = [
        Line(
            name=curve["kind"],
            colour=n,
            x=[point["price_per_hour"] for point in curve["points"]],
            y=[max(plot.least, float(point[plot.key])) for point in curve["points"]],
            dots=True,
        )
        for n, curve in enumerate(curves)
    ]
    return draw(
        Chart(
            title=f"{plot.title}, by price",
            about=plot.about,
            lines=lines,
            x=spanning([x for line in lines for x in line.x], label="per hour"),
            y=plot.scale([y for line in lines for y in line.y]),
            mark=target if plot.key == "attained" else None,
        )
    )
