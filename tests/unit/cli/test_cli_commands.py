"""Every command that asks a scheduler, against one that answers as the test says."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import report_pb2 as report
from batchyard.v1 import scheduler_service_pb2 as scheduler
from batchyard.v1 import types_pb2 as types
from tests.unit.cli.messages import busy_report, instant, length, node
from tests.unit.cli.scripted import Refusal, Scripted


def test_report_asks_for_window_and_language_and_prints_the_documented_keys(
    against: Any, scripted: Scripted
) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    done = against("report", "--window", "10m", "--lang", "zh", "-o", "json")
    assert done.exit_code == 0, done.err
    assert list(done.json) == [
        "report_name", "generate_time", "window_s", "queue_size", "oldest_wait_ms", "nodes",
        "logs", "totals", "window_totals", "diagnosis", "queues", "pools", "costs", "slowest",
        "tenants", "rejects", "timeline", "backlog", "scheduler_version", "uptime_ms",
    ]  # fmt: skip
    (request,) = scripted.requests("GetReport")
    assert request.window.seconds == 600
    assert request.language == "zh"


def test_report_has_chinese_titles_and_figures_in_a_pipe(against: Any, scripted: Scripted) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    assert "最近事件" in against("report", "--lang", "zh", "-o", "table").out
    sections = against("report").lines
    assert [line for line in sections if line.startswith("# ")] == [
        "# report", "# diagnosis", "# nodes", "# totals", "# logs",
    ]  # fmt: skip
    assert sections[sections.index("# nodes") + 2].startswith("n1\tsmall\thealthy\t2\t4")


def test_status_prints_once_and_adds_queues_and_pools(against: Any, scripted: Scripted) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    document = against("status", "-o", "json").json
    assert document["pools"][0]["scale"]["desired"] == 3
    assert [queue["queue"] for queue in document["queues"]] == [
        "main/small/interactive/10", "main/small/interactive/5", "main/small/interactive/1",
    ]  # fmt: skip
    assert "p10: 2 (2.0s)" in against("status", "-o", "table").out
    assert "# queues" in against("status").lines


def test_watched_status_is_one_stream_and_a_json_line_per_message(
    against: Any, scripted: Scripted
) -> None:
    scripted.on(
        "WatchReport",
        [
            admin.WatchReportResponse(report=busy_report()),
            admin.WatchReportResponse(report=report.Report(queue_size=1)),
        ],
    )
    done = against("status", "--watch", "--interval", "200ms", "-o", "json")
    assert done.exit_code == 3, "it was to go on until Ctrl-C"
    assert "error: the scheduler ended the stream" in done.err
    assert len(done.lines) == 2
    (request,) = scripted.requests("WatchReport")
    assert request.interval.nanos == 200_000_000
    assert not scripted.requests("GetReport")


def test_watched_status_draws_every_message_on_a_table(against: Any, scripted: Scripted) -> None:
    scripted.on("WatchReport", [admin.WatchReportResponse(report=busy_report())] * 2)
    done = against("status", "--watch", "-o", "table")
    assert done.exit_code == 3, done.err
    assert done.out.count("pressure 1.50") == 2


def test_watched_status_in_a_pipe_says_what_its_figures_are(
    against: Any, scripted: Scripted
) -> None:
    scripted.on("WatchReport", [admin.WatchReportResponse(report=busy_report())])
    keys, figures = against("status", "--watch").lines
    assert keys.split("\t")[1:4] == ["queue_size", "oldest_wait_ms", "received"]
    assert figures.split("\t")[1:4] == ["12", "3200", "140"]


def test_nodes_are_listed_over_all_pages(against: Any, scripted: Scripted) -> None:
    def page(request: admin.ListNodesRequest) -> admin.ListNodesResponse:
        if request.page_token:
            return admin.ListNodesResponse(nodes=[node("n2")])
        return admin.ListNodesResponse(nodes=[node("n1")], next_page_token="2")

    scripted.on("ListNodes", page)
    assert against("nodes", "list", "-o", "name").lines == ["n1", "n2"]
    rows = against("node", "list", "-o", "json").json["nodes"]
    assert [row["node_id"] for row in rows] == ["n1", "n2"]
    assert "host-1" not in against("nodes", "list", "-o", "table").out


def test_empty_list_says_what_to_do_for_people_and_nothing_more_for_programs(
    against: Any, scripted: Scripted
) -> None:
    scripted.on("ListNodes", admin.ListNodesResponse())
    assert "batchyard agent" in against("nodes", "list", "-o", "table").out
    assert len(against("nodes", "list").lines) == 1
    assert against("nodes", "list", "-o", "json").json == {"nodes": []}


def test_node_is_shown_whole(against: Any, scripted: Scripted) -> None:
    scripted.on("GetNode", admin.GetNodeResponse(node=node("n1")))
    done = against("nodes", "show", "n1", "-o", "table")
    assert "engines[0].load.kv_utilization" in done.out
    assert against("nodes", "show", "n1", "-o", "json").json["pool"] == "main"


def test_unknown_node_exits_1_and_names_the_reason(against: Any, scripted: Scripted) -> None:
    scripted.on(
        "GetNode",
        Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "no node n9", resource="nodes/n9"),
    )
    done = against("nodes", "show", "n9")
    assert done.exit_code == 1
    assert "error: no node n9 (RESOURCE_NOT_FOUND)" in done.err
    assert "next:  `batchyard nodes list`" in done.err


def test_cordon_sends_the_reason_and_shows_the_node(against: Any, scripted: Scripted) -> None:
    cordoned = node("n1")
    cordoned.availability = report.NODE_AVAILABILITY_CORDONED
    scripted.on("CordonNode", admin.CordonNodeResponse(node=cordoned))
    scripted.on("UncordonNode", admin.UncordonNodeResponse(node=node("n1")))
    assert against("nodes", "cordon", "n1", "--reason", "bad fan", "-o", "json").json["state"] == (
        "cordoned"
    )
    assert scripted.requests("CordonNode")[0].reason == "bad fan"
    title, row = against("nodes", "cordon", "n1", "-o", "table").out.splitlines()
    assert title.split()[:2] == ["NODE", "STATE"]
    assert row.split()[:2] == ["n1", "cordoned"]
    assert against("nodes", "uncordon", "n1", "-o", "json").json["state"] == "healthy"


def draining(remaining: int, *, lost: int = 0, ended: bool = False) -> report.Node:
    it = node("n1")
    it.availability = (
        report.NODE_AVAILABILITY_DRAINED if ended else report.NODE_AVAILABILITY_DRAINING
    )
    it.drain.start_time.CopyFrom(instant(0))
    it.drain.remaining, it.drain.finished, it.drain.moved = remaining, 2, 1
    it.drain.lost = lost
    it.drain.finished_request_ids.extend(["r1", "r2"])
    it.drain.moved_request_ids.append("r3")
    it.drain.lost_request_ids.extend(f"lost{n}" for n in range(lost))
    if ended:
        it.drain.end_time.CopyFrom(instant(12.3))
    return it


def script_drain(scripted: Scripted, *looks: report.Node) -> None:
    left = list(looks)
    scripted.on("DrainNode", admin.DrainNodeResponse(node=draining(2)))
    scripted.on("GetNode", lambda _: admin.GetNodeResponse(node=left.pop(0)))


def test_drain_waits_and_proves_that_nothing_was_lost(against: Any, scripted: Scripted) -> None:
    script_drain(scripted, draining(1), draining(0, ended=True))
    done = against("nodes", "drain", "n1", "--grace", "30s", "-o", "table")
    assert done.exit_code == 0
    assert done.lines == [
        "n1 drained in 12.3s: 2 finished, 1 moved, 0 lost",
        "  finished r1 r2",
        "  moved    r3",
    ]
    assert "draining n1: 1 left, 2 finished, 1 moved, 0 lost" in done.err
    assert scripted.requests("DrainNode")[0].grace.seconds == 30


def test_drain_that_loses_a_request_exits_1_and_names_it(against: Any, scripted: Scripted) -> None:
    script_drain(scripted, draining(0, lost=1, ended=True))
    done = against("nodes", "drain", "n1", "-o", "json")
    assert done.exit_code == 1
    assert done.json["lost_request_ids"] == ["lost0"]
    assert done.json["duration_ms"] == 12300
    assert not scripted.requests("DrainNode")[0].HasField("grace")


def test_drain_without_waiting_returns_at_once(against: Any, scripted: Scripted) -> None:
    script_drain(scripted)
    done = against("nodes", "drain", "n1", "--no-wait", "--terminate", "-o", "table")
    assert done.exit_code == 0
    assert "batchyard nodes show n1" in done.out
    assert scripted.requests("DrainNode")[0].terminate
    assert not scripted.requests("GetNode")


def test_drained_node_that_is_forgotten_meanwhile_counts_as_gone(
    against: Any, scripted: Scripted
) -> None:
    scripted.on("DrainNode", admin.DrainNodeResponse(node=draining(0)))
    scripted.on("GetNode", Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "no node"))
    assert against("nodes", "drain", "n1").exit_code == 0
    scripted.on("DrainNode", admin.DrainNodeResponse(node=draining(2)))
    done = against("nodes", "drain", "n1")
    assert done.exit_code == 1
    assert "went away in the middle" in done.err


def test_models_are_listed_from_the_client_port(against: Any, scripted: Scripted) -> None:
    info = scheduler.ModelInfo(model="small", state=types.MODEL_STATE_ACTIVE, ready_nodes=2)
    scripted.on("ListModels", scheduler.ListModelsResponse(models=[info]))
    (row,) = against("models", "list", "-o", "json").json["models"]
    assert row["state"] == "active"
    assert row["ready_nodes"] == 2
    assert row["context_length"] is None


def test_model_that_no_node_in_service_has_is_unavailable(against: Any, scripted: Scripted) -> None:
    gone, there = scheduler.ModelInfo(model="gone"), scheduler.ModelInfo(model="there", state=1)
    scripted.on("ListModels", scheduler.ListModelsResponse(models=[gone, there]))
    rows = against("models", "list", "-o", "json").json["models"]
    assert [(row["state"], row["ready_nodes"]) for row in rows] == [
        ("unavailable", 0),
        ("available", 0),
    ]
    assert against("models", "list", "-o", "table").lines[1].split()[:3] == [
        "gone",
        "unavailable",
        "0",
    ]


def test_queues_are_listed_most_urgent_first_without_empty_ones(
    against: Any, scripted: Scripted
) -> None:
    message = busy_report()
    message.queues[1].depth = 0
    scripted.on("GetReport", admin.GetReportResponse(report=message))
    listed = against("queues", "list", "-o", "name").lines
    assert listed == ["main/small/interactive/10", "main/small/interactive/1"]
    assert len(against("queues", "list", "--all", "-o", "name").lines) == 3
    assert against("queues", "list", "--model", "big", "-o", "name").lines == []


def test_requests_are_filtered_on_the_server_and_bounded(against: Any, scripted: Scripted) -> None:
    rows = [
        report.RequestSummary(
            request_id=f"r{n}", state=report.REQUEST_STATE_QUEUED, priority=5, age=length(1.5)
        )
        for n in range(5)
    ]
    scripted.on("ListRequests", admin.ListRequestsResponse(requests=rows, next_page_token="x"))
    done = against(
        "requests", "list", "--state", "queued", "--node", "n1", "--limit", "3", "-o", "json"
    )
    assert [row["request_id"] for row in done.json["requests"]] == ["r0", "r1", "r2"]
    assert done.json["requests"][0]["age_ms"] == 1500
    (request,) = scripted.requests("ListRequests")
    assert list(request.filter.states) == [report.REQUEST_STATE_QUEUED]
    assert request.filter.node_id == "n1"
    assert request.page_size == 3


def test_request_is_shown_with_its_attempts(against: Any, scripted: Scripted) -> None:
    answer = admin.GetRequestResponse(
        request=report.RequestSummary(request_id="r1", attempts=1),
        attempts=[types.Attempt(number=1, node_id="n1", state=types.ATTEMPT_STATE_LOST)],
    )
    scripted.on("GetRequest", answer)
    document = against("requests", "show", "r1", "-o", "json").json
    assert document["attempts"] == 1
    assert document["attempt_details"][0]["state"] == "lost"


def test_request_is_shown_from_the_list_where_the_scheduler_has_no_more(
    against: Any, scripted: Scripted
) -> None:
    summary = report.RequestSummary(request_id="r1", attempts=2)
    scripted.on("ListRequests", admin.ListRequestsResponse(requests=[summary]))
    assert against("requests", "show", "r1", "-o", "json").json["attempts"] == 2
    assert list(scripted.requests("ListRequests")[0].filter.request_ids) == ["r1"]
    scripted.on("ListRequests", admin.ListRequestsResponse())
    done = against("requests", "show", "r9")
    assert done.exit_code == 1
    assert "there is no request r9" in done.err


@pytest.mark.parametrize(("found", "code"), [(["a", "b"], 0), (["a"], 5), ([], 1)])
def test_cancel_tells_which_were_found(
    against: Any, scripted: Scripted, found: list[str], code: int
) -> None:
    scripted.on("CancelRequests", scheduler.CancelRequestsResponse(request_ids=found))
    done = against("requests", "cancel", "a", "b", "--reason", "not needed", "-o", "json")
    assert done.exit_code == code
    assert [row["cancelled"] for row in done.json["requests"]] == ["a" in found, "b" in found]
    assert scripted.requests("CancelRequests")[0].reason == "not needed"


def event(event_id: str, name: str = "submit", **fields: Any) -> report.Event:
    return report.Event(event_id=event_id, create_time=instant(0), event=name, **fields)


def test_events_are_listed_newest_last(against: Any, scripted: Scripted) -> None:
    scripted.on("ListEvents", admin.ListEventsResponse(events=[event("2"), event("1")]))
    done = against("events", "list", "--type", "submit", "--type", "failover", "-o", "name")
    assert done.lines == ["1", "2"]
    assert list(scripted.requests("ListEvents")[0].events) == ["submit", "failover"]


def test_since_counts_by_the_clock_of_the_scheduler(against: Any, scripted: Scripted) -> None:
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    scripted.on("ListEvents", admin.ListEventsResponse())
    assert against("events", "list", "--since", "10m").exit_code == 0
    assert scripted.requests("ListEvents")[0].start_time == instant(0.25 - 600)


def test_followed_events_go_on_after_the_listed_ones(against: Any, scripted: Scripted) -> None:
    scripted.on("ListEvents", admin.ListEventsResponse(events=[event("7", node_id="n1")]))
    scripted.on(
        "WatchEvents",
        [
            admin.WatchEventsResponse(events=[event("8", node_id="n1"), event("9", node_id="n2")]),
            admin.WatchEventsResponse(events=[event("12", node_id="n1")], gap=True),
        ],
    )
    done = against("events", "list", "--follow", "--node", "n1", "-o", "name")
    assert done.lines == ["7", "8", "12"]
    assert "dropped" in done.err
    assert scripted.requests("WatchEvents")[0].after_event_id == "7"


def test_follow_finds_a_request_inside_a_batch(against: Any, scripted: Scripted) -> None:
    batch = event("3", "dispatch_batch", items=[report.EventItem(request_id="r1")])
    scripted.on("ListEvents", admin.ListEventsResponse())
    scripted.on("WatchEvents", [admin.WatchEventsResponse(events=[batch, event("4")])])
    done = against("events", "list", "-f", "--request", "r1", "-o", "json")
    (line,) = done.lines
    assert '"event": "dispatch_batch"' in line


def test_top_follows_one_stream_with_the_slowest_requests(against: Any, scripted: Scripted) -> None:
    message = busy_report()
    message.slowest.add(request_id="the-slow-one", priority=3, age=length(9))
    scripted.on("WatchReport", [admin.WatchReportResponse(report=message)])
    done = against("top", "-o", "wide", "--interval", "200ms")
    assert done.exit_code == 3  # the stream ended
    assert "the-slow-one" in done.out
    assert scripted.requests("WatchReport")[0].interval.nanos == 200_000_000
