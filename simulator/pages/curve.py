"""The page of a plan: the answer, what each kind and number would cost, the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

from simulator.pages.charts import Chart, Line, draw, linear, logarithmic, spanning, swatch
from simulator.pages.page import facts, page, table
from simulator.report import share

Curves = Sequence[Mapping[str, Any]]
_DEFINITIONS: Final = (
    "Served well is the share of all requests, refused ones included. The green rows are the "
    "fewest nodes of each kind that serve well."
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
    return [_served(curves, target), _waits(curves), _used(curves), _tokens(curves)]


def _lines(curves: Curves, value: Callable[[Mapping[str, Any]], float]) -> list[Line]:
    return [
        Line(
            name=curve["kind"],
            colour=n,
            x=[point["price_per_hour"] for point in curve["points"]],
            y=[value(point) for point in curve["points"]],
            dots=True,
        )
        for n, curve in enumerate(curves)
    ]


def _prices(lines: Sequence[Line]) -> list[float]:
    return [x for line in lines for x in line.x]


def _served(curves: Curves, target: float) -> str:
    lines = _lines(curves, lambda point: float(point["attained"]))
    return draw(
        Chart(
            title="Served well, by price",
            about="of all requests; the dashed red line is what is wanted",
            lines=lines,
            x=spanning(_prices(lines), label="per hour"),
            y=linear([1.0], percent=True),
            mark=target,
        )
    )


def _waits(curves: Curves) -> str:
    lines = _lines(curves, lambda point: max(0.01, point["wait_p99_s"]))
    return draw(
        Chart(
            title="p99 wait, by price",
            about="s in the queue, logarithmic",
            lines=lines,
            x=spanning(_prices(lines), label="per hour"),
            y=logarithmic([y for line in lines for y in line.y], least=0.01),
        )
    )


def _used(curves: Curves) -> str:
    lines = _lines(curves, lambda point: float(point["utilisation"]))
    return draw(
        Chart(
            title="Utilisation, by price",
            about="of the slots",
            lines=lines,
            x=spanning(_prices(lines), label="per hour"),
            y=linear([1.0], percent=True),
        )
    )


def _tokens(curves: Curves) -> str:
    lines = _lines(curves, lambda point: float(point["cost_per_million_tokens"]))
    return draw(
        Chart(
            title="Cost of a million output tokens, by price",
            about="of the whole run",
            lines=lines,
            x=spanning(_prices(lines), label="per hour"),
            y=linear([y for line in lines for y in line.y]),
        )
    )
