"""`batchyard config`: what the service itself says of its file, without starting it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from batchyard.cli.columns import Column
from batchyard.cli.failures import FAILURE, OK
from batchyard.cli.installed import python_module, require_services
from batchyard.cli.options import output_option, pass_settings
from batchyard.cli.output import emit_list, emit_one
from batchyard.cli.settings import Settings

_MODULES = {"scheduler": "scheduler_service", "agent": "node_agent"}


@click.group()
def config() -> None:
    """Check a configuration file, or show what is in force."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--role",
    type=click.Choice(sorted(_MODULES)),
    help="Whose file it is; needed unless its name begins with scheduler or agent.",
)
@output_option
@pass_settings
def check(settings: Settings, file: Path, role: str | None) -> int:
    """Report every error of FILE at once; exit code 0: it is valid, 1: it is not."""
    role = role or _role_of(file)
    module = _MODULES[role]
    require_services(module)
    done = subprocess.run(
        [*python_module(module), "--check-config", str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=settings.output is not None,
        text=True,
        check=False,
    )
    if settings.output is not None:
        messages = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        document = {"file": str(file), "role": role, "valid": done.returncode == 0}
        emit_one(settings, {**document, "messages": messages}, id_key="file")
    return OK if done.returncode == 0 else FAILURE


@config.command()
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--role", type=click.Choice(sorted(_MODULES)), help="Whose configuration it is.")
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@click.option("--all", "everything", is_flag=True, help="Defaults, too.")
@output_option
@pass_settings
def show(
    settings: Settings, file: Path | None, role: str | None, origin: bool, everything: bool
) -> int:
    """Show the values in force: of FILE, the environment and, with --all, the defaults.

    What may be a secret is masked. Without FILE, the file that the service would find.
    """
    role = role or (_role_of(file) if file is not None else "scheduler")
    module = _MODULES[role]
    require_services(module)
    named = ["-c", str(file)] if file is not None else []
    command = [*python_module(module), *named, "--show-config"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        click.echo(done.stderr or done.stdout, err=True, nl=False)
        return FAILURE
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    rows = [{"key": key, "value": value, "origin": where} for key, value, where in lines]
    if not everything:
        rows = [row for row in rows if row["origin"] != "default"]
    columns = [Column("key", "KEY"), Column("value", "VALUE", fold=True)]
    columns += [Column("origin", "FROM", fold=True)] if origin else []
    emit_list(settings, "values", rows, columns, id_key="key", empty="all values are defaults")
    return OK


def _role_of(file: Path) -> str:
    for role in _MODULES:
        if file.name.startswith(role):
            return role
    raise click.UsageError(
        f"cannot tell from the name {file.name!r} whose file it is: add --role scheduler or "
        "--role agent"
    )
