"""`batchyard demo`: hands over to `batchyard.cli.demo`, with its own options."""

from __future__ import annotations

import importlib
from typing import Any

import click

from batchyard.cli.failures import CliError

_MODULE = "batchyard.cli.demo"
_PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def demo(ctx: click.Context, arguments: tuple[str, ...]) -> Any:
    """Play a peak of requests and show every decision."""
    try:
        command = importlib.import_module(_MODULE).demo
    except ModuleNotFoundError as error:
        if error.name != _MODULE:
            raise
        raise CliError(
            "this installation has no demo",
            why=f"the module {_MODULE} is not part of it",
            next_step="batchyard dev, and in another terminal: batchyard run 'Hello' --stream",
        ) from error
    return command.main(
        list(arguments), prog_name=ctx.command_path, standalone_mode=False, obj=ctx.obj
    )
