"""`batchyard models`: what can be asked for, and on which nodes."""

from __future__ import annotations

import click

from batchyard.cli.asks import ask, take
from batchyard.cli.commands.model_changes import load, unload
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import pass_settings, server_options
from batchyard.cli.output import emit_list
from batchyard.cli.settings import Settings


@click.group(cls=NounGroup)
def models() -> None:
    """List the models that can be asked for, load and unload them."""


@models.command(name="list")
@server_options
@pass_settings
def list_models(settings: Settings) -> None:
    """List the models over all nodes."""
    from batchyard.cli.views.models import LIST_COLUMNS, model_document

    found = ask(settings, lambda client: take(client.list_models()))
    emit_list(
        settings,
        "models",
        [model_document(model) for model in found],
        LIST_COLUMNS,
        id_key="model",
        empty="no models; start a node: batchyard agent -c agent.yaml",
    )


models.add_command(load)
models.add_command(unload)
