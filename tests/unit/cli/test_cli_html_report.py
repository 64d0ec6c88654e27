"""`batchyard report -o html`, and the report in Chinese."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import report_pb2 as report
from batchyard.v1 import types_pb2 as types
from tests.unit.cli.messages import busy_report, instant, length, queue
from tests.unit.cli.scripted import Scripted

VOID = {"meta", "rect", "polyline"}


class Balance(HTMLParser):
    """Every element that opens is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def hour() -> report.Report:
    message = busy_report()
    message.nodes[0].utilization = 0.4
    message.queues.append(queue(7, 0, wait_p50=length(0.1), wait_p99=length(2)))
    message.rejects["QUEUE_FULL"] = 3
    message.tenants.add(tenant="<acme>", dispatched=5, wait_p50=length(1), wait_p99=length(2))
    message.costs.add(
        tenant="<acme>", model="small", requests=5, node_hours=0.5, output_tokens=900,
        cost=types.Money(currency="USD", micros=1_250_000),
    )  # fmt: skip
    message.pools[0].batch_fill = 0.75
    message.slowest.add(request_id="r-slow", priority=4, age=length(9), trace_id="ab" * 16)
    for place in range(60):
        message.timeline.add(time=instant(place), waiting=place % 7, running=place % 4, slots=8)
    return message


def test_html_is_one_whole_page_with_plots_and_links_to_traces(
    against: Any, scripted: Scripted
) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=hour()))
    done = against("report", "--since", "1h", "-o", "html", "--jaeger-url", "http://j:16686/")
    assert done.exit_code == 0, done.err
    (asked,) = scripted.requests("GetReport")
    assert asked.window.seconds == 3600
    page = Balance()
    page.feed(done.out)
    assert not page.open
    text = " ".join(page.text)
    for wanted in ("The queue is long.", "QUEUE_FULL", "<acme>", "1800", "1.2500 USD", "75%"):
        assert wanted in text, wanted
    assert "<acme>" not in done.out  # escaped
    assert done.out.count("<svg") == 3
    assert re.findall(r'(?:src|href)="([^"]*)"', done.out) == ["http://j:16686/trace/" + "ab" * 16]
    assert "<script" not in done.out


def test_in_chinese_no_heading_and_no_state_stays_english(against: Any, scripted: Scripted) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=hour()))
    page = against("report", "--lang", "zh", "-o", "html").out
    headings = re.findall(r"<(?:th|h2)[^>]*>([^<]*)</", page)
    assert len(headings) > 30
    english = [each for each in headings if not re.search(r"[\u4e00-\u9fff]", each)]
    assert set(english) <= {"P50", "P99"}
    assert "healthy" not in page
    assert ">yes<" not in page
    screen = against("report", "--lang", "zh", "-o", "table").out
    assert "最慢的请求" in screen
    assert "healthy" not in screen


def test_html_of_an_idle_scheduler_is_a_page_too(against: Any, scripted: Scripted) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=report.Report(report_name="idle")))
    done = against("report", "-o", "html")
    page = Balance()
    page.feed(done.out)
    assert not page.open
    assert "<svg" not in done.out


def test_links_of_the_report_lead_to_web_addresses_only(against: Any) -> None:
    done = against("report", "-o", "html", "--jaeger-url", "javascript:alert(1)//")
    assert done.exit_code == 2
    assert "write http://HOST:PORT" in done.err
