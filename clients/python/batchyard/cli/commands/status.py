"""`batchyard status`: how it stands now; with --watch, live."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.failures import CliError
from batchyard.cli.options import DurationType, pass_settings, server_options
from batchyard.cli.output import console, emit_document, emit_line, write_lines
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.views.plain import Document
    from batchyard.v1 import Report

Screen = Callable[..., Any]  # a document and the terminal's height to something drawn


@click.command()
@click.option("--watch", "-w", is_flag=True, help="Follow it on one stream until Ctrl-C.")
@click.option(
    "--interval",
    type=DurationType(minimum_s=0.1),
    default="1s",
    show_default=True,
    help="Time between two updates, with --watch.",
)
@server_options
@pass_settings
def status(settings: Settings, watch: bool, interval: float) -> None:
    """Show cluster, queue by priority (10 = most urgent), nodes, totals, scale target, events."""
    from batchyard.cli.screens import status_screen

    if not watch:
        _show(settings, ask_admin(settings, lambda admin: admin.report(max_events=50)))
        return
    watch_reports(settings, interval, status_screen)


def watch_reports(settings: Settings, interval: float, screen: Screen) -> None:
    """Until Ctrl-C: a screen on a terminal, a line per message elsewhere."""
    if settings.format() in ("table", "wide"):
        _watch_screen(settings, interval, screen)
    else:
        ask_admin(settings, lambda admin: _follow(admin, interval, _line_of(settings)))


def _show(settings: Settings, message: Report) -> None:
    from batchyard.cli.screens import status_screen, status_tsv
    from batchyard.cli.views.report import report_document

    document = report_document(message)
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, document)
    elif form == "tsv":
        write_lines(status_tsv(document))
    elif form == "name":
        write_lines(node["node_id"] for node in document["nodes"])
    else:
        console().print(status_screen(document))


def _watch_screen(settings: Settings, interval: float, screen: Screen) -> None:
    """The whole terminal, redrawn with each message; where nothing can be redrawn, all of them."""
    from rich.live import Live

    terminal = console()
    if not terminal.is_terminal or terminal.is_dumb_terminal:

        def write(document: Document) -> None:
            terminal.print(screen(document, height=terminal.height), end="\n\n")
            sys.stdout.flush()

        ask_admin(settings, lambda admin: _follow(admin, interval, write))
        return
    with Live(console=terminal, screen=True, auto_refresh=False) as live:

        def draw(document: Document) -> None:
            live.update(screen(document, height=terminal.height), refresh=True)

        ask_admin(settings, lambda admin: _follow(admin, interval, draw))


def _line_of(settings: Settings) -> Callable[[Document], None]:
    """One line per message: JSON, or figures below a line of their keys."""
    if settings.format() in ("json", "yaml", "name"):
        return emit_line
    keys = ("generate_time", "queue_size", "oldest_wait_ms")
    totals = ("received", "succeeded", "failed")
    print("\t".join((*keys, *totals)), flush=True)

    def figures(document: Document) -> None:
        cells = [str(document[key]) for key in keys]
        cells += [str(document["totals"][key]) for key in totals]
        print("\t".join(cells), flush=True)

    return figures


async def _follow(admin: AsyncAdmin, interval: float, show: Callable[[Document], None]) -> None:
    from batchyard.cli.views.report import report_document

    async for message in admin.watch_report(interval=interval):
        show(report_document(message))
    raise CliError.stream_ended()
