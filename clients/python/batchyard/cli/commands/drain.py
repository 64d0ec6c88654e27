"""`batchyard nodes drain`: take a node out of service and prove that nothing was lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.durations import format_ms
from batchyard.cli.failures import FAILURE, OK, CliError
from batchyard.cli.options import DurationType, pass_settings, reason_option, server_options
from batchyard.cli.output import emit_document, note, write_lines
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.views.plain import Document
    from batchyard.v1 import Node

POLL_S = 0.25
IDS_SHOWN = 20


@click.command()
@click.argument("node_id")
@click.option(
    "--grace",
    type=DurationType(),
    default=None,
    help="Time for running work; then it is moved. [default: no limit]",
)
@reason_option
@click.option("--terminate", is_flag=True, help="The agent exits when it is drained.")
@click.option("--wait/--no-wait", default=True, help="Wait for the end and show the proof.")
@server_options
@pass_settings
def drain(
    settings: Settings, node_id: str, grace: float | None, reason: str, terminate: bool, wait: bool
) -> int:
    """Give NODE_ID no new work, let what runs finish, move the rest.

    Waits for the end and prints what finished, moved and was lost. Exit code 0 only if nothing
    was lost.
    """
    progress = _Progress(node_id)

    async def work(admin: AsyncAdmin) -> Node:
        node = await admin.drain(node_id, grace=grace, reason=reason, terminate=terminate)
        return await progress.until_end(admin, node) if wait else node

    try:
        node = ask_admin(settings, work)
    except KeyboardInterrupt:
        note(f"the drain of {node_id} goes on; `batchyard nodes uncordon {node_id}` ends it")
        raise
    return _finish(settings, node, waited=wait)


class _Progress:
    """Follows a drain, telling each change on standard error."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self._told = ""

    async def until_end(self, admin: AsyncAdmin, node: Node) -> Node:
        from batchyard import errors

        while not _ended(node):
            self._tell(node)
            await asyncio.sleep(POLL_S)
            try:
                node = await admin.node(self.node_id)
            except errors.NotFound as error:
                # A node that terminated may be forgotten between two looks.
                if node.drain.remaining == 0:
                    return node
                raise CliError(
                    f"{self.node_id} went away in the middle of its drain",
                    why=f"{node.drain.remaining} requests were still on it",
                    next_step=f"batchyard events list --node {self.node_id}",
                ) from error
        return node

    def _tell(self, node: Node) -> None:
        counts = node.drain
        text = (
            f"draining {self.node_id}: {counts.remaining} left, {counts.finished} finished, "
            f"{counts.moved} moved, {counts.lost} lost"
        )
        if text != self._told:
            note(text)
            self._told = text


def _ended(node: Node) -> bool:
    from batchyard.v1 import NodeHealth

    # The work of a lost node has been moved already; there is nothing left to wait for.
    return node.drain.HasField("end_time") or node.health == NodeHealth.NODE_HEALTH_LOST


def _finish(settings: Settings, node: Node, *, waited: bool) -> int:
    document = _document(node, waited=waited)
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, document)
    elif form == "name":
        print(node.node_id)
    elif not waited:
        print(
            f"{node.node_id} is draining; `batchyard nodes show {node.node_id}` shows the progress"
        )
    else:
        write_lines(_proof(document))
    return FAILURE if document["lost"] else OK


def _document(node: Node, *, waited: bool) -> Document:
    from batchyard.cli.views.nodes import node_document
    from batchyard.cli.views.plain import plain

    progress = plain(node.drain)
    took_ms = None
    if node.drain.HasField("start_time") and node.drain.HasField("end_time"):
        took_ms = node.drain.end_time.ToMilliseconds() - node.drain.start_time.ToMilliseconds()
    return {
        "node_id": node.node_id,
        "state": node_document(node)["state"],
        "waited": waited,
        "duration_ms": took_ms,
        **progress,
    }


def _proof(document: Document) -> list[str]:
    counts = ", ".join(f"{document[key]} {key}" for key in ("finished", "moved", "lost"))
    lines = [f"{document['node_id']} {document['state']} in {format_ms(document['duration_ms'])}"]
    lines[0] += f": {counts}"
    for key in ("finished", "moved", "lost"):
        ids = document[f"{key}_request_ids"]
        if ids:
            more = f" ... {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
            lines.append(f"  {key:<9}{' '.join(ids[:IDS_SHOWN])}{more}")
    return lines
