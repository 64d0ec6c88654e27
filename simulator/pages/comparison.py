"""The page of runs side by side: what was asked, who did best, the plots, the whole table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from simulator.pages.charts import (
    Chart,
    Line,
    Range,
    draw,
    draw_ranges,
    linear,
    logarithmic,
    spanning,
    swatch,
)
from simulator.pages.page import COLOURS, facts, page, table
from simulator.report import seconds, share

Runs = Sequence[Mapping[str, Any]]
_LEAST_S: Final = 0.01  # shorter times stand at the left end of logarithmic axes
_DEFINITIONS: Final = (
    "Wait is the time in the queue over all stays; total is from submission to the last token. "
    "Quantiles are of requests that succeeded. The objective's share is of all that were "
    "submitted, refused ones included. Utilisation is slot time in engines over slot time of nodes "
    "that were up; node-hours and cost include cold starts."
)


def comparison(document: Mapping[str, Any], rows: Sequence[Sequence[str]]) -> str:
    """The whole page; `rows` is the table, its head first."""
    runs: Runs = document["runs"]
    title = f"{document['workload']} on {document['nodes']}"
    return page(
        f"Batchyard simulation: {title}",
        [
            f"<h1>{escape(title)}</h1>",
            facts(
                [
                    ("requests", f"{document['requests']:,}"),
                    ("objective", document["objective"]),
                    ("incidents", ", ".join(document.get("incidents", ()))),
                    ("autoscale", document.get("autoscale", "")),
                    ("calibration", ", ".join(document.get("calibration", ()))),
                    ("seed", str(document["seed"])),
                ]
            ),
            f'<div class="tiles">{"".join(_tile(n, run) for n, run in enumerate(runs))}</div>',
            "<h2>Over time</h2>",
            legend(runs),
            f'<div class="plots">{"".join(_over_time(runs))}</div>',
            "<h2>How long it took</h2>",
            f'<div class="plots">{"".join(_latencies(runs))}</div>',
            "<h2>All numbers</h2>",
            table(rows),
            f'<p class="soft">{escape(_DEFINITIONS)}</p>',
        ],
    )


def legend(runs: Runs) -> str:
    """Which line is whose."""
    items = [f"<span>{swatch(n)}{escape(run['name'])}</span>" for n, run in enumerate(runs)]
    return f'<div class="legend">{"".join(items)}</div>'


def _tile(number: int, run: Mapping[str, Any]) -> str:
    summary = run["summary"]
    whole = summary["all"]
    p99 = seconds(whole["wait"]["p99"])
    cost = f"{summary['node_hours']:.1f} node-hours"
    if summary["cost"]:
        cost += f", cost {summary['cost']:.2f}"
    return (
        f'<div class="card tile" style="--run: var(--run{number % COLOURS})">'
        f"<h3>{escape(run['name'])}</h3>"
        f'<div class="big">{share(whole["attained"])}</div><p class="soft">met the objective</p>'
        f"<p>p99 wait {p99}</p><p>{summary['output_tokens_per_s']:.0f} tokens/s, "
        f"{100 * summary['utilisation']:.0f} % used</p><p>{cost}</p></div>"
    )


def _over_time(runs: Runs) -> list[str]:
    return [
        _timed(runs, "waiting", "Queue", "requests that wait"),
        _timed(runs, "oldest_s", "Longest wait", "s that the oldest one has waited"),
        _timed(runs, "utilisation", "Utilisation", "of the slots of live nodes", percent=True),
        _timed(runs, "nodes", "Nodes", "that take work", steps=True),
    ]


def _timed(
    runs: Runs, key: str, title: str, about: str, *, percent: bool = False, steps: bool = False
) -> str:
    lines = [
        Line(name=run["name"], colour=n, x=run["time"]["at_s"], y=run["time"][key])
        for n, run in enumerate(runs)
    ]
    return draw(
        Chart(
            title=title,
            about=about,
            lines=lines,
            x=spanning([x for line in lines for x in line.x], label="s"),
            y=linear([y for line in lines for y in line.y], percent=percent),
            steps=steps,
        )
    )


def _latencies(runs: Runs) -> list[str]:
    found = [_by_priority(runs)]
    for key, title, about in (
        ("wait_s", "Wait", "share of requests that waited no longer"),
        ("ttft_s", "Time to the first token", "share of requests that had it by then"),
        ("total_s", "Total latency", "share of requests that were through by then"),
    ):
        lines = [
            Line(
                name=run["name"],
                colour=n,
                x=[max(_LEAST_S, value) for value in run["latency"][key]],
                y=run["latency"]["share"],
            )
            for n, run in enumerate(runs)
            if run["latency"][key]
        ]
        if lines:
            found.append(_spread(title, about, lines))
    return found


def _spread(title: str, about: str, lines: Sequence[Line]) -> str:
    return draw(
        Chart(
            title=title,
            about=about,
            lines=lines,
            x=logarithmic([x for line in lines for x in line.x], label="s, logarithmic"),
            y=linear([1.0], percent=True),
        )
    )


def _by_priority(runs: Runs) -> str:
    priorities = sorted({int(p) for run in runs for p in run["summary"]["priorities"]})[::-1]
    groups = []
    for priority in priorities:
        ranges = []
        for number, run in enumerate(runs):
            part = _part(run["summary"]["priorities"], priority)
            if part is not None and part["succeeded"]:
                low, high = (max(_LEAST_S, part["wait"][q]) for q in ("p50", "p99"))
                ranges.append(Range(name=run["name"], colour=number, low=low, high=high))
        groups.append((f"p{priority}", ranges))
    values = [value for _, ranges in groups for r in ranges for value in (r.low, r.high)]
    return draw_ranges(
        "Waits by priority",
        "from the median (open) to p99 (filled); 10 = most urgent",
        groups,
        logarithmic(values, label="s, logarithmic"),
    )


def _part(parts: Mapping[Any, Any], priority: int) -> Any:
    """JSON makes keys texts."""
    return parts.get(priority, parts.get(str(priority)))
