"""Requests as documents."""

from __future__ import annotations

from batchyard.cli.columns import Column, duration, number
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import report_pb2 as report

LIST_COLUMNS = (
    Column("request_id", "REQUEST", cut=True),
    Column("state", "STATE"),
    number("priority", "PRIO"),
    Column("model", "MODEL", cut=True),
    Column("task_type", "TASK", cut=True),
    Column("node_id", "NODE", cut=True),
    number("attempts", "TRIES"),
    duration("age_ms", "AGE"),
    duration("queue_duration_ms", "QUEUED"),
    Column("finish_reason", "FINISH"),
    number("output_tokens", "TOKENS", wide=True),
    Column("degraded", "DEGRADED", wide=True),
    Column("tenant", "TENANT", cut=True, wide=True),
    Column("request_class", "CLASS", wide=True),
    number("preemptions", "PREEMPTED", wide=True),
    Column("trace_id", "TRACE", cut=True, wide=True),
    Column("job_id", "JOB", cut=True, wide=True),
)


def request_row(summary: report.RequestSummary) -> Document:
    """One request of a list."""
    return plain(summary)


def request_document(response: admin.GetRequestResponse) -> Document:
    """A request with its attempts; `attempts` stays the count, as in lists."""
    document = plain(response.request)
    document["attempt_details"] = [plain(attempt) for attempt in response.attempts]
    for key in ("timings", "usage", "error"):
        document[key] = plain(response)[key]
    return document
