"""Jobs and their results as documents."""

from __future__ import annotations

from batchyard.cli.columns import Column, clock, number
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import Job, JobResult

LIST_COLUMNS = (
    Column("job_id", "JOB"),
    Column("state", "STATE"),
    number("total", "ITEMS"),
    number("done", "DONE"),
    number("running", "RUNNING"),
    number("failed", "FAILED"),
    number("cancelled", "CANCELLED", wide=True),
    number("expired", "EXPIRED", wide=True),
    number("preempted", "PREEMPTED", wide=True),
    Column("create_time", "CREATED", show=clock),
    Column("end_time", "ENDED", show=clock),
    Column("tenant", "TENANT", cut=True, wide=True),
    Column("labels", "LABELS", cut=True, wide=True),
)
RESULT_COLUMNS = (
    number("index", "INDEX"),
    Column("custom_id", "CUSTOM ID", cut=True),
    Column("end", "END"),
    Column("model", "MODEL", cut=True),
    Column("node_id", "NODE", cut=True, keep_end=True, wide=True),
    Column("answer", "ANSWER", fold=True),
)


def job_document(job: Job) -> Document:
    """A job."""
    return plain(job)


def job_row(job: Job) -> Document:
    """A job as a row of a table: its counts beside its name."""
    document = plain(job)
    counts = document["counts"] or {}
    return {**document, **counts, "done": _done(counts)}


def _done(counts: Document) -> int:
    return int(counts["total"] - counts["pending"] - counts["running"])


def result_document(result: JobResult) -> Document:
    """The result of an item."""
    return plain(result)


def result_row(result: JobResult) -> Document:
    """A result as a row of a table."""
    document = plain(result)
    inner = document["result"]
    return {
        **document,
        "end": inner["finish_reason"],
        "model": inner["model"],
        "node_id": inner["node_id"],
        "answer": _answer(inner),
    }


def _answer(result: Document) -> str:
    """The text of the first choice, or what went wrong."""
    if result["error"] is not None:
        return f"{result['error']['reason']}: {result['error']['message']}"
    outputs = result["outputs"]
    return str(outputs[0]["text"]) if outputs else ""


def progress_line(row: Document) -> str:
    """Where a job is, for people."""
    counts = row["counts"]
    words = [f"{counts[name]} {name}" for name in _SHOWN if counts[name]]
    done = f"{_done(counts)}/{counts['total']}"
    return "  ".join(filter(None, (row["job_id"], row["state"], done, ", ".join(words))))


_SHOWN = ("running", "succeeded", "failed", "cancelled", "expired", "preempted")
