"""`batchyard doctor`: is anything wrong with this host's service and the way to it?"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard.cli.failures import FAILURE, OK, USAGE, CliError
from batchyard.cli.options import pass_settings, server_options
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard.cli.views.plain import Document

SCHEDULER, AGENT = "scheduler", "agent"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--agent",
    "as_agent",
    is_flag=True,
    help="Check this host as a node; what follows are options of `batchyard agent`, as -c FILE.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[AGENT OPTIONS]...")
@server_options
@pass_settings
def doctor(settings: Settings, as_agent: bool, arguments: tuple[str, ...]) -> int:
    """Check the scheduler and the way to it, or with --agent this host as a node.

    Where neither is said, by what is set up here: an agent.yaml makes it a node's host, a
    scheduler.yaml, or none of them, a scheduler's. Exit code 1 if anything fails.
    """
    from batchyard.cli.columns import Column
    from batchyard.cli.output import emit_list

    if arguments and not as_agent:
        raise click.UsageError(
            f"no such option or argument: {arguments[0]} (did you mean --agent?)"
        )
    roles = {AGENT} if as_agent else roles_of(os.environ)
    if settings.address or settings.admin_address or settings.context:
        roles = roles if as_agent else {SCHEDULER}
    rows: list[Document] = []
    if SCHEDULER in roles:
        from batchyard.cli.checkup import checkup

        rows += checkup(settings)
    if AGENT in roles:
        rows += _agent(arguments)
    columns = (
        Column(
            "result", "", pick=lambda row: {"ok": "✓", "warning": "!", "failed": "✗"}[row["result"]]
        ),
        Column("check", "CHECK"),
        Column("says", "SAYS", fold=True),
        Column("fix", "WHAT TO DO", fold=True),
    )
    emit_list(settings, "checks", rows, columns, id_key="check", empty="")
    return FAILURE if any(row["result"] == "failed" for row in rows) else OK


def roles_of(environ: Mapping[str, str]) -> set[str]:
    """What this host is, by the configuration files in their usual places."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    folders = (Path(home) / "batchyard", Path("/etc/batchyard"))
    names = (SCHEDULER, AGENT)
    found = {n for n in names if any((folder / f"{n}.yaml").is_file() for folder in folders)}
    return found or {SCHEDULER}


def _agent(arguments: tuple[str, ...]) -> list[Document]:
    """What the agent's own doctor finds; it needs the agent's code, which a client lacks."""
    from batchyard.cli.installed import python_module, require_services

    require_services("node_agent")
    done = subprocess.run(
        [*python_module("node_agent"), "--doctor=json", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        rows: list[Document] = json.loads(done.stdout)
    except ValueError:
        why = (done.stderr or done.stdout).strip()
        code = USAGE if done.returncode == USAGE else FAILURE
        raise CliError("the agent's doctor could not look", why=why, exit_code=code) from None
    return rows
