"""`batchyard requests`: list, show, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask, ask_admin, take
from batchyard.cli.commands.explain import show_explanation
from batchyard.cli.failures import FAILURE, OK, PARTIAL, CliError
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import PRIORITIES, pass_settings, reason_option, server_options
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
@click.option("--priority", type=PRIORITIES, help="Only of these: 3, or 1-4; 10 = most urgent.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most to list."
)
@server_options
@pass_settings
def list_requests(
    settings: Settings,
    /,
    states: tuple[str, ...],
    priority: tuple[int, int] | None,
    limit: int,
    **matching: str,
) -> None:
    """List requests, newest first; finished ones as long as they are remembered."""
    from batchyard.cli.views.requests import LIST_COLUMNS, request_row
    from batchyard.v1 import RequestFilter

    least, most = priority or (0, 0)
    chosen = RequestFilter(
        min_priority=least,
        max_priority=most,
        **matching,
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
@click.option("--tenant", default="", help="Whose it is, where two tenants use the id.")
@click.option("--why", is_flag=True, help="Explain it, as `batchyard explain` does.")
@server_options
@pass_settings
def show(settings: Settings, request_id: str, tenant: str, why: bool) -> None:
    """Show one request, with its attempts; with --why the decisions about it."""
    if why:
        show_explanation(settings, request_id, tenant, "en")
        return
    document = ask_admin(settings, lambda admin: _find(admin, request_id, tenant))
    emit_one(settings, document, id_key="request_id")


async def _find(admin: AsyncAdmin, request_id: str, tenant: str) -> Document:
    """All about the request; from a scheduler that does not offer that, its row of the list."""
    from batchyard import errors
    from batchyard.cli.views.requests import request_document, request_row
    from batchyard.v1 import RequestFilter

    try:
        return request_document(await admin.request(request_id, tenant=tenant))
    except errors.UnsupportedFeature:
        chosen = RequestFilter(request_ids=[request_id], tenant=tenant)
        found = await take(admin.requests(chosen), 1)
    if not found:
        raise CliError(
            f"there is no request {request_id}",
            why="the scheduler never saw it, or no longer remembers it",
            next_step="`batchyard requests list` shows those it remembers",
        )
    return request_row(found[0])


@requests.command()
@click.argument("request_ids", nargs=-1)
@click.option("--tenant", default="", help="Only of this tenant.")
@click.option("--model", default="", help="Only for this model.")
@click.option("--node", "node_id", default="", help="Only what runs on this node.")
@click.option("--priority", type=PRIORITIES, help="Only of these: 3, or 1-4; 10 = most urgent.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES[:3]), help="Only in it.")
@click.option("--dry-run", is_flag=True, help="Only say which would be cancelled.")
@reason_option
@server_options
@pass_settings
def cancel(
    settings: Settings,
    /,
    request_ids: tuple[str, ...],
    states: tuple[str, ...],
    priority: tuple[int, int] | None,
    dry_run: bool,
    reason: str,
    **matching: str,
) -> int:
    """Cancel requests, by id or all that match; code 5 if only some ids were open, 1 if none.

    Ids alone go to the client port, where they are yours; all else needs the right to operate.
    """
    from batchyard.v1 import RequestFilter

    least, most = priority or (0, 0)
    chosen = RequestFilter(
        request_ids=request_ids,
        min_priority=least,
        max_priority=most,
        states=[f"REQUEST_STATE_{state.upper()}" for state in states],
        **matching,
    )
    if not chosen.ListFields():
        raise click.UsageError("say which: REQUEST_IDS, --tenant, --model, --node or --priority")
    if dry_run or priority or states or matching["model"] or matching["node_id"] or not request_ids:
        done = ask_admin(
            settings,
            lambda admin: admin.cancel_matching(chosen, reason=reason, validate_only=dry_run),
        )
        hit, count = dict.fromkeys(done.request_ids), done.count
    else:
        tenant = matching["tenant"] or None
        found = ask(settings, lambda c: c.cancel(request_ids, tenant=tenant, reason=reason))
        hit, count = dict.fromkeys(found), len(found)
    shown = [*request_ids, *(each for each in hit if each not in request_ids)]
    rows = [{"request_id": each, "cancelled": each in hit and not dry_run} for each in shown]
    _emit_cancelled(settings, rows)
    if count > len(hit):
        note(f"{count} in all; {len(hit)} are listed")
    missed = [each for each in request_ids if each not in hit]
    if missed:
        note(f"not cancelled, because unknown or finished: {', '.join(missed)}")
        return PARTIAL if hit else FAILURE
    return OK


def _emit_cancelled(settings: Settings, rows: list[Document]) -> None:
    from batchyard.cli.columns import Column

    columns = (Column("request_id", "REQUEST"), Column("cancelled", "CANCELLED"))
    emit_list(settings, "requests", rows, columns, id_key="request_id", empty="nothing matches")
