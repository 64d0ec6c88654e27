"""Commands that become another program, with its options: the services, their tools, the simulator.

`batchyard scheduler|agent|tokens|certs|simulate|plan|replay`.
"""

from __future__ import annotations

import os
import sys

import click

from batchyard.cli.installed import python_module, require_services

# `--help` goes through too: the service's own parser knows its options.
_PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def scheduler(arguments: tuple[str, ...]) -> None:
    """Run the scheduler service: batchyard scheduler -c scheduler.yaml."""
    _become("scheduler_service", arguments)


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Run a node agent: batchyard agent -c agent.yaml."""
    _become("node_agent", arguments)


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tokens(arguments: tuple[str, ...]) -> None:
    """Who may do what: batchyard tokens create|join|list|revoke."""
    _become("scheduler_service.security", ("tokens", *arguments))


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def certs(arguments: tuple[str, ...]) -> None:
    """Certificates of a first installation: batchyard certs init|server|node|client|revoke."""
    _become("scheduler_service.security", ("certs", *arguments))


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: tuple[str, ...]) -> None:
    """Compare policies: batchyard simulate --trace FILE --nodes 8xH100-70B --policy a.yaml."""
    _become("simulator.commands", ("simulate", *arguments))


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def plan(arguments: tuple[str, ...]) -> None:
    """How many nodes: batchyard plan --trace FILE --kinds H100-70B,A100-70B --slo-wait 3s."""
    _become("simulator.commands", ("plan", *arguments))


@click.command(context_settings=_PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def replay(arguments: tuple[str, ...]) -> None:
    """Run a recording again: batchyard replay FILE [--policy new.yaml]."""
    _become("simulator.commands", ("replay", *arguments))


def _become(module: str, arguments: tuple[str, ...]) -> None:
    """Replace this process, so that signals and the exit code are the service's own."""
    require_services(module.partition(".")[0])
    sys.stdout.flush()
    os.execv(sys.executable, [*python_module(module), *arguments])
