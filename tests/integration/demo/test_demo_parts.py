"""Parts of the demo by themselves: its board, its view, and its collector of traces."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, SpanKind
from rich.console import Console

from batchyard.cli.demo.board import Board, Stuck
from batchyard.cli.demo.checks import checklist
from batchyard.cli.demo.telling import answers_part, checks_part, verdict
from batchyard.cli.demo.traces import Collector, spans_of
from batchyard.cli.demo.view import Progress, View, figures
from batchyard.cli.views.report import report_document
from batchyard.v1 import report_pb2 as report
from tests.integration.demo.evidence_of_a_demo import sound


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def post(url: str, body: bytes, **headers: str) -> int:
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        status: int = answer.status
        return status


def read_back(document: dict[str, Any]) -> TracesData:
    """OTLP JSON as a reader understands it: ids in hexadecimal, all else as protobuf's JSON."""
    copy = json.loads(json.dumps(document))
    for _, span in spans_of(copy):
        for holder in (span, *span.get("links", [])):
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in holder:
                    holder[key] = base64.b64encode(bytes.fromhex(holder[key])).decode()
    return ParseDict(copy, TracesData())


def export_two_spans(endpoint: str) -> tuple[int, int]:
    """Send a child with a link below its parent, as our processes do; (trace id, parent's id)."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("parent") as parent:
        context = parent.get_span_context()
        tracer.start_span("child", kind=SpanKind.CLIENT, links=[Link(context)]).end()
    provider.shutdown()
    return context.trace_id, context.span_id


def test_collector_keeps_spans_as_otlp_json(collector: Collector) -> None:
    trace_id, parent_id = export_two_spans(collector.endpoint)
    document = collector.document()
    assert len(document["resourceSpans"]) == 1  # of one process, though sent in two requests
    child, parent = (span for _, span in spans_of(document))
    assert child["traceId"] == parent["traceId"] == f"{trace_id:032x}"
    assert child["parentSpanId"] == child["links"][0]["spanId"] == f"{parent_id:016x}"
    assert child["kind"] == 3  # CLIENT, as a number
    assert child["startTimeUnixNano"].isdigit()
    spans = read_back(document).resource_spans[0].scope_spans[1].spans
    assert spans[0].span_id.hex() == parent["spanId"]


def test_collector_takes_compressed_bodies_and_refuses_what_is_none(collector: Collector) -> None:
    url = f"{collector.endpoint}/v1/traces"
    assert post(url, gzip.compress(b""), **{"Content-Encoding": "gzip"}) == 200
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(url, b"\xff\xff")
    assert collector.document() == {"resourceSpans": []}


async def test_board_lets_waiters_go_on_when_it_becomes_true() -> None:
    board, seen = Board(), [0]
    waiting = asyncio.create_task(
        board.until(lambda: seen[0] >= 2, within_s=10, what="two of them")
    )
    for _ in range(2):
        await asyncio.sleep(0)
        seen[0] += 1
        board.changed()
    await waiting


async def test_board_says_what_did_not_happen_and_why() -> None:
    board = Board()
    with pytest.raises(Stuck, match="a queue: not within 0 s"):
        await board.until(lambda: False, within_s=0.01, what="a queue")
    board.fail("primary-1 exited with code 3")
    board.fail("and so on")
    with pytest.raises(Stuck, match="a queue: primary-1 exited with code 3"):
        await board.until(lambda: False, within_s=10, what="a queue")


def a_report() -> dict[str, Any]:
    message = report.Report(queue_size=3)
    message.queues.add(model="small", priority=9, depth=2)
    message.queues.add(model="small", priority=2, depth=1)
    for node_id, health in (("n1", "HEALTHY"), ("n2", "LOST")):
        message.nodes.add(
            node_id=node_id, models=["small"], running=4, slots=4, health=f"NODE_HEALTH_{health}"
        )
    message.totals.batches = 5
    message.events.add(event_id="1", event="submit", message="nobody needs to hear this")
    message.events.add(event_id="2", event="node_lost", message="node n2 is lost")
    message.pools.add(pool="small")
    return report_document(message)


def a_view(out: io.StringIO, *, terminal: bool) -> View:
    view = View(stderr=False, plain=not terminal, progress=lambda: Progress(7, 4, 99))
    view.console = Console(
        file=out, width=100, height=40, force_terminal=terminal, color_system=None
    )
    return view


def test_figures_tell_the_screen_in_one_line() -> None:
    line = figures(a_report(), Progress(7, 4, 99))
    assert line == (
        "waiting 3 (p9:2 p2:1) · running 4 of 4 slots on 1 nodes · 5 batches · 99 tokens · "
        "4 of 7 ended"
    )


def test_view_tells_each_decision_once() -> None:
    out = io.StringIO()
    view = a_view(out, terminal=False)
    with view.live():
        view.show(a_report())
        view.show(a_report())
    assert out.getvalue().count("node_lost       node n2 is lost") == 1
    assert "nobody needs" not in out.getvalue()


def test_screen_shows_queue_by_priority_nodes_batches_and_tokens() -> None:
    out = io.StringIO()
    view = a_view(out, terminal=True)
    view._animated = True
    with view.live():
        view.act("The peak")
        view.show(a_report())
    shown = out.getvalue()
    for part in ("Demo · The peak", "5 batches · 99 tokens received", "p9: 2", "n1", "▇▇▇▇ 4/4"):
        assert part in shown


def told(part: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(part)
    return out.getvalue()


def test_end_says_which_promises_did_not_hold() -> None:
    evidence = sound()
    assert verdict(checklist(evidence), 30.4) == "All 9 promises held, in 30 s."
    evidence.report = None
    checks = checklist(evidence)
    assert verdict(checks, 30.4) == "1 of 9 promises did not hold (after 30 s)."
    assert "✗ each accepted is answered once" in told(checks_part(checks))
    assert "✓ some wait" in told(checks_part(checks))


def test_end_marks_where_the_second_node_went_on() -> None:
    assert "→ an ‖answer" in told(answers_part(sound()))
