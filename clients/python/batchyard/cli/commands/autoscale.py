"""`batchyard autoscale`: freeze what it does, and let it act again."""

from __future__ import annotations

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.commands.queues import emit_pools
from batchyard.cli.options import DurationType, pass_settings, reason_option, server_options
from batchyard.cli.settings import Settings


@click.group()
def autoscale() -> None:
    """Freeze the autoscaler, or let it act again; `batchyard status` shows what it wants."""


@autoscale.command()
@click.argument("pool", default="")
@click.option(
    "--for", "duration", type=DurationType(minimum_s=1), help="Until then; else for good."
)
@reason_option
@server_options
@pass_settings
def freeze(settings: Settings, pool: str, duration: float | None, reason: str) -> None:
    """Plan and show, but start and stop nothing, for POOL or for all."""
    found = ask_admin(
        settings, lambda admin: admin.freeze_autoscale(pool, duration=duration, reason=reason)
    )
    emit_pools(settings, found)


@autoscale.command()
@click.argument("pool", default="")
@reason_option
@server_options
@pass_settings
def unfreeze(settings: Settings, pool: str, reason: str) -> None:
    """Let it act again, for POOL or for all."""
    found = ask_admin(settings, lambda admin: admin.unfreeze_autoscale(pool, reason=reason))
    emit_pools(settings, found)
