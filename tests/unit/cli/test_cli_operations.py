"""What operators do besides: pause, freeze, log level, dump, doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import report_pb2 as report
from batchyard.v1 import scheduler_service_pb2 as scheduler
from batchyard.version import version
from tests.unit.cli.messages import busy_report, node
from tests.unit.cli.scripted import Scripted


def test_pause_and_resume_show_the_pool(against: Any, scripted: Scripted) -> None:
    scripted.on("PausePool", admin.PausePoolResponse(pool=report.Pool(pool="m", paused=True)))
    done = against("queues", "pause", "m", "--reason", "a look", "-o", "json")
    assert done.json["pools"][0]["paused"] is True
    assert scripted.requests("PausePool")[0].reason == "a look"
    scripted.on("ResumePool", admin.ResumePoolResponse(pool=report.Pool(pool="m")))
    assert against("queues", "resume", "m", "-o", "name").lines == ["m"]


def test_freeze_is_for_a_while_or_for_good(against: Any, scripted: Scripted) -> None:
    frozen = report.Pool(pool="m", scale=report.ScaleTarget(frozen=True))
    scripted.on("FreezeAutoscale", admin.FreezeAutoscaleResponse(pools=[frozen]))
    assert against("autoscale", "freeze", "--for", "30m").exit_code == 0
    assert against("autoscale", "freeze", "m").exit_code == 0
    first, second = scripted.requests("FreezeAutoscale")
    assert (first.pool, first.duration.seconds) == ("", 1800)
    assert (second.pool, second.HasField("duration")) == ("m", False)
    scripted.on("UnfreezeAutoscale", admin.UnfreezeAutoscaleResponse(pools=[frozen]))
    assert against("autoscale", "unfreeze").exit_code == 0


def test_log_level_is_set_by_its_name(against: Any, scripted: Scripted) -> None:
    scripted.on("SetLogLevel", admin.SetLogLevelResponse())
    assert against("debug", "log-level", "debug", "--logger", "scheduler_service").exit_code == 0
    (asked,) = scripted.requests("SetLogLevel")
    assert (asked.level, asked.logger) == ("debug", "scheduler_service")


def test_dump_has_everything_in_one_file(against: Any, scripted: Scripted, tmp_path: Path) -> None:
    queued = report.RequestSummary(request_id="r1", state=report.REQUEST_STATE_QUEUED)
    scripted.on("GetReport", admin.GetReportResponse(report=busy_report()))
    scripted.on("ListNodes", admin.ListNodesResponse(nodes=[node("n1")]))
    scripted.on("ListRequests", admin.ListRequestsResponse(requests=[queued]))
    scripted.on("ListEvents", admin.ListEventsResponse(events=[report.Event(event="submit")]))
    scripted.on("ExplainRequest", admin.ExplainRequestResponse(request=queued))
    file = tmp_path / "dump.json"
    assert against("debug", "dump", str(file)).exit_code == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert list(document) == ["report", "nodes", "requests", "events", "waiting"]
    assert document["waiting"][0]["request"]["request_id"] == "r1"


def healthy(scripted: Scripted) -> None:
    info = scheduler.GetServerInfoResponse(version=version())
    info.server_time.GetCurrentTime()
    scripted.on("GetServerInfo", info)
    fine = report.Report()
    fine.diagnosis.add(severity=report.DIAGNOSIS_SEVERITY_INFO, text="All is well.")
    scripted.on("GetReport", admin.GetReportResponse(report=fine))
    works = report.Node(node_id="n1", summary=report.NodeSummary(can_accept=True))
    scripted.on("ListNodes", admin.ListNodesResponse(nodes=[works]))


def test_doctor_finds_nothing_where_all_is_well(
    against: Any, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    healthy(scripted)
    done = against("doctor", "-o", "json")
    assert done.exit_code == 0, done.out
    assert {each["result"] for each in done.json["checks"]} == {"ok"}


def test_doctor_tells_each_fault_with_what_to_do(
    against: Any, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy(scripted)
    info = scheduler.GetServerInfoResponse(version="0.0.9")
    info.server_time.FromSeconds(1)
    scripted.on("GetServerInfo", info)
    bad = report.Report()
    bad.pools.add(pool="m", paused=True)
    bad.diagnosis.add(severity=report.DIAGNOSIS_SEVERITY_CRITICAL, text="No live node serves m.")
    scripted.on("GetReport", admin.GetReportResponse(report=bad))
    scripted.on("ListNodes", admin.ListNodesResponse())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    done = against("doctor", "-o", "json")
    assert done.exit_code == 1
    found = {each["check"]: each["result"] for each in done.json["checks"]}
    assert found == {
        "client port": "ok", "version": "warning", "clock": "warning", "admin port": "ok",
        "nodes": "failed", "diagnosis": "failed", "pools": "warning", "traces": "failed",
    }  # fmt: skip
    assert all(each["fix"] for each in done.json["checks"] if each["check"] in ("nodes", "traces"))
    piped = [line.split("\t")[:2] for line in against("doctor").out.splitlines()]
    assert {check: result for result, check in piped if check in found} == found


def test_doctor_says_where_nobody_answers(scripted: Scripted, against: Any) -> None:
    done = against("doctor", "--address", "127.0.0.1:9", "--admin-address", "127.0.0.1:9")
    assert done.exit_code == 1
    assert "cannot reach the scheduler" in done.out


def test_doctor_says_that_an_applied_policy_ends_with_the_process(
    against: Any, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    healthy(scripted)
    policy = admin.Policy(yaml="queue: {}", updated_by="alice")
    scripted.on("GetPolicy", admin.GetPolicyResponse(policy=policy))
    done = against("doctor", "-o", "json")
    assert done.exit_code == 0
    (found,) = [each for each in done.json["checks"] if each["check"] == "policy"]
    assert found["result"] == "warning"
    assert "alice" in found["says"]
