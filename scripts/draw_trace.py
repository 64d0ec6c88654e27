"""Draw traces as a picture: spans as bars along time, indented as a tree, links as dashed lines.

    python scripts/draw_trace.py spans.json --request r-1 -o picture.svg

The file is OTLP JSON, as a collector writes it and `batchyard demo` keeps it. For pages and reports
without a tracing back end beside them; to look around in, load the same file into Jaeger.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

WIDTH: Final = 980
NAMES: Final = 370  # pixels, left of the bars
RIGHT: Final = 16
ROW: Final = 22
TOP: Final = 34
COLOURS: Final = {"client": "#7a5195", "scheduler": "#2f6fde", "agent": "#2c8a57"}
OTHER: Final = "#6b7280"
BAD: Final = "#b3201c"
STEPS: Final = (1, 2, 5)


@dataclass(slots=True)
class Span:
    """One span of the file."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str  # "batchyard-" left out
    start_ns: int
    end_ns: int
    failed: bool
    links: list[str]  # span ids
    events: list[tuple[str, int]]
    attributes: dict[str, Any]


@dataclass(slots=True)
class Row:
    """A line of the picture."""

    span: Span
    depth: int


@dataclass(slots=True)
class Picture:
    """What is drawn, on one axis of time."""

    rows: list[Row]
    start_ns: int = field(init=False)
    end_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.start_ns = min(row.span.start_ns for row in self.rows)
        self.end_ns = max(row.span.end_ns for row in self.rows)

    def x(self, instant_ns: int) -> float:
        """Where an instant is."""
        room = WIDTH - NAMES - RIGHT
        return NAMES + room * (instant_ns - self.start_ns) / max(1, self.end_ns - self.start_ns)


def read(document: dict[str, Any]) -> list[Span]:
    """All spans of OTLP JSON."""
    found = []
    for group in document["resourceSpans"]:
        about = _attributes(group.get("resource", {}).get("attributes", ()))
        service = str(about.get("service.name", "?")).removeprefix("batchyard-")
        for scope in group["scopeSpans"]:
            found += [_span(each, service) for each in scope["spans"]]
    return found


def _span(each: dict[str, Any], service: str) -> Span:
    return Span(
        trace_id=each["traceId"],
        span_id=each["spanId"],
        parent_id=each.get("parentSpanId", ""),
        name=each["name"],
        service=service,
        start_ns=int(each["startTimeUnixNano"]),
        end_ns=int(each["endTimeUnixNano"]),
        failed=each.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR"),
        links=[link["spanId"] for link in each.get("links", ())],
        events=[(e["name"], int(e["timeUnixNano"])) for e in each.get("events", ())],
        attributes=_attributes(each.get("attributes", ())),
    )


def _attributes(given: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values()), "") for each in given}


def of_request(spans: Sequence[Span], request_id: str) -> list[str]:
    """Ids of the traces that name the request, oldest first."""
    named = [s for s in spans if s.attributes.get("batchyard.request.id") == request_id]
    return list(dict.fromkeys(s.trace_id for s in sorted(named, key=lambda s: s.start_ns)))


def rows_of(spans: Sequence[Span], trace_id: str) -> list[Row]:
    """The tree of one trace, children by their start below their parent."""
    mine = sorted((s for s in spans if s.trace_id == trace_id), key=lambda s: s.start_ns)
    known = {span.span_id for span in mine}
    children: dict[str, list[Span]] = {}
    for span in mine:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)

    def below(parent: str, depth: int) -> Iterator[Row]:
        for span in children.get(parent, ()):
            yield Row(span, depth)
            yield from below(span.span_id, depth + 1)

    return list(below("", 0))


def draw(rows: list[Row], title: str) -> str:
    """The picture as SVG."""
    picture = Picture(rows)
    height = TOP + ROW * len(rows) + 40
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
    parts = [
        f'{begin} font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_axis(picture, height),
        *_links(picture),
        *(part for number, row in enumerate(rows) for part in _row(picture, number, row)),
        *_legend(rows, height),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _axis(picture: Picture, height: int) -> Iterator[str]:
    whole_ms = (picture.end_ns - picture.start_ns) / 1e6
    step = _step(whole_ms)
    at = 0.0
    while at <= whole_ms:
        x = picture.x(picture.start_ns + int(at * 1e6))
        yield f'<path d="M{x:.1f} {TOP - 8}V{height - 34}" stroke="#e2e5ea"/>'
        yield _text(x, TOP - 14, f"{at:g} ms", anchor="middle")
        at += step


def _step(whole_ms: float) -> float:
    """A round distance that gives four to nine of them."""
    size = 1e-3
    while True:
        for factor in STEPS:
            if whole_ms / (size * factor) <= 8:
                return size * factor
        size *= 10


def _row(picture: Picture, number: int, row: Row) -> Iterator[str]:
    span = row.span
    y = TOP + ROW * number
    colour = COLOURS.get(span.service, OTHER)
    left, right = picture.x(span.start_ns), picture.x(span.end_ns)
    name_x = 10 + 14 * row.depth
    yield f'<circle cx="{name_x}" cy="{y + 9}" r="4" fill="{colour}"/>'
    yield _text(name_x + 9, y + 13, _label(span), ink="#16191d", bold=not row.depth)
    fill = BAD if span.failed else colour
    width = max(1.5, right - left)
    yield f'<rect x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="12" rx="2" fill="{fill}"/>'
    for name, at_ns in span.events:
        x = picture.x(at_ns)
        told = f"<title>{escape(name)}</title>"
        yield f'<path d="M{x:.1f} {y + 1}V{y + 17}" stroke="#16191d">{told}</path>'
    took = (span.end_ns - span.start_ns) / 1e6
    text = f"{took:.1f} ms" if took < 100 else f"{took:.0f} ms"
    if right + 60 <= WIDTH:
        yield _text(right + 5, y + 13, text, size=10)
    elif left - 60 >= NAMES:
        yield _text(left - 5, y + 13, text, anchor="end", size=10)
    else:  # the bar fills the room
        yield _text(right - 5, y + 13, text, ink="#ffffff", anchor="end", size=10)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    ink: str = "#525b66",
    anchor: str = "start",
    size: int = 12,
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    about = f'fill="{ink}" text-anchor="{anchor}" font-size="{size}"{weight}'
    return f'<text x="{x:.1f}" y="{y}" {about}>{escape(text)}</text>'


def _label(span: Span) -> str:
    name = span.name.removeprefix("batchyard.v1.")
    node = span.attributes.get("batchyard.node.id")
    size = span.attributes.get("batchyard.batch.size")
    more = [str(node)] if node and span.name.startswith(("attempt", "send")) else []
    if size and span.name.startswith("send batch"):
        more.append(f"{size} in it")
    if span.failed:
        more.append(str(span.attributes.get("error.type", "error")))
    return name + (f" ({', '.join(more)})" if more else "")


def _links(picture: Picture) -> Iterator[str]:
    """Once per pair, from the end of one bar's start to the other's."""
    where = {row.span.span_id: number for number, row in enumerate(picture.rows)}
    drawn: set[frozenset[int]] = set()
    for number, row in enumerate(picture.rows):
        for linked in row.span.links:
            other = where.get(linked)
            if other is None or other == number or frozenset((number, other)) in drawn:
                continue
            drawn.add(frozenset((number, other)))
            x1, x2 = picture.x(row.span.start_ns), picture.x(picture.rows[other].span.start_ns)
            y1, y2 = (TOP + ROW * n + 9 for n in (number, other))
            bend = min(x1, x2) - 14 - abs(number - other) % 5 * 5
            yield (
                f'<path d="M{x1:.1f} {y1}C{bend:.1f} {y1} {bend:.1f} {y2} {x2:.1f} {y2}" '
                f'fill="none" stroke="#8a5200" stroke-dasharray="4 3"/>'
            )


def _legend(rows: Sequence[Row], height: int) -> Iterator[str]:
    x = 10
    for service in dict.fromkeys(row.span.service for row in rows):
        colour = COLOURS.get(service, OTHER)
        yield f'<circle cx="{x}" cy="{height - 14}" r="4" fill="{colour}"/>'
        yield _text(x + 9, height - 10, service)
        x += 30 + 7 * len(service)
    text = "red: failed · upright strokes: events · dashed: links"
    yield _text(x + 8, height - 10, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw what the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="OTLP JSON")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--request", help="the traces that name this request id")
    chosen.add_argument("--trace", nargs="+", help="these trace ids")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the SVG file")
    options = parser.parse_args(argv)
    spans = read(json.loads(options.file.read_text(encoding="utf-8")))
    traces = options.trace or of_request(spans, options.request)
    rows = [row for trace_id in traces for row in rows_of(spans, trace_id)]
    if not rows:
        print("no such spans in that file", file=sys.stderr)
        return 1
    options.output.write_text(draw(rows, f"trace {', '.join(traces)}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
