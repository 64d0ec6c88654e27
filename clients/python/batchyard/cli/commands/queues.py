"""`batchyard queues`: what waits."""

from __future__ import annotations

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import pass_settings, server_options
from batchyard.cli.output import emit_list
from batchyard.cli.settings import Settings


@click.group(cls=NounGroup)
def queues() -> None:
    """List what waits, by pool, model and priority (10 = most urgent)."""


@queues.command(name="list")
@click.option("--model", default="", help="Only queues of this model.")
@click.option("--all", "everything", is_flag=True, help="Empty queues too.")
@server_options
@pass_settings
def list_queues(settings: Settings, model: str, everything: bool) -> None:
    """List the queues, most urgent first."""
    from batchyard.cli.views.queues import LIST_COLUMNS
    from batchyard.cli.views.report import queue_row

    message = ask_admin(settings, lambda admin: admin.report())
    rows = [queue_row(queue) for queue in message.queues]
    rows = [row for row in rows if (everything or row["depth"]) and model in ("", row["model"])]
    rows.sort(key=lambda row: (row["pool"], row["model"], -row["priority"], row["tenant"]))
    emit_list(settings, "queues", rows, LIST_COLUMNS, id_key="queue", empty="nothing waits")
