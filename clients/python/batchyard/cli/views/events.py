"""Events as documents: `event`, `time`, and the event's own fields beside them."""

from __future__ import annotations

from batchyard.cli.columns import Column, clock
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import report_pb2 as report

_OWN = ("event_id", "message", "request_id", "batch_id", "node_id", "model", "pool", "tenant")
_LAST = ("trace_id", "principal", "reason")

_FREQUENT = (
    "submit", "dispatch_batch", "batch_finished", "rejected", "cancelled", "expired", "failed",
)  # fmt: skip

LIST_COLUMNS = (
    Column("time", "TIME", show=clock),
    Column("event", "EVENT"),
    Column("node_id", "NODE", cut=True, keep_end=True),
    Column("request_id", "REQUEST", cut=True, wide=True),
    Column("model", "MODEL", cut=True, wide=True),
    Column("batch_id", "BATCH", cut=True, wide=True),
    Column("tenant", "TENANT", cut=True, wide=True),
    Column("message", "MESSAGE", fold=True),
    Column("event_id", "EVENT ID", cut=True, wide=True),
    Column("principal", "BY", cut=True, wide=True),
    Column("reason", "REASON", cut=True, wide=True),
)


def event_document(event: report.Event) -> Document:
    """Fields that the event does not have are left out; its attributes stand beside the others."""
    whole = plain(event)
    document: Document = {"event": event.event, "time": whole["create_time"]}
    document |= {key: whole[key] for key in (*_OWN, *_LAST) if whole[key]}
    if whole["items"]:
        document["items"] = whole["items"]
    for key, value in whole["attributes"].items():
        # An attribute never hides a field; the scheduler uses other names.
        document[key if key not in document else f"attribute_{key}"] = value
    return document


def recent(logs: list[Document], most: int) -> list[Document]:
    """The last of them, in their order; half of the room is for what not every request causes."""
    rare = [at for at, log in enumerate(logs) if log["event"] not in _FREQUENT]
    chosen = set(rare[-(most // 2) :] if most > 1 else ())
    for at in reversed(range(len(logs))):
        if len(chosen) >= most:
            break
        chosen.add(at)
    return [log for at, log in enumerate(logs) if at in chosen]
