"""Models as documents."""

from __future__ import annotations

from batchyard.cli.columns import Column, number

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
