"""`batchyard context`: schedulers by name, so that their addresses need not be typed."""

from __future__ import annotations

import click

from batchyard.cli import contexts
from batchyard.cli.columns import Column
from batchyard.cli.failures import CliError
from batchyard.cli.options import output_option, pass_settings, server_options
from batchyard.cli.output import emit_list
from batchyard.cli.settings import Settings, contexts_path

_COLUMNS = (
    Column("name", "CONTEXT", cut=True),
    Column("current", "CURRENT"),
    Column("address", "ADDRESS", cut=True),
    Column("admin_address", "ADMIN ADDRESS", cut=True),
)


@click.group()
def context() -> None:
    """Remember schedulers by name; --address and BATCHYARD_ADDRESS win over the current one."""


@context.command()
@click.argument("name")
@server_options
@pass_settings
def save(settings: Settings, name: str) -> None:
    """Store the addresses given by --address and --admin-address as NAME, and make it current."""
    if not settings.address:
        raise click.UsageError("say which scheduler: --address HOST:PORT")
    path = contexts_path()
    stored = contexts.load(path)
    stored.contexts[name] = contexts.Context(settings.address, settings.admin_address)
    stored.current = name
    contexts.save(path, stored)
    print(f"{name}: {settings.address} (current)")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME current."""
    path = contexts_path()
    stored = contexts.load(path)
    if name not in stored.contexts:
        raise CliError(
            f"there is no context {name!r}",
            why=f"known: {', '.join(sorted(stored.contexts)) or 'none'}",
            next_step=f"batchyard context save {name} --address HOST:PORT",
        )
    stored.current = name
    contexts.save(path, stored)
    print(f"{name}: {stored.contexts[name].address} (current)")


@context.command(name="list")
@output_option
@pass_settings
def list_contexts(settings: Settings) -> None:
    """List the stored contexts."""
    stored = contexts.load(contexts_path())
    rows = [
        {
            "name": name,
            "current": name == stored.current,
            "address": entry.address,
            "admin_address": entry.admin_address,
        }
        for name, entry in sorted(stored.contexts.items())
    ]
    emit_list(
        settings,
        "contexts",
        rows,
        _COLUMNS,
        id_key="name",
        empty="no contexts; batchyard context save NAME --address HOST:PORT",
    )
