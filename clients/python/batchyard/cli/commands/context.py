"""`batchyard context`: schedulers by name, so that how to reach them need not be typed."""

from __future__ import annotations

from pathlib import Path

import click

from batchyard.cli import contexts
from batchyard.cli.columns import Column
from batchyard.cli.options import output_option, pass_settings, server_options
from batchyard.cli.output import emit_list
from batchyard.cli.settings import Settings, contexts_path

_COLUMNS = (
    Column("name", "CONTEXT", cut=True),
    Column("current", "CURRENT"),
    Column("address", "ADDRESS", cut=True),
    Column("admin_address", "ADMIN ADDRESS", cut=True),
    Column("tls_ca", "TLS", cut=True),
    Column("token_file", "TOKEN FILE", cut=True),
)
_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


@click.group()
def context() -> None:
    """Remember schedulers by name; --address and BATCHYARD_ADDRESS win over the current one."""


@context.command()
@click.argument("name")
@click.option("--token-file", type=_FILE, metavar="FILE", help="Holds the token to call with.")
@click.option("--tls-ca", metavar="FILE|system|off",
    help="Who signs the scheduler's certificate; `system`: the machine's own authorities; `off`: "
    "plain text, though a token goes with it.")  # fmt: skip
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="A client certificate, and its ...")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="... key.")
@server_options
@pass_settings
def save(
    settings: Settings,
    name: str,
    token_file: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Store how a scheduler is reached as NAME, and make it current. Of secrets only the names of
    their files are stored.
    """
    if not settings.address:
        raise click.UsageError("say which scheduler: --address HOST:PORT")
    if bool(tls_cert) != bool(tls_key):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both")
    if tls_ca not in (None, "system", "off"):
        if not Path(tls_ca).is_file():
            raise click.UsageError(f"--tls-ca {tls_ca}: there is no such file")
        tls_ca = str(Path(tls_ca).resolve())
    path = contexts_path()
    stored = contexts.load(path)
    stored.contexts[name] = contexts.Context(
        settings.address, settings.admin_address, token_file, tls_ca, tls_cert, tls_key
    )
    stored.current = name
    contexts.save(path, stored)
    print(f"{name}: {settings.address} (current)")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME current."""
    path = contexts_path()
    address = contexts.named(path, name).address
    stored = contexts.load(path)
    stored.current = name
    contexts.save(path, stored)
    print(f"{name}: {address} (current)")


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
            "tls_ca": entry.tls_ca or ("system" if entry.tls_cert else None),
            "token_file": entry.token_file,
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
