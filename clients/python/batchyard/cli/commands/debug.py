"""`batchyard debug`: what a person who was not there needs to see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from batchyard.cli.asks import ask_admin, take
from batchyard.cli.options import pass_settings, reason_option, server_options
from batchyard.cli.output import note
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.views.plain import Document

LEVELS: Final = ("error", "warning", "info", "debug", "trace")
REQUESTS_MAX: Final = 1_000
EVENTS_MAX: Final = 5_000
EXPLAINED_MAX: Final = 20


@click.group()
def debug() -> None:
    """Look closer: the level of the log, and a dump to send along."""


@debug.command(name="log-level")
@click.argument("level", type=click.Choice(LEVELS), required=False)
@click.option("--logger", default="", help="Only this one and those below it.")
@click.option("--node", default="", help="Of this node's agent, not of the scheduler.")
@reason_option
@server_options
@pass_settings
def log_level(settings: Settings, level: str | None, logger: str, node: str, reason: str) -> None:
    """Set what the scheduler or an agent logs, now; without LEVEL as it is configured."""
    ask_admin(
        settings,
        lambda admin: admin.set_log_level(level or "", logger=logger, node_id=node, reason=reason),
    )
    where = node or "the scheduler"
    note(f"the log level of {logger or 'all'} on {where} is {level or 'as configured'}")


@debug.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@server_options
@pass_settings
def dump(settings: Settings, file: Path) -> None:
    """Write all that the scheduler tells of itself into FILE, as JSON; - is standard output.

    Report, nodes, requests, events, and why the oldest that wait do so. Neither prompts nor outputs
    nor credentials are in it, for the scheduler tells them to nobody; ids and names are.
    """
    import json

    document = ask_admin(settings, _collected)
    text = json.dumps(document, ensure_ascii=False, indent=1)
    if str(file) == "-":
        click.echo(text)
        return
    file.write_text(text, encoding="utf-8")
    note(f"wrote {file}: {', '.join(f'{key} {len(value)}' for key, value in document.items())}")


async def _collected(admin: AsyncAdmin) -> dict[str, Document | list[Document]]:
    from batchyard.cli.views.events import event_document
    from batchyard.cli.views.explain import explanation_document
    from batchyard.cli.views.nodes import node_document
    from batchyard.cli.views.plain import plain
    from batchyard.cli.views.report import report_document
    from batchyard.v1 import RequestFilter, RequestState

    report = await admin.report(max_events=1)
    requests = await take(admin.requests(page_size=REQUESTS_MAX), REQUESTS_MAX)
    waiting = RequestFilter(states=[RequestState.REQUEST_STATE_QUEUED])
    queued = await take(admin.requests(waiting, page_size=REQUESTS_MAX), REQUESTS_MAX)
    oldest = sorted(queued, key=lambda each: -each.age.ToNanoseconds())[:EXPLAINED_MAX]
    return {
        "report": report_document(report),
        "nodes": [node_document(node) for node in await take(admin.nodes())],
        "requests": [plain(each) for each in requests],
        "events": [
            event_document(each) for each in await take(admin.events(page_size=1_000), EVENTS_MAX)
        ],
        "waiting": [
            explanation_document(await admin.explain(each.request_id, tenant=each.tenant))
            for each in oldest
        ],
    }
