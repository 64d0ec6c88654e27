"""`batchyard top`: what the dashboard shows, on the whole terminal."""

from __future__ import annotations

import click

from batchyard.cli.commands.status import watch_reports
from batchyard.cli.options import DurationType, pass_settings, server_options
from batchyard.cli.settings import Settings


@click.command()
@click.option(
    "--interval",
    type=DurationType(minimum_s=0.1),
    default="1s",
    show_default=True,
    help="Time between two updates.",
)
@server_options
@pass_settings
def top(settings: Settings, interval: float) -> None:
    """Follow queues, nodes, totals, events and the slowest requests until Ctrl-C."""
    from batchyard.cli.screens import top_screen

    watch_reports(settings, interval, top_screen)
