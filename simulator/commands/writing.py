"""Where do the answers go, and in which form? Standard output, and JSON and a page into files.

Forms are those of every command of the CLI: a table on a terminal, tab-separated values in a pipe,
unless one is asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.commands import whole

FORMS: Final = ("table", "wide", "json", "yaml", "name")

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command found, in every form that may be asked for; made when it is."""

    document: Mapping[str, Any]  # of JSON and YAML
    table: Callable[[bool], str]  # for people; True: with all that is known
    names: Callable[[], Sequence[str]]  # what `-o name` prints
    rows: Callable[[], Mapping[str, Rows]]  # for a pipe; lists by name
    page: Callable[[], str]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of every command."""
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", choices=FORMS,
                       help="what is printed; default table, and tab-separated values in a pipe; "
                       "wide: all that is known; name: names only")  # fmt: skip
    group.add_argument("--out", type=target, metavar="FILE", help="write everything there, as JSON")
    group.add_argument("--html", type=target, metavar="FILE",
                       help="write a report with plots there, all in one file")  # fmt: skip
    group.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def target(text: str) -> Path:
    """A file to write. What is wrong with it is told before the long work, not after it.

    Raises:
        argparse.ArgumentTypeError: nothing can be written there.
    """
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def file(text: str) -> Path:
    """A `target` that is a file, or is to be one.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    path = target(text)
    if path.exists() and not path.is_file():
        raise argparse.ArgumentTypeError(f"{text} is no file but a device or the like")
    return path


def write(options: argparse.Namespace, answer: Answer) -> None:
    """All that was asked for."""
    if options.out is not None:
        whole.write(options.out, _json(answer.document))
    if options.html is not None:
        whole.write(options.html, answer.page())
    form = options.output or ("table" if sys.stdout.isatty() else "tsv")
    if form == "json":
        sys.stdout.write(_json(answer.document))
    elif form == "yaml":
        import yaml

        yaml.safe_dump(
            json.loads(_json(answer.document)), sys.stdout, sort_keys=False, allow_unicode=True
        )
    elif form == "name":
        sys.stdout.writelines(f"{name}\n" for name in answer.names())
    elif form == "tsv":
        sys.stdout.writelines(f"{line}\n" for line in tsv(answer.rows()))
    else:
        print(answer.table(form == "wide"))


def tsv(lists: Mapping[str, Rows]) -> Sequence[str]:
    """A line of keys, then one for each row; where there are several lists, each below its name."""
    lines: list[str] = []
    for name, rows in lists.items():
        if len(lists) > 1:
            lines.append(f"# {name}")
        if rows:
            lines.append("\t".join(rows[0]))
            lines += ["\t".join(map(_cell, row.values())) for row in rows]
    return lines


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).translate({9: " ", 10: " ", 13: " "})


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
