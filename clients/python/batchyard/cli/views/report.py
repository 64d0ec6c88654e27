"""The report as the document that `batchyard report -o json` prints. Its keys are a contract."""

from __future__ import annotations

from batchyard.cli.views.events import event_document
from batchyard.cli.views.nodes import node_row
from batchyard.cli.views.plain import Document, ms, plain
from batchyard.v1 import report_pb2 as report

_WHOLE = ("pools", "costs", "slowest", "tenants", "rejects", "timeline", "backlog")


def report_document(message: report.Report) -> Document:
    """The keys of the report, and no others."""
    whole = plain(message)
    return {
        "report_name": message.report_name,
        "generate_time": whole["generate_time"],
        "window_s": round(ms(message.window) / 1000, 3),
        "queue_size": message.queue_size,
        "oldest_wait_ms": whole["oldest_wait_ms"] or 0,
        "nodes": [node_row(node) for node in message.nodes],
        "logs": [event_document(event) for event in message.events],
        "totals": plain(message.totals),
        "window_totals": plain(message.window_totals),
        "diagnosis": [
            {key: row[key] for key in ("code", "severity", "text", "reason")}
            for row in whole["diagnosis"]
        ],
        "queues": [queue_row(queue) for queue in message.queues],
        **{key: whole[key] for key in _WHOLE},
        "costs": [cost_row(row) for row in whole["costs"]],
        "scheduler_version": message.scheduler_version,
        "uptime_ms": whole["uptime_ms"],
    }


def cost_row(row: Document) -> Document:
    """One line of the costs, with its tokens per node-hour; null: it held no node."""
    hours, tokens = row["node_hours"], row["output_tokens"]
    return {**row, "tokens_per_node_hour": tokens / hours if hours else None}


def queue_row(queue: report.QueueStats) -> Document:
    """One queue: what waits of one pool, model, class, priority and tenant."""
    row = plain(queue)
    row["oldest_wait_ms"] = row["oldest_wait_ms"] or 0
    parts = (row["pool"], row["model"], row["request_class"], row["priority"], row["tenant"])
    return {"queue": "/".join(str(part) for part in parts if part), **row}
