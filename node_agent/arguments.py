"""What can be said on the command line of `python -m node_agent`?

Every key of the file can be set by `--set section.key=value`; the common ones have flags.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MANAGED_LABEL = "batchyard.managed"


@dataclass(slots=True, frozen=True, kw_only=True)
class Arguments:
    """The command line, understood."""

    config: Path | None
    flags: dict[str, Any]  # nested, as in the file
    check: bool
    doctor: str  # form of what it says; empty: it is not asked
    show: bool
    exit_with_stdin: bool


def parse(argv: list[str] | None = None) -> Arguments:
    """Read the command line; exits with 2 and a usage message if it cannot be understood."""
    parser = _parser()
    options = parser.parse_args(argv)
    flags: dict[str, Any] = {}
    for key, value in vars(options).items():
        if key.startswith("to_") and value is not None:
            _put(flags, key.removeprefix("to_").split("__"), value)
    for label in options.label:
        name, _, value = label.partition("=")
        _put(flags, ["labels", name], value)
    if options.managed:
        _put(flags, ["labels", MANAGED_LABEL], "true")
    if options.engines:
        flags["engines"] = options.engines
    for name, value in options.set:
        try:
            _put(flags, name.split("."), value)
        except ValueError as fault:
            parser.error(f"--set {name}: {fault}")
    check = options.check_config
    config = check if isinstance(check, Path) else options.config
    return Arguments(
        config=config,
        flags=flags,
        check=bool(check),
        doctor=options.doctor or "",
        show=options.show_config,
        exit_with_stdin=options.exit_with_stdin,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="batchyard agent",
        description="Runs engines and works for a Batchyard scheduler.",
        epilog="Precedence: flag > env BATCHYARD_AGENT__SECTION__KEY > file > default. "
        "Exit codes: 0 drained, 1 failure, 2 usage or configuration, 3 node id in use.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-c", "--config", type=Path, metavar="FILE",
        help="agent.yaml; else ~/.config/batchyard, else /etc/batchyard")  # fmt: skip
    add("--scheduler", dest="to_scheduler__address", metavar="ADDRESS",
        help="host:port of the scheduler's node port (default 127.0.0.1:7612)")  # fmt: skip
    add("--insecure", dest="to_scheduler__insecure", action="store_const", const=True,
        help="dial others than loopback in plain text")  # fmt: skip
    add("--token-file", dest="to_scheduler__token_file", metavar="FILE",
        help="holds the join token")  # fmt: skip
    add("--node-id", dest="to_node_id", metavar="ID", help="stable name of this node")
    add("--engine", dest="engines", action=_AddEngine, metavar="KIND", default=[],
        help="run an engine of this kind, not those of the file; may be repeated")  # fmt: skip
    add("--engine-option", dest="engines", action=_AddOption, metavar="KEY=VALUE",
        help="option of the --engine before it (also `id`); the value is YAML")  # fmt: skip
    add("--url", dest="engines", action=_AddUrl, metavar="URL",
        help="where the --engine before it is reached, as http://127.0.0.1:8000; without one, "
        "an OpenAI-compatible server (openai); may be repeated")  # fmt: skip
    add("--pool", dest="to_pool", metavar="POOL", help="pool that the operator assigns")
    add("--role", dest="to_role", choices=("primary", "backup"), help="default: primary")
    add("--zone", dest="to_zone", metavar="ZONE", help="failure zone")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="a label of the node")
    add("--drain-grace", dest="to_drain_grace", metavar="TIME", help='default: "30s"')
    add("--log-format", dest="to_log__format", choices=("auto", "json", "text"))
    add("--log-level", dest="to_log__level",
        choices=("error", "warning", "info", "debug", "trace"))  # fmt: skip
    add("--managed", action="store_true",
        help=f"started by an autoscaler: sets the label {MANAGED_LABEL}=true")  # fmt: skip
    add("--set", action=_AddSetting, default=[], metavar="KEY=VALUE",
        help="any key of the file, dotted; the value is YAML")  # fmt: skip
    add("--check-config", nargs="?", const=True, type=Path, metavar="FILE",
        help="check the configuration (of FILE) and exit: 0 good, 1 not")  # fmt: skip
    add("--doctor", nargs="?", const="text", choices=("text", "json"),
        help="look at the engines, GPUs and the scheduler, say what to mend, and exit")  # fmt: skip
    add("--show-config", action="store_true",
        help="print every value in force and where it comes from, and exit")  # fmt: skip
    add("--exit-with-stdin", action="store_true",
        help="exit when standard input closes, so that no orphan stays behind")  # fmt: skip
    return parser


def _put(into: dict[str, Any], keys: list[str], value: Any) -> None:
    """Raises ValueError: something on the way has a value already, or is a list."""
    for key in keys[:-1]:
        into = into.setdefault(key, {})
        if not isinstance(into, dict):
            how = "use --engine-option" if key == "engines" else "it has a value of its own"
            raise ValueError(f"{key!r} takes no keys here: {how}")
    into[keys[-1]] = value


def _setting(parser: argparse.ArgumentParser, text: str, flag: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found or not name:
        parser.error(f"{flag}: write KEY=VALUE, not {text!r}")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        parser.error(f"{flag}: the value of {name!r} is not YAML")


class _AddEngine(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        del parser, option_string
        engines = [*getattr(namespace, self.dest), {"kind": values}]
        setattr(namespace, self.dest, engines)


class _AddOption(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        engines = getattr(namespace, self.dest)
        if not engines:
            parser.error(f"{option_string} belongs after an --engine")
        name, value = _setting(parser, values, option_string)
        engines[-1][name] = value


class _AddUrl(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        del parser, option_string
        engines = getattr(namespace, self.dest)
        if not engines or "url" in engines[-1]:  # nothing but a URL is needed
            engines = [*engines, {"kind": "openai"}]
            setattr(namespace, self.dest, engines)
        engines[-1]["url"] = values


class _AddSetting(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        settings = [*getattr(namespace, self.dest), _setting(parser, values, option_string)]
        setattr(namespace, self.dest, settings)
