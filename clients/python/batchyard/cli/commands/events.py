"""`batchyard events`: what happened, and what happens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask_admin, take
from batchyard.cli.failures import CliError
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import DurationType, pass_settings, server_options
from batchyard.cli.output import emit_line, emit_list, note
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.views.plain import Document
    from batchyard.v1 import Event


@click.group(cls=NounGroup)
def events() -> None:
    """List what happened, and follow what happens."""


@events.command(name="list")
@click.option("--follow", "-f", is_flag=True, help="Then go on with new ones until Ctrl-C.")
@click.option("--type", "types", multiple=True, help="Only this event; may be repeated.")
@click.option("--request", "request_id", default="", help="Only events of this request.")
@click.option("--node", "node_id", default="", help="Only events of this node.")
@click.option("--since", type=DurationType(), help="Only events of the last so long.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most to list."
)
@server_options
@pass_settings
def list_events(
    settings: Settings,
    follow: bool,
    types: tuple[str, ...],
    request_id: str,
    node_id: str,
    since: float | None,
    limit: int,
) -> None:
    """List events, newest last."""

    async def work(admin: AsyncAdmin) -> None:
        listed = admin.events(
            events=types,
            request_id=request_id,
            node_id=node_id,
            since=None if since is None else await _ago(admin, since),
            page_size=limit,
        )
        found = list(reversed(await take(listed, limit)))  # the newest last, where it is read
        if not follow:
            _emit(settings, found)
            return
        for event in found:
            _print(settings, event)
        after = found[-1].event_id if found else ""
        async for batch in admin.watch_events(events=types, after_event_id=after):
            if batch.gap:
                note("some events were dropped: too many for this reader")
            for event in batch.events:
                if _matches(event, request_id, node_id):
                    _print(settings, event)
        raise CliError.stream_ended()

    ask_admin(settings, work)


async def _ago(admin: AsyncAdmin, seconds: float) -> datetime:
    """A time of the scheduler's clock, which need not be this machine's."""
    report = await admin.report(omit_nodes=True, omit_queues=True, max_events=1)
    return report.generate_time.ToDatetime() - timedelta(seconds=seconds)


def _emit(settings: Settings, found: list[Event]) -> None:
    from batchyard.cli.views.events import LIST_COLUMNS, event_document

    emit_list(
        settings,
        "events",
        [event_document(event) for event in found],
        LIST_COLUMNS,
        id_key="event_id",
        empty="no events",
    )


def _matches(event: Event, request_id: str, node_id: str) -> bool:
    """The stream filters by name only."""
    in_items = any(item.request_id == request_id for item in event.items)
    same_request = not request_id or event.request_id == request_id or in_items
    return same_request and (not node_id or event.node_id == node_id)


def _print(settings: Settings, event: Event) -> None:
    """One event as it comes, on one line."""
    from batchyard.cli.columns import tsv
    from batchyard.cli.screens import event_line
    from batchyard.cli.views.events import LIST_COLUMNS, event_document

    document: Document = event_document(event)
    form = settings.format()
    if form in ("json", "yaml"):
        emit_line(document)
    elif form == "name":
        print(event.event_id, flush=True)
    elif form == "tsv":
        print("\t".join(tsv(document.get(c.key)) for c in LIST_COLUMNS), flush=True)
    else:
        print(event_line(document), flush=True)
