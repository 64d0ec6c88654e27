"""`batchyard requests`: list, show, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask, ask_admin, get_request, take
from batchyard.cli.failures import FAILURE, OK, PARTIAL, CliError
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import pass_settings, server_options
from batchyard.cli.output import emit_list, emit_one, note
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.views.plain import Document

STATES = ("queued", "dispatched", "running", "finished")


@click.group(cls=NounGroup)
def requests() -> None:
    """List requests, show one, cancel some."""


@requests.command(name="list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only in this.")
@click.option("--model", default="", help="Only for this model.")
@click.option("--node", "node_id", default="", help="Only on this node.")
@click.option("--tenant", default="", help="Only of this tenant.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most to list."
)
@server_options
@pass_settings
def list_requests(
    settings: Settings, states: tuple[str, ...], model: str, node_id: str, tenant: str, limit: int
) -> None:
    """List requests, newest first; finished ones as long as they are remembered."""
    from batchyard.cli.views.requests import LIST_COLUMNS, request_row
    from batchyard.v1 import RequestFilter

    chosen = RequestFilter(
        model=model,
        node_id=node_id,
        tenant=tenant,
        states=[f"REQUEST_STATE_{state.upper()}" for state in states],
    )
    found = ask_admin(settings, lambda admin: take(admin.requests(chosen, page_size=limit), limit))
    emit_list(
        settings,
        "requests",
        [request_row(summary) for summary in found],
        LIST_COLUMNS,
        id_key="request_id",
        empty="no requests",
    )


@requests.command()
@click.argument("request_id")
@server_options
@pass_settings
def show(settings: Settings, request_id: str) -> None:
    """Show one request, with its attempts where the scheduler gives them."""
    document = ask_admin(settings, lambda admin: _find(admin, request_id))
    emit_one(settings, document, id_key="request_id")


async def _find(admin: AsyncAdmin, request_id: str) -> Document:
    """All about the request; from a scheduler that does not offer that, its row of the list."""
    from batchyard import errors
    from batchyard.cli.views.requests import request_document, request_row
    from batchyard.v1 import RequestFilter

    try:
        return request_document(await get_request(admin.address, request_id))
    except errors.UnsupportedFeature:
        found = await take(admin.requests(RequestFilter(request_ids=[request_id])), 1)
    if not found:
        raise CliError(
            f"there is no request {request_id}",
            why="the scheduler never saw it, or no longer remembers it",
            next_step="`batchyard requests list` shows those it remembers",
        )
    return request_row(found[0])


@requests.command()
@click.argument("request_ids", nargs=-1, required=True)
@click.option("--tenant", default="", help="Whose they are, where it is not yours.")
@click.option("--reason", default="", help="Why; kept in the event.")
@server_options
@pass_settings
def cancel(settings: Settings, request_ids: tuple[str, ...], tenant: str, reason: str) -> int:
    """Cancel requests; exit code 5 if only some were found unfinished, 1 if none."""
    cancelled = ask(
        settings,
        lambda client: client.cancel(request_ids, tenant=tenant or None, reason=reason),
    )
    hit = set(cancelled)
    rows = [{"request_id": each, "cancelled": each in hit} for each in request_ids]
    _emit_cancelled(settings, rows)
    missed = [each for each in request_ids if each not in hit]
    if not missed:
        return OK
    note(f"not cancelled, because unknown or finished: {', '.join(missed)}")
    return PARTIAL if hit else FAILURE


def _emit_cancelled(settings: Settings, rows: list[Document]) -> None:
    from batchyard.cli.columns import Column

    columns = (Column("request_id", "REQUEST"), Column("cancelled", "CANCELLED"))
    emit_list(settings, "requests", rows, columns, id_key="request_id", empty="")
