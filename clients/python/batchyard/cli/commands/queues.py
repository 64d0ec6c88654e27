"""`batchyard queues`: what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import pass_settings, reason_option, server_options
from batchyard.cli.output import emit_list
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard.v1 import Pool


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


@queues.command()
@click.argument("pool")
@reason_option
@server_options
@pass_settings
def pause(settings: Settings, pool: str, reason: str) -> None:
    """Hold back what POOL dispatches: it queues, and what runs goes on."""
    found = ask_admin(settings, lambda admin: admin.pause_pool(pool, reason=reason))
    emit_pools(settings, [found])


@queues.command()
@click.argument("pool")
@reason_option
@server_options
@pass_settings
def resume(settings: Settings, pool: str, reason: str) -> None:
    """Let POOL dispatch again."""
    found = ask_admin(settings, lambda admin: admin.resume_pool(pool, reason=reason))
    emit_pools(settings, [found])


def emit_pools(settings: Settings, pools: list[Pool]) -> None:
    """Write pools as they are after a change."""
    from batchyard.cli.views.plain import plain
    from batchyard.cli.views.queues import POOL_COLUMNS

    rows = [plain(pool) for pool in pools]
    emit_list(settings, "pools", rows, POOL_COLUMNS, id_key="pool", empty="no pool yet")
