"""What `doctor` looks at. Each check is a row: what it is, how it stands, and what to do."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from batchyard.cli.asks import ask, ask_admin, take
from batchyard.cli.failures import CliError
from batchyard.cli.settings import Settings
from batchyard.cli.views.plain import Document

if TYPE_CHECKING:
    from batchyard.v1 import Node, Report

OFFSET_S: Final = 0.5  # of clocks, from which on times of traces and events mislead
REACH_S: Final = 2.0
UNWELL_MAX: Final = 20  # nodes that are told of one by one
_REMEDIES: Final = {
    "suspect": "look at the network to its host, and whether its agent is stopped",
    "ejected": "its agent's log has each error; it is tried again by itself",
    "probation": "it proves itself again; nothing to do while that goes well",
    "no_model": "batchyard models load",
}
_DISTURBING: Final = ("http_proxy", "https_proxy", "grpc_proxy")


def checkup(settings: Settings) -> list[Document]:
    """All checks, each by itself: what fails hides nothing of the others."""
    return [*_client(settings), *_admin(settings), *_surroundings()]


def row(check: str, result: str, says: str, fix: str = "") -> Document:
    """One line. `result`: ok, warning or failed."""
    return {"check": check, "result": result, "says": says, "fix": fix}


def _client(settings: Settings) -> Iterator[Document]:
    from batchyard.version import version

    try:
        before = time.monotonic()
        info = ask(settings, lambda client: client.server_info())
        took = time.monotonic() - before
    except CliError as fault:
        yield row("client port", "failed", fault.what, fault.next_step)
        return
    yield row("client port", "ok", f"{settings.client_address()} answers in {took * 1000:.0f} ms")
    alike = info.version == version()
    yield row(
        "version",
        "ok" if alike else "warning",
        f"scheduler {info.version}, this command {version()}",
        "" if alike else "use the same version of both",
    )
    offset = info.server_time.ToNanoseconds() / 1e9 - _wall()
    close = abs(offset) < OFFSET_S + took
    yield row(
        "clock",
        "ok" if close else "warning",
        f"the scheduler's clock is {offset:+.3f} s from this one",
        "" if close else "let NTP set both clocks: times of traces and events mislead",
    )


def _admin(settings: Settings) -> Iterator[Document]:
    try:
        report = ask_admin(settings, lambda admin: admin.report())
        nodes = ask_admin(settings, lambda admin: take(admin.nodes()))
    except CliError as fault:
        yield row("admin port", "failed", fault.what, fault.next_step)
        return
    yield row("admin port", "ok", f"{settings.admin_client_address()} answers")
    yield from _nodes(nodes)
    yield from _policy(settings)
    yield from _diagnosis(report)
    for pool in report.pools:
        if pool.paused:
            fix = f"`batchyard queues resume {pool.pool}` when it is time"
            yield row("pools", "warning", f"{pool.pool} is paused", fix)
        if pool.HasField("scale") and pool.scale.frozen:
            fix = f"`batchyard autoscale unfreeze {pool.pool}` when it is time"
            yield row("autoscaler", "warning", f"frozen for {pool.pool}", fix)


def _policy(settings: Settings) -> Iterator[Document]:
    try:
        found = ask_admin(settings, lambda admin: admin.policy())
    except CliError:
        return  # of an older version
    if found.updated_by:
        says = f"applied by {found.updated_by}; lost when the scheduler restarts"
        yield row("policy", "warning", says, "to keep it: `batchyard policy show`, scheduler.yaml")


def _nodes(nodes: list[Node]) -> Iterator[Document]:
    ready = [node for node in nodes if node.summary.can_accept or node.summary.running]
    if not ready:
        fix = "start one: batchyard agent -c agent.yaml"
        yield row("nodes", "failed", f"none of {len(nodes)} nodes works", fix)
    else:
        yield row("nodes", "ok", f"{len(ready)} of {len(nodes)} work")
    yield from _unwell(nodes)
    for node in nodes:
        if node.HasField("clock_offset_us") and abs(node.clock_offset_us) > OFFSET_S * 1e6:
            says = f"{node.node_id}: {node.clock_offset_us / 1e6:+.3f} s from the scheduler's"
            yield row("clocks of nodes", "warning", says, "let NTP set both clocks")
        if any(ledger.healed for ledger in node.ledgers):
            says = f"{node.node_id}: the books had to be corrected"
            yield row("ledgers", "warning", says, "`batchyard events list --type ledger_healed`")


def _unwell(nodes: list[Node]) -> Iterator[Document]:
    """Those that operators let work and that do not, or not wholly; of many the first."""
    from batchyard.cli.views.nodes import node_document

    shown = [document for document in map(node_document, nodes) if _is_unwell(document)]
    for document in shown[:UNWELL_MAX]:
        state, why = document["state"], document["state_reason"]
        says = f"{document['node_id']} is {state}" + (f": {why}" if why else "")
        fix = _REMEDIES.get(state, "on its host: batchyard doctor --agent, with its options")
        yield row("nodes", "warning", says, fix)
    if len(shown) > UNWELL_MAX:
        says = f"{len(shown) - UNWELL_MAX} more are not well"
        yield row("nodes", "warning", says, "batchyard nodes list")


def _is_unwell(document: Document) -> bool:
    if document["state"] == "down":  # also one that has left for that
        return True
    if document["availability"] != "active" or document["state"] in ("loading", "lost"):
        return False
    return document["state"] != "healthy" or bool(document["state_reason"])


def _diagnosis(report: Report) -> Iterator[Document]:
    words = {1: "ok", 2: "warning", 3: "failed"}
    for finding in report.diagnosis:
        result = words.get(finding.severity, "warning")
        yield row("diagnosis", result, f"{finding.text} {finding.reason}")


def _surroundings() -> Iterator[Document]:
    for name in _DISTURBING:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if value:
            yield row(
                "environment", "warning", f"{name} is set", "no_proxy must name the scheduler"
            )
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT", ""
    )
    if not endpoint:
        yield row("traces", "ok", "off here: no OTEL_EXPORTER_OTLP_ENDPOINT")
        return
    where = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    port = where.port or (443 if where.scheme == "https" else 4318)
    try:
        socket.create_connection((where.hostname or "", port), REACH_S).close()
    except OSError as fault:
        fix = "start the collector, or correct the endpoint; requests go on without it"
        yield row("traces", "failed", f"{endpoint} cannot be reached: {fault}", fix)
        return
    yield row("traces", "ok", f"{endpoint} can be reached")


def _wall() -> float:
    return time.time()  # noqa: TID251 # compared with another machine's clock
