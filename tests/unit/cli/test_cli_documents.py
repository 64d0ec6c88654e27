"""Messages as documents: the rules of `-o json` that hold for every field."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.duration_pb2 import Duration

from batchyard.cli.views.events import recent
from batchyard.cli.views.nodes import LIST_COLUMNS, node_document, node_row, state_word
from batchyard.cli.views.plain import ms, plain
from batchyard.cli.views.report import report_document
from batchyard.cli.words import STATES_ZH
from batchyard.v1 import report_pb2 as report
from batchyard.v1 import types_pb2 as types
from scheduler_service.core import condition
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth
from tests.unit.cli.messages import busy_report, node, summary

ROOT = Path(__file__).parents[3]
REPORT_KEYS = [
    "report_name", "generate_time", "window_s", "queue_size", "oldest_wait_ms", "nodes", "logs",
    "totals", "window_totals", "diagnosis", "queues", "pools", "costs", "slowest", "tenants",
    "rejects", "timeline", "backlog", "scheduler_version", "uptime_ms",
]  # fmt: skip
NODE_KEYS = [
    "node_id", "model_name", "models", "state", "availability", "health", "running", "slots",
    "slots_assumed", "max_batch_size", "avg_latency_ms", "failure_rate", "can_accept",
    "cannot_accept_reason", "total_finished", "total_failed", "utilization", "price_per_hour",
]  # fmt: skip


def test_report_has_the_documented_keys_and_no_others() -> None:
    document = report_document(busy_report())
    assert list(document) == REPORT_KEYS
    assert [list(row) for row in document["nodes"]] == [NODE_KEYS] * 3
    assert list(document["diagnosis"][0]) == ["code", "severity", "text", "reason"]


def test_report_gives_durations_in_milliseconds_and_times_in_rfc_3339() -> None:
    document = report_document(busy_report())
    assert document["generate_time"] == "2026-03-01T12:00:00.250Z"
    assert document["window_s"] == 300
    assert document["oldest_wait_ms"] == 3200
    assert document["nodes"][0]["avg_latency_ms"] == 812.5


def test_report_of_an_idle_scheduler_has_zeros_and_empty_lists() -> None:
    document = report_document(report.Report())
    assert document["oldest_wait_ms"] == 0
    assert document["nodes"] == document["logs"] == document["diagnosis"] == []
    assert document["totals"]["received"] == 0


def test_what_a_node_does_not_know_is_null_and_not_zero() -> None:
    row = report_document(busy_report())["nodes"][2]
    assert row["avg_latency_ms"] is None
    assert row["failure_rate"] is None


def test_slots_that_nobody_told_are_shown_as_a_guess() -> None:
    row = node_row(summary("n1", slots_assumed=True))
    (column,) = [column for column in LIST_COLUMNS if column.key == "slots"]
    assert (row["slots"], row["slots_assumed"]) == (4, True)
    assert (column.cell(row), column.raw(row)) == ("~4", "4")
    assert column.cell(node_row(summary("n1"))) == "4"


def test_what_waits_in_a_node_is_what_its_engines_tell_else_unknown() -> None:
    message = node("n1")
    assert node_document(message)["waiting"] == 1  # it holds one, and says no more
    (load,) = message.report.engines
    load.waiting = 7
    assert node_document(message)["waiting"] == 7
    load.ClearField("waiting")
    del load.waiting_dispatch_ids[:]
    assert node_document(message)["waiting"] is None


def test_log_has_the_fields_of_its_event_beside_event_and_time() -> None:
    log = report_document(busy_report())["logs"][0]
    assert log == {
        "event": "failover",
        "time": "2026-03-01T11:59:58.000Z",
        "event_id": "7",
        "message": "r1 moves from n2 to n1",
        "request_id": "r1",
        "node_id": "n2",
        "to": "n1",
        "attribute_event": "an attribute that is called as a field",
    }


def test_batch_log_lists_id_status_and_error_of_every_item() -> None:
    log = report_document(busy_report())["logs"][1]
    first, second = log["items"]
    assert first["request_id"] == "r1"
    assert first["status"] == "stop"
    assert second["status"] == "error"
    assert second["error"]["reason"] == "ENGINE_ERROR"


def test_state_is_lost_then_what_operators_set_then_the_health() -> None:
    assert state_word("active", "healthy") == "healthy"
    assert state_word("active", "suspect") == "suspect"
    assert state_word("cordoned", "healthy") == "cordoned"
    assert state_word("draining", "suspect") == "draining"
    assert state_word("draining", "lost") == "lost"
    assert state_word("drained", "lost") == "drained", "it left in good order"
    assert state_word("drained", "lost", "down") == "down", "and why it left"
    assert state_word("active", "lost", "lost") == "lost"
    assert state_word(None, None) == "unknown"


def test_node_that_is_starting_is_shown_by_what_the_scheduler_says_of_it() -> None:
    hung = node("n1")
    hung.health = hung.summary.health = report.NODE_HEALTH_STARTING
    hung.summary.can_accept, hung.summary.cannot_accept_reason = False, "stalled"
    assert node_document(hung)["state"] == node_row(hung.summary)["state"] == "stalled"
    assert node_document(hung)["health"] == "starting"
    hung.availability = hung.summary.availability = report.NODE_AVAILABILITY_CORDONED
    assert node_document(hung)["state"] == node_row(hung.summary)["state"] == "cordoned"
    well = summary("n2")
    well.can_accept, well.cannot_accept_reason = False, "slots_full"
    assert node_row(well)["state"] == "healthy"


def test_every_state_of_a_node_has_a_word_in_chinese_and_on_the_page() -> None:
    page = (ROOT / "scheduler_service/dashboard/static/words.js").read_text(encoding="utf-8")
    words = {*condition.NOT_SERVING, *(each.name.lower() for each in NodeHealth)}
    words |= {each.name.lower() for each in NodeAvailability} - {"active"}
    assert words <= STATES_ZH.keys()
    assert {word for word in words if f'"{word}": "{STATES_ZH[word]}"' not in page} == set()


def test_unknown_enum_numbers_have_a_name_of_their_own() -> None:
    summary = report.NodeSummary(node_id="n1")
    summary.health = 99  # type: ignore[assignment]
    assert plain(summary)["health"] == "unknown_99"
    error = types.Error(reason=types.ERROR_REASON_NODE_LOST)
    assert plain(error)["reason"] == "NODE_LOST"


def test_milliseconds_are_whole_where_they_can_be() -> None:
    assert repr(ms(Duration(seconds=2))) == "2000"
    assert repr(ms(Duration(nanos=1_250_000))) == "1.25"


def test_node_document_joins_what_the_node_says_with_the_books_about_it() -> None:
    document = node_document(node("n1"))
    assert list(document)[: len(NODE_KEYS)] == NODE_KEYS
    (engine,) = document["engines"]
    assert engine["load"]["kv_utilization"] == 0.5
    assert engine["ledger"]["in_flight"] == 2
    assert document["gpus"] == [
        {
            "index": 0, "uuid": "GPU-1", "model": "H200", "memory_bytes": None,
            "driver_version": "", "mig_uuid": "", "utilization": 0.9, "memory_used_bytes": None,
            "memory_total_bytes": None, "temperature_celsius": None, "power_watts": None,
            "throttle_reasons": None, "uncorrected_ecc_errors": None, "last_xid": None,
        }
    ]  # fmt: skip
    assert document["clock_offset_ms"] == -1.5
    assert document["round_trip_ms"] == 2
    assert document["drain"] is None


def test_node_that_never_reported_is_shown_too() -> None:
    document = node_document(report.Node(node_id="n9"))
    assert document["node_id"] == "n9"
    assert document["engines"] == document["gpus"] == []
    assert document["labels"] == {}
    assert document["cpu_utilization"] is None


def test_a_cost_has_its_tokens_per_node_hour_where_it_held_a_node() -> None:
    message = busy_report()
    message.costs.add(tenant="a", node_hours=0.5, output_tokens=100)
    message.costs.add(tenant="b", output_tokens=100)
    costs = report_document(message)["costs"]
    assert [row["tokens_per_node_hour"] for row in costs] == [200.0, None]


def test_of_many_events_the_rare_ones_are_kept_and_all_stay_in_their_order() -> None:
    logs = [{"event": "node_lost", "n": 0}, *({"event": "submit", "n": n} for n in range(1, 9))]
    assert [log["n"] for log in recent(logs, 4)] == [0, 6, 7, 8]
    assert [log["n"] for log in recent(logs, 1)] == [8]
    assert recent(logs, 50) == logs
