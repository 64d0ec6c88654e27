"""Where do the answers go? A table or JSON to standard output, JSON and a page into files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of every command."""
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table",
                       help="what is printed; default table")  # fmt: skip
    group.add_argument("--out", type=Path, metavar="FILE", help="write everything there, as JSON")
    group.add_argument("--html", type=Path, metavar="FILE",
                       help="write a report with plots there, all in one file")  # fmt: skip
    group.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def write(
    options: argparse.Namespace,
    document: Mapping[str, Any],
    *,
    table: Callable[[], str],
    page: Callable[[], str],
) -> None:
    """All that was asked for."""
    if options.out is not None:
        options.out.write_text(_json(document), encoding="utf-8")
    if options.html is not None:
        options.html.write_text(page(), encoding="utf-8")
    if options.output == "json":
        sys.stdout.write(_json(document))
    elif options.output == "yaml":
        import yaml

        yaml.safe_dump(json.loads(_json(document)), sys.stdout, sort_keys=False)
    else:
        print(table())


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
