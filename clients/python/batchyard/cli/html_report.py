"""The report as one self-contained page: tables and plots, no scripts, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from batchyard.cli.columns import Column, Document, clock
from batchyard.cli.durations import format_ms
from batchyard.cli.report_columns import event_columns, report_node_columns
from batchyard.cli.screens import event_detail, report_tables, totals_table
from batchyard.cli.words import Words

WIDTH: Final = 900
HEIGHT: Final = 160
_STYLE: Final = """
:root{color-scheme:light dark;--ground:#fff;--ink:#16191d;--soft:#525b66;--line:#d5dae0;
--one:#2f6fde;--two:#9a5b00}
@media(prefers-color-scheme:dark){:root{--ground:#14171c;--ink:#e9edf2;--soft:#a4adb8;
--line:#323943;--one:#6ea0ff;--two:#f0b35a}}
body{max-width:64rem;margin:0 auto;padding:1rem;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:1.4rem;margin-bottom:.2rem}h2{font-size:1.05rem;margin:1.8rem 0 .5rem}
.soft{color:var(--soft)}.scroll{overflow-x:auto}table{border-collapse:collapse}
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500;white-space:nowrap}.r{text-align:right}
svg{width:100%;height:auto;border:1px solid var(--line)}.one{fill:none;stroke:var(--one);
stroke-width:2}.two{fill:none;stroke:var(--two);stroke-width:2;stroke-dasharray:6 3}
.bar{fill:var(--one)}.bar2{fill:var(--two)}text{fill:var(--ink);font-size:13px}
.key1{color:var(--one)}.key2{color:var(--two)}a{color:var(--one)}
""".replace("\n", "")


def html_report(document: Document, words: Words, *, lang: str, jaeger_url: str = "") -> str:
    """The page. `jaeger_url`: where traces are shown; empty: their ids only."""
    return "".join(_parts(document, words, lang, jaeger_url.rstrip("/")))


def _parts(document: Document, words: Words, lang: str, jaeger_url: str) -> Iterator[str]:
    name = escape(document["report_name"])
    yield f'<!doctype html><html lang="{lang}"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{name}</title><style>{_STYLE}</style></head><body><main><h1>{name}</h1>"
    window = format_ms(document["window_s"] * 1000)
    oldest = format_ms(document["oldest_wait_ms"])
    yield (
        f'<p class="soft">{words.generated} {document["generate_time"]} · {words.window} {window}'
        f" · {words.queue}: {document['queue_size']} {words.waiting} · {words.oldest} {oldest}"
        f" · {words.priority_note}</p>"
    )
    yield f"<h2>{words.diagnosis}</h2><ul>"
    for row in document["diagnosis"]:
        text, reason = escape(row["text"]), escape(row["reason"])
        yield f'<li>{text} <span class="soft">{reason}</span></li>'
    yield "</ul>"
    yield from _timeline(document["timeline"], words)
    yield f"<h2>{words.nodes}</h2>" + _table(document["nodes"], report_node_columns(words))
    yield from _node_bars(document["nodes"], words)
    yield f"<h2>{words.totals}</h2>" + _table(*totals_table(document, words))
    for heading, rows, columns in report_tables(document, words):
        if heading == words.use_of_nodes:
            continue  # drawn above
        yield f"<h2>{heading}</h2>" + _table(rows, columns, jaeger_url)
        if heading == words.waits:
            yield from _wait_bars(rows, words)
    if document["logs"]:
        logs = [{**log, "detail": event_detail(log)} for log in document["logs"]]
        yield f"<h2>{words.events}</h2>" + _table(logs, event_columns(words))
    yield "</main></body></html>\n"


def _table(rows: Sequence[Document], columns: Sequence[Column], jaeger_url: str = "") -> str:
    head = "".join(f"<th{_right(column)}>{escape(column.title)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(_cell(row, column, jaeger_url) for column in columns) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(row: Document, column: Column, jaeger_url: str) -> str:
    text = escape(column.cell(row))
    if column.key == "trace_id" and row["trace_id"] and jaeger_url:
        address = escape(f"{jaeger_url}/trace/{row['trace_id']}")
        text = f'<a href="{address}">{text[:8]}</a>'
    return f"<td{_right(column)}>{text}</td>"


def _right(column: Column) -> str:
    return ' class="r"' if column.right else ""


def _timeline(points: Sequence[Document], words: Words) -> Iterator[str]:
    """Who waits, and how many slots work, each on a scale of its own."""
    if len(points) < 2:
        return
    waiting = [point["waiting"] for point in points]
    running = [point["running"] for point in points]
    most, slots = max(1, *waiting), max(1, *(point["slots"] for point in points), *running)
    text = f"{words.timeline}: {words.waiting} 0..{most}, {words.of_slots} 0..{slots}"
    yield f"<h2>{words.timeline}</h2>"
    yield f'<p><span class="key1">— {words.waiting} (0..{most})</span> · '
    yield f'<span class="key2">- - {words.of_slots} (0..{slots})</span></p>'
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" role="img" aria-label="{escape(text)}">'
    yield f'<polyline class="one" points="{_points(waiting, most)}"/>'
    yield f'<polyline class="two" points="{_points(running, slots)}"/>'
    yield f'<text x="2" y="{HEIGHT + 16}">{clock(points[0]["time"])}</text>'
    last = clock(points[-1]["time"])
    yield f'<text x="{WIDTH - 2}" y="{HEIGHT + 16}" text-anchor="end">{last}</text></svg>'


def _points(values: Sequence[float], most: float) -> str:
    step = WIDTH / (len(values) - 1)
    return " ".join(
        f"{place * step:.1f},{HEIGHT - 4 - (HEIGHT - 8) * value / most:.1f}"
        for place, value in enumerate(values)
    )


def _node_bars(nodes: Sequence[Document], words: Words) -> Iterator[str]:
    bars = [(n["node_id"], n["utilization"]) for n in nodes if n["utilization"] is not None][:50]
    if bars:
        yield f'<p><span class="key1">{words.utilization}</span></p>'
        yield _bars(words.utilization, [(name, f"{v * 100:.0f}%", v, 0.0) for name, v in bars])


def _wait_bars(queues: Sequence[Document], words: Words) -> Iterator[str]:
    rows = [row for row in queues if row["wait_p99_ms"] is not None][:50]
    most = max((row["wait_p99_ms"] for row in rows), default=0) or 1
    bars = [
        (
            f"{row['pool']} p{row['priority']}",
            f"{format_ms(row['wait_p50_ms'])} / {format_ms(row['wait_p99_ms'])}",
            row["wait_p99_ms"] / most,
            row["wait_p50_ms"] / most,
        )
        for row in rows
    ]
    if bars:
        yield f'<p><span class="key1">{words.p99}</span> · '
        yield f'<span class="key2">{words.p50}</span></p>'
        yield _bars(words.waits, bars)


def _bars(label: str, bars: Sequence[tuple[str, str, float, float]]) -> str:
    """One line a bar: its name, what it says, a share of 0..1 and one within it."""
    lines = []
    for place, (name, text, share, inner) in enumerate(bars):
        y = 4 + place * 24
        width = (WIDTH - 420) * min(1.0, share)
        lines.append(f'<text x="4" y="{y + 14}">{escape(name)[:40]}</text>')
        lines.append(f'<rect class="bar" x="260" y="{y}" width="{width:.1f}" height="18"/>')
        if inner:
            half = (WIDTH - 420) * min(1.0, inner)
            lines.append(f'<rect class="bar2" x="260" y="{y}" width="{half:.1f}" height="18"/>')
        lines.append(f'<text x="{266 + width:.1f}" y="{y + 14}">{escape(text)}</text>')
    height = len(bars) * 24 + 8
    drawn = "".join(lines)
    label = escape(label)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{drawn}</svg>'
