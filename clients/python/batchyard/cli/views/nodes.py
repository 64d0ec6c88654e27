"""Nodes and their drains as documents."""

from __future__ import annotations

from batchyard.cli.columns import Column, duration, number, share, slots
from batchyard.cli.views.plain import Document, plain
from batchyard.v1 import report_pb2 as report

LIST_COLUMNS = (
    Column("node_id", "NODE", cut=True, keep_end=True),
    Column("state", "STATE"),
    Column("models", "MODELS", cut=True),
    number("running", "RUN"),
    slots("SLOTS"),
    duration("avg_latency_ms", "AVG"),
    share("failure_rate", "FAIL"),
    number("total_finished", "OK"),
    number("total_failed", "FAILED"),
    Column("can_accept", "ACCEPTS"),
    Column("cannot_accept_reason", "WHY NOT", cut=True, wide=True),
    Column("pool", "POOL", cut=True, wide=True),
    Column("role", "ROLE", wide=True),
    Column("engine_kinds", "ENGINE", cut=True, wide=True),
    number("waiting", "WAIT", wide=True),
    share("cpu_utilization", "CPU", wide=True),
    share("memory_utilization", "MEM", wide=True),
    duration("round_trip_ms", "RTT", wide=True),
    Column("agent_version", "VERSION", cut=True, wide=True),
    Column("last_seen_time", "LAST SEEN", wide=True),
)


def state_word(availability: str | None, health: str | None, why_not: str | None = None) -> str:
    """One word for both states: `lost`, but of a node that was drained before it left (`down` if
    it left as no engine could serve); else what operators set, else the health; of one that is
    `starting`, why it takes no work, by the scheduler: `loading`, `stalled`, `down`, `no_model`
    say more.
    """
    if health == "lost" and availability != "drained":
        return "lost"
    if health == "lost" and why_not == "down":
        return "down"
    if availability not in (None, "active"):
        return str(availability)
    if health == "starting" and why_not:
        return why_not
    return health or "unknown"


def node_row(summary: report.NodeSummary) -> Document:
    """A node's row of the report."""
    row = plain(summary)
    models = row["models"]
    return {
        "node_id": row["node_id"],
        "model_name": models[0] if models else None,
        "models": models,
        "state": state_word(row["availability"], row["health"], row["cannot_accept_reason"]),
        "availability": row["availability"],
        "health": row["health"],
        "running": row["running"],
        "slots": row["slots"],
        "slots_assumed": row["slots_assumed"],
        "max_batch_size": row["max_batch_size"],
        "avg_latency_ms": row["avg_latency_ms"],
        "failure_rate": row["failure_rate"],
        "can_accept": row["can_accept"],
        "cannot_accept_reason": row["cannot_accept_reason"],
        "total_finished": row["total_finished"],
        "total_failed": row["total_failed"],
        "utilization": row["utilization"],
        "price_per_hour": row["price_per_hour"],
    }


def node_document(node: report.Node) -> Document:
    """All that is known of a node; its row of the report comes first."""
    whole = plain(node)
    descriptor = whole["descriptor"] or {}
    load = whole["report"] or {}
    document = node_row(node.summary)
    document["node_id"] = node.node_id or document["node_id"]
    document["availability"], document["health"] = whole["availability"], whole["health"]
    document["state"] = state_word(
        whole["availability"], whole["health"], document["cannot_accept_reason"]
    )
    document["state_reason"] = whole["state_reason"]
    for key in ("hostname", "address", "zone", "pool", "role"):
        document[key] = descriptor.get(key) or None
    document["role"] = document["role"] or "primary"
    document["labels"] = descriptor.get("labels") or {}
    document["task_types"] = descriptor.get("task_types") or []
    document["engines"] = _engines(whole)
    document["engine_kinds"] = sorted({e["kind"] for e in document["engines"] if e["kind"]})
    document["waiting"] = _waiting(load.get("engines", []))
    for key in ("cpu_utilization", "memory_utilization"):
        document[key] = load.get(key)
    document["gpus"] = _gpus(descriptor, load)
    for key in ("boot_id", "session_epoch", "agent_version", "connect_time", "last_seen_time"):
        document[key] = whole[key]
    document["round_trip_ms"] = whole["round_trip_ms"]
    offset_us = whole["clock_offset_us"]
    document["clock_offset_ms"] = None if offset_us is None else offset_us / 1000
    document["drain"] = whole["drain"]
    return document


def _waiting(loads: list[Document]) -> int | None:
    """What waits in its engines, whoever sent it, as far as they tell; None: none of them does."""
    told = [
        load["waiting"]
        if load["waiting"] is not None
        else len(load["waiting_dispatch_ids"]) or None
        for load in loads
    ]
    known = [count for count in told if count is not None]
    return sum(known) if known else None


def _engines(whole: Document) -> list[Document]:
    loads = {e["engine_id"]: e for e in (whole["report"] or {}).get("engines", [])}
    ledgers = {e["engine_id"]: e for e in whole["ledgers"]}
    return [
        {
            **engine,
            "load": loads.get(engine["engine_id"]),
            "ledger": ledgers.get(engine["engine_id"]),
        }
        for engine in (whole["descriptor"] or {}).get("engines", [])
    ]


def _gpus(descriptor: Document, load: Document) -> list[Document]:
    loads = {gpu["index"]: gpu for gpu in load.get("gpus", [])}
    known = {gpu["index"]: gpu for gpu in descriptor.get("gpus", [])}
    return [{**known.get(i, {}), **loads.get(i, {})} for i in sorted(known.keys() | loads.keys())]
