"""`batchyard explain`, and cancelling what matches."""

from __future__ import annotations

from typing import Any

from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import report_pb2 as report
from tests.unit.cli.messages import instant, length
from tests.unit.cli.scripted import Scripted


def explanation(token: str = "", kind: str = "admit") -> admin.ExplainRequestResponse:
    return admin.ExplainRequestResponse(
        request=report.RequestSummary(
            request_id="r1", state=report.REQUEST_STATE_QUEUED, model="m", priority=5
        ),
        wait=admin.WaitReason(
            code="no_credit",
            text="All that could run it in m is full; it runs when a slot becomes free.",
            ahead=3,
            ahead_reason="they are as urgent",
            estimated_start=length(2),
            start_bound=32,
            nodes=[admin.Candidate(node_id="n1", engine_id="e0", filtered_by="no_credit")],
        ),
        decisions=[
            admin.Decision(decide_time=instant(0), kind=kind, outcome="queued", reason="why")
        ],
        next_page_token=token,
    )


def test_explain_tells_place_reason_estimate_and_nodes(against: Any, scripted: Scripted) -> None:
    scripted.on("ExplainRequest", explanation())
    done = against("explain", "r1", "--lang", "zh")
    text = "\n".join(done.lines)
    assert "it runs when a slot becomes free" in text
    assert "前面有 3 个：they are as urgent" in text
    assert "预计 2" in text
    assert "n1/e0  no_credit" in text
    assert scripted.requests("ExplainRequest")[0].language == "zh"


def test_explain_joins_all_pages_into_one_document(against: Any, scripted: Scripted) -> None:
    pages = {"": explanation("next", "admit"), "next": explanation("", "place")}
    scripted.on("ExplainRequest", lambda request: pages[request.page_token])
    document = against("explain", "r1", "-o", "json").json
    assert [each["kind"] for each in document["decisions"]] == ["admit", "place"]
    assert document["wait"]["start_bound"] == 32
    assert against("requests", "show", "r1", "--why", "-o", "json").json == document


def test_cancel_by_what_matches_goes_to_the_admin_port(against: Any, scripted: Scripted) -> None:
    scripted.on("CancelMatching", admin.CancelMatchingResponse(count=2, request_ids=["a", "b"]))
    done = against(
        "requests", "cancel", "--tenant", "acme", "--priority", "1-3", "--dry-run", "-o", "json"
    )
    assert done.exit_code == 0
    assert [row["cancelled"] for row in done.json["requests"]] == [False, False]
    (asked,) = scripted.requests("CancelMatching")
    assert (asked.filter.tenant, asked.filter.min_priority, asked.filter.max_priority) == (
        "acme", 1, 3,
    )  # fmt: skip
    assert asked.validate_only


def test_cancel_without_saying_which_is_refused(against: Any) -> None:
    done = against("requests", "cancel")
    assert done.exit_code == 2
    assert "say which" in done.err
    assert against("requests", "cancel", "--priority", "11").exit_code == 2
