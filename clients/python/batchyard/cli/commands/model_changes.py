"""`batchyard models load|unload`: change which models a node serves, and see it through."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask_admin, take
from batchyard.cli.failures import OK, CliError
from batchyard.cli.options import pass_settings, reason_option, server_options
from batchyard.cli.output import emit_one, note
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.views.plain import Document
    from batchyard.v1 import Node

POLL_S = 0.25
ACTIVE, LOADING, UNLOADING, GONE = "active", "loading", "unloading", "unloaded"

node_option = click.option("--node", "node_id", required=True, help="The node; see `nodes list`.")
engine_option = click.option("--engine", "engine_id", default="", help="Of several engines: which.")
wait_option = click.option("--wait/--no-wait", default=True, help="Wait until it is done.")


@click.command()
@click.argument("model")
@node_option
@engine_option
@click.option("--options", default="", metavar="JSON", help="A JSON object for the engine.")
@reason_option
@wait_option
@server_options
@pass_settings
def load(
    settings: Settings,
    model: str,
    node_id: str,
    engine_id: str,
    options: str,
    reason: str,
    wait: bool,
) -> int:
    """Load MODEL on a node, where its engine can.

    The node gets requests for it once it has answered a first one. Exit code 1 if that fails.
    """
    wanted = _object(options)

    async def work(admin: AsyncAdmin) -> Document:
        node = await admin.load_model(
            node_id, model, engine_id=engine_id, options=wanted, reason=reason
        )
        return await _follow(admin, node, (model, engine_id), LOADING, wait=wait)

    return _finish(settings, ask_admin(settings, work), ACTIVE, waited=wait)


@click.command()
@click.argument("model")
@node_option
@engine_option
@reason_option
@wait_option
@server_options
@pass_settings
def unload(
    settings: Settings, model: str, node_id: str, engine_id: str, reason: str, wait: bool
) -> int:
    """Unload MODEL from a node: nothing new of it, then it goes.

    What runs there finishes first, within the agent's grace; the rest is moved. Exit code 1 if it
    could not be unloaded.
    """

    async def work(admin: AsyncAdmin) -> Document:
        node = await admin.unload_model(node_id, model, engine_id=engine_id, reason=reason)
        return await _follow(admin, node, (model, engine_id), UNLOADING, wait=wait)

    return _finish(settings, ask_admin(settings, work), GONE, waited=wait)


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError as fault:
        raise click.BadParameter(f"not JSON: {fault}", param_hint="--options") from None
    if not isinstance(value, dict):
        raise click.BadParameter('write an object: \'{"file": "x.gguf"}\'', param_hint="--options")
    return value


async def _follow(
    admin: AsyncAdmin, node: Node, which: tuple[str, str], passing: str, *, wait: bool
) -> Document:
    """The model's state on the node; `wait`: once it is no longer `passing`."""
    found = _row(node, which)
    told = False
    while wait and found["state"] == passing:
        if not told:
            note(f"{which[0]} on {node.node_id} is {passing}")
            told = True
        await asyncio.sleep(POLL_S)
        found = _row(await admin.node(node.node_id), which)
    found["failure"] = await _failure(admin, found, passing) if wait else None
    return found


def _row(node: Node, which: tuple[str, str]) -> Document:
    from batchyard.v1 import ModelState

    model, engine_id = which
    engines = [e for e in node.report.engines if engine_id in ("", e.engine_id)]
    row: Document = {"node_id": node.node_id, "engine_id": engine_id, "model": model, "state": GONE}
    for engine in engines:
        for each in engine.models:
            if each.model == model and each.state != ModelState.MODEL_STATE_AVAILABLE:
                row["engine_id"] = engine.engine_id
                row["state"] = ModelState.Name(each.state).removeprefix("MODEL_STATE_").lower()
    return row


async def _failure(admin: AsyncAdmin, found: Document, passing: str) -> str | None:
    """What the last event of it says, if it did not go as it was to."""
    wanted = ACTIVE if passing == LOADING else GONE
    if found["state"] == wanted:
        return None
    events = await take(admin.events(events=["model_failed"], node_id=str(found["node_id"])), 20)
    texts = (event.message for event in events if event.pool == found["model"])
    return next(texts, "it did not come to it; see `batchyard events list`")


def _finish(settings: Settings, found: Document, wanted: str, *, waited: bool) -> int:
    failure = found.pop("failure")
    if failure is not None:
        raise CliError(
            f"{found['model']} on {found['node_id']} is {found['state']}, not {wanted}",
            why=str(failure),
            next_step=f"batchyard events list --node {found['node_id']}",
        )
    emit_one(settings, {**found, "waited": waited}, id_key="model")
    return OK
