"""What can be said on the command line of `python -m scheduler_service`?"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True, frozen=True, kw_only=True)
class Arguments:
    """The command line, understood."""

    config: Path | None
    flags: list[str]  # "section.key=value"
    check: bool
    show: bool
    doctor: bool
    exit_with_stdin: bool


def parse(argv: list[str] | None = None) -> Arguments:
    """Read the command line; exits with 2 and a usage message if it cannot be understood."""
    options = _parser().parse_args(argv)
    flags = list(options.set)
    for name, path in _PATHS.items():
        value = getattr(options, name)
        if value is not None:
            # In quotes where it is text: values are read as YAML, to which :: is no text.
            text = json.dumps(value) if isinstance(value, str) else value
            flags.append(f"{path}={text}")
    if options.port_base is not None:
        base = options.port_base
        ports = {"http": base, "client": base + 1, "node": base + 2, "admin": base + 3}
        flags = [f"listen.{name}_port={port}" for name, port in ports.items()] + flags
    if options.insecure:
        flags.append("listen.insecure=true")
    check = options.check_config
    return Arguments(
        config=check if isinstance(check, Path) else options.config,
        flags=flags,
        check=bool(check),
        show=options.show_config,
        doctor=options.doctor,
        exit_with_stdin=options.exit_with_stdin,
    )


_PATHS = {
    "listen_host": "listen.host",
    "client_port": "listen.client_port",
    "node_port": "listen.node_port",
    "admin_port": "listen.admin_port",
    "http_port": "listen.http_port",
    "state_dir": "state_dir",
    "log_format": "log.format",
    "log_level": "log.level",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="batchyard scheduler",
        description="Queues, batches, places and fails over inference requests.",
        epilog="Precedence: flag > env BATCHYARD_SCHEDULER__SECTION__KEY > file > default. "
        "Exit codes: 0 stopped, 1 failure, 2 usage or configuration.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-c", "--config", type=Path, metavar="FILE",
        help="scheduler.yaml; else ~/.config/batchyard, else /etc/batchyard")  # fmt: skip
    add("--listen-host", metavar="HOST", help="address to bind (default 127.0.0.1)")
    add("--insecure", action="store_true",
        help="bind other addresses than loopback without TLS and authentication")  # fmt: skip
    add("--port-base", type=int, metavar="N",
        help="HTTP on N, clients N+1, nodes N+2, admin N+3 (default 7610)")  # fmt: skip
    for kind in ("client", "node", "admin", "http"):
        add(f"--{kind}-port", type=int, metavar="PORT", help="0 takes any free port")
    add("--state-dir", metavar="FOLDER", help="keeps the cluster id and the term over restarts")
    add("--log-format", choices=("auto", "json", "text"))
    add("--log-level", choices=("error", "warning", "info", "debug", "trace"))
    add("--set", action="append", default=[], metavar="KEY=VALUE",
        help="any key of the file, dotted; the value is YAML")  # fmt: skip
    add("--show-config", action="store_true",
        help="print every value in force and where it comes from, and exit")  # fmt: skip
    add("--doctor", action="store_true",
        help="look at addresses, stores, clock, telemetry and settings, say what to do, and exit: "
        "0 nothing fails, 1 something does")  # fmt: skip
    add("--exit-with-stdin", action="store_true", help="stop when standard input closes")
    add("--check-config", nargs="?", const=True, type=Path, metavar="FILE",
        help="check the configuration (of FILE) and exit: 0 good, 1 not")  # fmt: skip
    return parser
