"""`batchyard config check`: the service's own check of its file, without starting it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from batchyard.cli.failures import FAILURE, OK
from batchyard.cli.installed import python_module, require_services
from batchyard.cli.options import output_option, pass_settings
from batchyard.cli.output import emit_one
from batchyard.cli.settings import Settings

_MODULES = {"scheduler": "scheduler_service", "agent": "node_agent"}


@click.group()
def config() -> None:
    """Check a configuration file."""


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


def _role_of(file: Path) -> str:
    for role in _MODULES:
        if file.name.startswith(role):
            return role
    raise click.UsageError(
        f"cannot tell from the name {file.name!r} whose file it is: add --role scheduler or "
        "--role agent"
    )
