"""Requests as documents."""

from __future__ import annotations

from batchyard.cli.columns import Column, duration, number
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import admin_service_pb2 as admin
from batchyard.v1 import report_pb2 as report


def _state_or_end(row: Document) -> str:
    """A finished request's end says more than that it has finished."""
    return str(row["finish_reason"] or row["state"])


LIST_COLUMNS = (
    Column("request_id", "REQUEST"),
    Column("state", "STATE", pick=_state_or_end),
    number("priority", "PRIO"),
    Column("model", "MODEL", cut=True),
    Column("node_id", "NODE", cut=True, keep_end=True),
    duration("age_ms", "AGE"),
    duration("queue_duration_ms", "QUEUED"),
    Column("task_type", "TASK", wide=True),
    number("attempts", "TRIES", wide=True),
    Column("finish_reason", "FINISH", wide=True),
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
