"""What can be said to `batchyard tokens` and `batchyard certs`?

They work on files, with or without a running scheduler, which notices a change within a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scheduler_service import config_sources
from scheduler_service.security import certs_commands, tokens_commands
from scheduler_service.security.grants import GrantsError
from scheduler_service.security.principals import GRANTABLE
from service_kit.secret_files import SecretFileError
from service_kit.units import duration_s

_RIGHTS = ", ".join(GRANTABLE)


def run(argv: Sequence[str]) -> int:
    """Run one command; the exit code."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except (GrantsError, SecretFileError, certs_commands.CertsError, OSError) as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="batchyard", allow_abbrev=False)
    areas = parser.add_subparsers(required=True, metavar="tokens|certs")
    tokens = areas.add_parser("tokens", help="who may do what", allow_abbrev=False)
    certs = areas.add_parser("certs", help="certificates of a first installation")
    _add_tokens(tokens.add_subparsers(required=True, metavar="create|join|list|revoke"))
    _add_certs(certs.add_subparsers(required=True, metavar="init|node|client|server|revoke"))
    return parser


def _add_tokens(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    create = _command(actions, "create", tokens_commands.create, "of a client or operator")
    create.add_argument("principal", help="who it is for; also names it in events")
    create.add_argument("--right", action="append", dest="rights", choices=sorted(GRANTABLE),
        help=f"may be repeated: {_RIGHTS} (default: use); admin implies operate, which implies "
        "read")  # fmt: skip
    create.add_argument("--tenant", action="append", dest="tenants", metavar="TENANT",
        help="may be repeated; requests that name none get the first (default: any)")  # fmt: skip
    create.add_argument("--model", action="append", dest="models", metavar="MODEL",
        help="may be repeated (default: all)")  # fmt: skip
    create.add_argument("--max-priority", type=int, default=10, metavar="1..10",
        help="10 = most urgent (default)")  # fmt: skip
    create.add_argument("--certificate", action="store_true",
        help="no token: the client certificate of that name is the proof")  # fmt: skip
    _add_life(create, "how long it is valid (default: until revoked)", None)
    join = _command(actions, "join", tokens_commands.join, "that lets agents in")
    join.add_argument("--uses", type=int, default=1, metavar="N",
        help="how many nodes it admits (default 1); each can come back with it")  # fmt: skip
    _add_life(join, "how long it admits new nodes (default 1h)", "1h")
    listing = _command(actions, "list", tokens_commands.show, "all there are, without secrets")
    listing.add_argument("-o", "--output", choices=("table", "json"), default="table")
    revoke = _command(actions, "revoke", tokens_commands.revoke, "ends it within a second")
    revoke.add_argument("id", help="or the beginning of it; see the list")
    _add_reason(revoke)


def _add_life(command: argparse.ArgumentParser, text: str, default: str | None) -> None:
    _add_reason(command)
    command.add_argument("--label", default="", help="for people")
    command.add_argument("--expires-in", type=_seconds, metavar="TIME", help=text,
        default=None if default is None else _seconds(default))  # fmt: skip
    command.add_argument("--out", type=Path, metavar="FILE",
        help="write the token there, for its owner only, instead of showing it")  # fmt: skip


def _add_certs(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    init = _certs(actions, "init", certs_commands.init, "an authority and first certificates")
    init.add_argument("--host", action="append", dest="hosts", metavar="NAME",
        help="name or address of the scheduler; may be repeated (default: this host and "
        "loopback)")  # fmt: skip
    init.add_argument("--node", action="append", dest="nodes", default=[], metavar="ID",
        help="also a certificate for this agent; may be repeated")  # fmt: skip
    server = _certs(actions, "server", certs_commands.server, "a new one for the scheduler")
    server.add_argument("hosts", nargs="+", metavar="NAME", help="its names and addresses")
    node = _certs(actions, "node", certs_commands.node, "for an agent, whose node id it fixes")
    node.add_argument("nodes", nargs="+", metavar="ID")
    client = _certs(actions, "client", certs_commands.client, "for a client or operator")
    client.add_argument("names", nargs="+", metavar="PRINCIPAL")
    revoke = _command(actions, "revoke", certs_commands.revoke, "a certificate that got lost")
    revoke.add_argument("certificate", type=Path, help="its PEM file")
    _add_reason(revoke)


def _add_reason(command: argparse.ArgumentParser) -> None:
    command.add_argument("--reason", default="", metavar="TEXT",
        help="why; kept with your user's name, and told in an event")  # fmt: skip


def _certs(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: object,
    text: str,
) -> argparse.ArgumentParser:
    command = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    command.add_argument("--dir", type=Path, default=Path("certs"), metavar="FOLDER",
        help="where they are (default: certs)")  # fmt: skip
    command.add_argument("--valid-for", type=_seconds, default=_seconds("90d"), metavar="TIME",
        help="of new certificates (default 90d)")  # fmt: skip
    return command


def _command(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: object,
    text: str,
) -> argparse.ArgumentParser:
    command = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    command.add_argument("--file", type=Path, metavar="FILE",
        help="the scheduler's auth.file; else that of its configuration")  # fmt: skip
    command.add_argument("-c", "--config", type=Path, metavar="FILE", help="scheduler.yaml")
    return command


def grants_path(options: argparse.Namespace) -> Path:
    """The file that a command is about.

    Raises:
        GrantsError: none is named.
    """
    if options.file is not None:
        return Path(options.file)
    try:
        loaded = config_sources.load(options.config, environ=os.environ)
    except config_sources.ConfigError as fault:
        raise GrantsError(f"the scheduler's configuration cannot be used:\n{fault}") from None
    if loaded.config.auth.file is None:
        raise GrantsError("name the file: --file FILE, or auth.file in scheduler.yaml")
    return loaded.config.auth.file


def _seconds(text: str) -> float:
    try:
        seconds = duration_s(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError("must be above zero")
    return seconds
