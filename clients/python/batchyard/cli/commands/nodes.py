"""`batchyard nodes`: list, show, cordon, uncordon, drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchyard.cli.asks import ask_admin, take
from batchyard.cli.commands.drain import drain
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import pass_settings, reason_option, server_options
from batchyard.cli.output import emit_list, emit_one
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard.v1 import Node


@click.group(cls=NounGroup)
def nodes() -> None:
    """List nodes, show one, and let it work or not."""


@nodes.command(name="list")
@click.option("--pool", default="", help="Only nodes of this pool.")
@server_options
@pass_settings
def list_nodes(settings: Settings, pool: str) -> None:
    """List the nodes."""
    from batchyard.cli.views.nodes import LIST_COLUMNS, node_document

    found = ask_admin(settings, lambda admin: take(admin.nodes(pool=pool)))
    emit_list(
        settings,
        "nodes",
        [node_document(node) for node in found],
        LIST_COLUMNS,
        id_key="node_id",
        empty="no nodes; start one: batchyard agent -c agent.yaml",
    )


@nodes.command()
@click.argument("node_id")
@server_options
@pass_settings
def show(settings: Settings, node_id: str) -> None:
    """Show all that is known of a node."""
    from batchyard.cli.views.nodes import node_document

    node = ask_admin(settings, lambda admin: admin.node(node_id))
    emit_one(settings, node_document(node), id_key="node_id")


@nodes.command()
@click.argument("node_id")
@reason_option
@server_options
@pass_settings
def cordon(settings: Settings, node_id: str, reason: str) -> None:
    """Give the node no new work; running work goes on."""
    _emit_row(settings, ask_admin(settings, lambda admin: admin.cordon(node_id, reason=reason)))


@nodes.command()
@click.argument("node_id")
@reason_option
@server_options
@pass_settings
def uncordon(settings: Settings, node_id: str, reason: str) -> None:
    """Give the node work again."""
    _emit_row(settings, ask_admin(settings, lambda admin: admin.uncordon(node_id, reason=reason)))


def _emit_row(settings: Settings, node: Node) -> None:
    """The node as it is now: its row of the list; the whole document for programs."""
    from batchyard.cli.views.nodes import LIST_COLUMNS, node_document

    document = node_document(node)
    if settings.format() in ("json", "yaml", "name"):
        emit_one(settings, document, id_key="node_id")
    else:
        emit_list(settings, "nodes", [document], LIST_COLUMNS, id_key="node_id", empty="")


nodes.add_command(drain)
