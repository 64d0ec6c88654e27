"""Models as documents."""

from __future__ import annotations

from batchyard.cli.columns import Column, number
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import scheduler_service_pb2 as scheduler

UNAVAILABLE = "unavailable"  # no node in service has it

LIST_COLUMNS = (
    Column("model", "MODEL", cut=True),
    Column("state", "STATE"),
    number("ready_nodes", "NODES"),
    number("context_length", "CONTEXT"),
    Column("streaming", "STREAMS"),
    Column("task_types", "TASK TYPES", cut=True),
    Column("degrade_to", "DEGRADES TO", cut=True, wide=True),
    Column("base_model", "BASE", cut=True, wide=True),
    Column("features", "FEATURES", cut=True, wide=True),
)


def model_document(model: scheduler.ModelInfo) -> Document:
    """A model over all nodes; `unavailable` where no node in service has it."""
    document = plain(model)
    document["state"] = document["state"] or UNAVAILABLE
    return document
