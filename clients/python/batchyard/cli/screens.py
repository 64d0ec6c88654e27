"""The screens of `status` and `report`: a document in, lines and tables out. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from batchyard.cli.bars import gauge, spark
from batchyard.cli.columns import (
    Column,
    Document,
    clock,
    duration,
    number,
    printable,
    share,
    slots_shown,
    text,
)
from batchyard.cli.durations import format_ms
from batchyard.cli.output import table, tsv_lines
from batchyard.cli.report_columns import (
    cost_columns,
    event_columns,
    pool_columns,
    reject_columns,
    report_node_columns,
    slowest_columns,
    tenant_columns,
    use_columns,
    wait_columns,
)
from batchyard.cli.views.events import recent
from batchyard.cli.views.queues import LIST_COLUMNS as QUEUE_COLUMNS
from batchyard.cli.words import ENGLISH, Words, outcome_word

if TYPE_CHECKING:
    from rich.console import RenderableType

BANDS = tuple(range(10, 0, -1))
MAIN_TOTALS = (
    "received", "succeeded", "failed", "rejected", "cancelled", "expired",
    "degraded", "failovers", "preemptions",
)  # fmt: skip
TOP_SLOWEST = 5
_EVENT_FIELDS_SHOWN_ELSEWHERE = {"event", "time", "event_id", "message", "items", "trace_id"}

STATUS_NODE_COLUMNS = (
    Column("node_id", "NODE", cut=True, keep_end=True),
    Column("state", "STATE"),
    Column("model_name", "MODEL", cut=True),
    Column("in_use", "SLOTS IN USE"),
    duration("avg_latency_ms", "AVG"),
    share("failure_rate", "FAIL"),
    number("total_finished", "OK"),
    number("total_failed", "FAILED"),
    Column("accepts", "ACCEPTS"),
)


def status_screen(document: Document, *, height: int | None = None) -> RenderableType:
    """What `status` shows; `height`, when given, bounds how many events fit below the rest."""
    parts: list[RenderableType] = [
        _cluster_line(document),
        *_queue_lines(document, ENGLISH),
        Text(),
        table([_status_node(node) for node in document["nodes"]], STATUS_NODE_COLUMNS),
        Text(),
        *_totals_lines(document),
        *_scale_lines(document["pools"]),
        *_diagnosis_lines(document["diagnosis"][:2], reasons=False),
    ]
    used = len(parts) + len(document["nodes"]) + 6
    room = 8 if height is None else max(0, min(12, height - used - 3))
    if room and document["logs"]:
        parts += [_heading(ENGLISH.events), *_event_lines(recent(document["logs"], room))]
    return Group(*parts)


def top_screen(document: Document, *, height: int | None = None) -> RenderableType:
    """What `top` shows: the screen of `status`, and the slowest requests of the window."""
    slowest = document["slowest"][:TOP_SLOWEST]
    left = None if height is None else height - len(slowest) - 3
    parts: list[RenderableType] = [status_screen(document, height=left)]
    if slowest:
        parts += [Text(), _heading(ENGLISH.slowest)]
        parts.append(table(slowest, slowest_columns(ENGLISH)))
    return Group(*parts)


def report_screen(document: Document, words: Words) -> RenderableType:
    """What `report` shows, titles in the language of `words`."""
    title = Text(printable(document["report_name"]), style="bold")
    window = format_ms(document["window_s"] * 1000)
    when = Text(f"{words.generated} {document['generate_time']} · {words.window} {window}")
    waits = Text(
        f"{words.queue}: {document['queue_size']} {words.waiting} · "
        f"{words.oldest} {format_ms(document['oldest_wait_ms'])} · {words.priority_note}"
    )
    parts: list[RenderableType] = [title, when, waits, Text()]
    parts += [_heading(words.diagnosis), *_diagnosis_lines(document["diagnosis"]), Text()]
    parts += [_heading(words.nodes), table(document["nodes"], report_node_columns(words)), Text()]
    parts += [_heading(words.totals), table(*totals_table(document, words))]
    for heading, section, columns in report_tables(document, words):
        parts += [Text(), _heading(heading), table(section, columns)]
    if document["logs"]:
        rows = [{**log, "detail": event_detail(log)} for log in recent(document["logs"], 20)]
        parts += [Text(), _heading(words.events), table(rows, event_columns(words))]
    return Group(*parts)


def report_tables(
    document: Document, words: Words
) -> Iterator[tuple[str, list[Document], Sequence[Column]]]:
    """Heading, rows and columns of the tables that have rows."""
    rejects = [{"reason": name, "count": count} for name, count in document["rejects"].items()]
    used = [row for row in document["nodes"] if row["utilization"] is not None]
    for heading, rows, columns in (
        (words.use_of_nodes, used, use_columns(words)),
        (words.waits, document["queues"], wait_columns(words)),
        (words.tenants, document["tenants"], tenant_columns(words)),
        (words.pools, document["pools"], pool_columns(words)),
        (words.costs, document["costs"], cost_columns(words)),
        (words.rejects, rejects, reject_columns(words)),
        (words.slowest, document["slowest"], slowest_columns(words)),
    ):
        if rows:
            yield heading, rows, columns


def status_tsv(document: Document) -> Iterator[str]:
    """The sections of `status` for a pipe: `# name`, a line of keys, a line per row."""
    figures = ("scheduler_version", "uptime_ms", "generate_time", "queue_size", "oldest_wait_ms")
    yield from _section("cluster", [document], [Column(key, key) for key in figures])
    yield from _section("queues", document["queues"], QUEUE_COLUMNS)
    yield from _section("nodes", document["nodes"], report_node_columns(ENGLISH))
    yield from _section("totals", *totals_table(document, ENGLISH))
    rows = [{"pool": pool["pool"], **pool["scale"]} for pool in document["pools"] if pool["scale"]]
    keys = ("pool", "ready", "starting", "desired", "min", "max", "pressure", "reason")
    yield from _section("scale", rows, [Column(key, key) for key in keys])


def report_tsv(document: Document, words: Words) -> Iterator[str]:
    """The sections of `report` for a pipe, with the texts in the language of the report."""
    figures = ("report_name", "generate_time", "window_s", "queue_size", "oldest_wait_ms")
    yield from _section("report", [document], [Column(key, key) for key in figures])
    keys = ("severity", "code", "text", "reason")
    yield from _section("diagnosis", document["diagnosis"], [Column(key, key) for key in keys])
    yield from _section("nodes", document["nodes"], report_node_columns(words))
    yield from _section("totals", *totals_table(document, words))
    logs = [{**log, "detail": event_detail(log)} for log in document["logs"]]
    yield from _section("logs", logs, event_columns(words))


def _section(name: str, rows: Sequence[Document], columns: Sequence[Column]) -> Iterator[str]:
    yield f"# {name}"
    yield from tsv_lines(rows, columns)


def _cluster_line(document: Document) -> Text:
    nodes = document["nodes"]
    ready = sum(node["state"] == "healthy" for node in nodes)
    parts = [
        f"batchyard {printable(document['scheduler_version'] or '')}".strip(),
        f"up {format_ms(document['uptime_ms'])}",
        f"nodes {ready}/{len(nodes)}",
        f"waiting {document['queue_size']}",
        f"oldest {format_ms(document['oldest_wait_ms'])}",
        clock(document["generate_time"]),
    ]
    if document["backlog"]:
        parts.insert(4, f"stored {document['backlog']}")
    return Text(" · ".join(parts), style="bold")


def _queue_lines(document: Document, words: Words) -> Iterator[RenderableType]:
    """One line of bands per model, then the bands that are not empty with their oldest wait."""
    depths: dict[str, dict[int, int]] = defaultdict(lambda: dict.fromkeys(BANDS, 0))
    bands: dict[int, tuple[int, float]] = {}
    jobs = 0
    for queue in document["queues"]:
        if queue["request_class"] == "job":
            jobs += queue["depth"]
            continue
        band = queue["priority"]
        depths[queue["model"] or queue["pool"]][band] += queue["depth"]
        depth, oldest = bands.get(band, (0, 0.0))
        bands[band] = (depth + queue["depth"], max(oldest, queue["oldest_wait_ms"]))
    yield Text(f"{words.queue}  10 ◂ priority ▸ 1   ({words.priority_note})")
    for model, by_band in sorted(depths.items()):
        values = [by_band.get(band, 0) for band in BANDS]
        yield Text(f"       {spark(values)}   {sum(values):>5} {printable(model)}")
    waiting = [(band, *bands[band]) for band in sorted(bands, reverse=True) if bands[band][0]]
    if waiting:
        yield Text("       " + "  ".join(f"p{b}: {n} ({format_ms(w)})" for b, n, w in waiting))
    else:
        yield Text(f"       {words.nothing_waits}")
    if jobs:
        yield Text(f"       job items in the queue: {jobs}")


def _status_node(node: Document) -> Document:
    in_use = f"{gauge(node['running'], node['slots'])} {node['running']}/{slots_shown(node)}"
    accepts = "yes" if node["can_accept"] else node["cannot_accept_reason"] or "no"
    return {**node, "in_use": in_use, "accepts": accepts}


def _totals_lines(document: Document) -> Iterator[Text]:
    window = f"last {format_ms(document['window_s'] * 1000)}"
    for label, key in (("total", "totals"), (window, "window_totals")):
        figures = document[key]
        shown = [f"{name} {figures[name]}" for name in MAIN_TOTALS if figures[name]]
        yield Text(f"{label}: " + (" · ".join(shown) or "no requests"))


def _scale_lines(pools: Sequence[Document]) -> Iterator[Text]:
    for pool in pools:
        scale = pool["scale"]
        if scale is None:
            continue
        name = printable(pool["pool"] or ", ".join(pool["models"]))
        counts = f"{scale['ready']} ready, {scale['starting']} starting, want {scale['desired']}"
        frozen = " (frozen)" if scale["frozen"] else ""
        reason = f": {printable(scale['reason'])}" if scale["reason"] else ""
        yield Text(
            f"scale {name}: {counts}{frozen} of {scale['min']}..{scale['max']}, "
            f"pressure {scale['pressure']:.2f}{reason}"
        )


_SEVERITY = {"critical": ("✗", "red"), "warning": ("!", "yellow"), "info": ("✓", "green")}


def _diagnosis_lines(rows: Sequence[Document], *, reasons: bool = True) -> Iterator[Text]:
    for row in rows:
        mark, style = _SEVERITY.get(row["severity"], ("·", ""))
        line = Text(f"{mark} ", style=style)
        line.append(printable(row["text"]), style="")
        if reasons and row["reason"]:
            line.append(f" ({printable(row['reason'])})", style="dim")
        yield line


def _event_lines(logs: Sequence[Document]) -> Iterator[Text]:
    for log in logs:
        yield Text(event_line(log), no_wrap=True, overflow="ellipsis")


def event_line(log: Document) -> str:
    """An event on one line."""
    return f"{clock(log['time'])}  {printable(log['event']):<18} {event_detail(log)}".rstrip()


def event_detail(log: Document) -> str:
    """The event's text, or its own fields where it has none."""
    if log.get("message"):
        return printable(log["message"])
    pairs = [(k, v) for k, v in log.items() if k not in _EVENT_FIELDS_SHOWN_ELSEWHERE]
    if log.get("items"):
        pairs.append(("items", len(log["items"])))
    return " ".join(f"{key}={text(value)}" for key, value in pairs)


def totals_table(document: Document, words: Words) -> tuple[list[Document], list[Column]]:
    """Rows and columns of the totals."""
    window = document["window_totals"]
    rows = [
        {"outcome": outcome_word(words, key), "total": total, "window": window[key]}
        for key, total in document["totals"].items()
    ]
    return rows, [
        Column("outcome", words.outcome),
        number("total", words.since_start),
        number("window", words.in_window),
    ]


def _heading(words: str) -> Text:
    return Text(words, style="bold")
