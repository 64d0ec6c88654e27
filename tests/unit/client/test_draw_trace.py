"""A trace as a picture: the tree, times, failures and links are all there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from scripts import draw_trace

MS = 1_000_000


def span(name: str, number: int, parent: int, start_ms: int, end_ms: int, **more: Any) -> Any:
    return {
        "traceId": more.pop("trace", "t1"),
        "spanId": f"s{number}",
        "parentSpanId": f"s{parent}" if parent else "",
        "name": name,
        "startTimeUnixNano": str(start_ms * MS),
        "endTimeUnixNano": str(end_ms * MS),
        **more,
    }


def document() -> dict[str, Any]:
    lost = {"code": 2}
    about = [{"key": "batchyard.request.id", "value": {"stringValue": "r1"}}]
    service = [{"key": "service.name", "value": {"stringValue": "batchyard-scheduler"}}]
    spans = [
        span("attempt 2", 3, 1, 60, 100, links=[{"spanId": "s2"}, {"spanId": "elsewhere"}]),
        span("schedule <m>", 1, 0, 0, 100, attributes=about),
        span("attempt 1", 2, 1, 10, 50, status=lost, events=[
            {"name": "running", "timeUnixNano": str(20 * MS)},
        ]),
        span("another", 9, 0, 0, 5, trace="t2"),
    ]  # fmt: skip
    scopes = [{"spans": spans}]
    return {"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": scopes}]}


def test_children_stand_below_their_parent_in_the_order_of_time() -> None:
    spans = draw_trace.read(document())
    assert draw_trace.of_request(spans, "r1") == ["t1"]
    rows = draw_trace.rows_of(spans, "t1")
    assert [(r.span.name, r.depth) for r in rows] == [
        ("schedule <m>", 0), ("attempt 1", 1), ("attempt 2", 1),
    ]  # fmt: skip


def test_the_picture_is_svg_with_every_span_its_failure_and_its_links() -> None:
    rows = draw_trace.rows_of(draw_trace.read(document()), "t1")
    root = ET.fromstring(draw_trace.draw(rows, "r1"))
    space = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{space}rect")[1:]  # the ground is first
    assert [bar.get("fill") for bar in bars].count(draw_trace.BAD) == 1
    assert len(bars) == 3
    texts = [text.text for text in root.findall(f"{space}text")]
    assert "schedule <m>" in texts
    assert "attempt 1 (error)" in texts
    assert "40.0 ms" in texts
    dashed = [p for p in root.findall(f"{space}path") if p.get("stroke-dasharray")]
    assert len(dashed) == 1  # a link out of the picture is not drawn


def test_the_command_draws_a_request_and_says_when_there_is_none(tmp_path: Path) -> None:
    file, picture = tmp_path / "spans.json", tmp_path / "out.svg"
    file.write_text(json.dumps(document()), encoding="utf-8")
    assert draw_trace.main([str(file), "--request", "r1", "-o", str(picture)]) == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert draw_trace.main([str(file), "--request", "never", "-o", str(picture)]) == 1
