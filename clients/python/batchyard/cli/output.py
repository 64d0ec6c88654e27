"""Writes documents in the form that was asked for: table, wide, tsv, json, yaml or name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from batchyard.cli.columns import Column, Document, text
from batchyard.cli.settings import Settings

PIPE_WIDTH = 200
WHOLE_WIDTH = 4_000

if TYPE_CHECKING:
    from rich.console import Console

    from batchyard.cli.grid import Grid


def emit_list(
    settings: Settings,
    key: str,
    rows: Sequence[Document],
    columns: Sequence[Column],
    *,
    id_key: str,
    empty: str,
) -> None:
    """Write a list; `key` names it in JSON, `empty` says on a terminal that there is nothing."""
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, {key: list(rows)})
    elif form == "name":
        write_lines(str(row[id_key]) for row in rows)
    elif form == "tsv":
        write_lines(tsv_lines(rows, columns))
    elif not rows:
        print(empty)
    else:
        wide = form == "wide"
        console(whole=wide).print(table(rows, columns, wide=wide))


def emit_one(settings: Settings, document: Document, *, id_key: str) -> None:
    """Write one thing: for programs the document, for people a block of `key  value` lines.

    What is unknown or empty is left out of the block, but with `-o wide`.
    """
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, document)
    elif form == "name":
        print(document[id_key])
    elif form == "tsv":
        write_lines(f"{key}\t{cell}" for key, cell in _flat(document))
    else:
        shown = [pair for pair in _flat(document) if pair[1] != "-" or form == "wide"]
        width = max(len(key) for key, _ in shown)
        write_lines(f"{key:<{width}}  {cell}" for key, cell in shown)


def emit_document(form: str, document: Any) -> None:
    """Write JSON or YAML, in the documents' own order of keys."""
    if form == "yaml":
        import yaml

        yaml.safe_dump(document, sys.stdout, allow_unicode=True, sort_keys=False)
        return
    print(json.dumps(document, ensure_ascii=False, indent=2))


def emit_line(document: Any) -> None:
    """Write one JSON document on one line at once: what streams consist of."""
    print(json.dumps(document, ensure_ascii=False), flush=True)


def tsv_lines(rows: Iterable[Document], columns: Sequence[Column]) -> Iterable[str]:
    """A line of keys, then a line per row; every column, wide ones too."""
    yield "\t".join(column.key for column in columns)
    for row in rows:
        yield "\t".join(column.raw(row) for column in columns)


def table(rows: Iterable[Document], columns: Sequence[Column], *, wide: bool = False) -> Grid:
    """The rows as a table for people."""
    from batchyard.cli.grid import Grid

    return Grid(rows, columns, wide=wide)


def console(*, whole: bool = False) -> Console:
    """A console on standard output; rich obeys NO_COLOR, COLUMNS and the terminal's width.

    `whole`: lines may be longer than the terminal is wide. A pipe has no width.
    """
    from rich.console import Console

    width = WHOLE_WIDTH if whole else None
    if not whole and "COLUMNS" not in os.environ and not sys.stdout.isatty():
        width = PIPE_WIDTH
    return Console(width=width, highlight=False, emoji=False, markup=False)


def note(words: str) -> None:
    """Tell people something beside the output, on standard error."""
    print(words, file=sys.stderr, flush=True)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines as they are."""
    for line in lines:
        print(line)


def _flat(document: Document, prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in document.items():
        if isinstance(value, dict) and value:
            pairs += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for position, item in enumerate(value):
                pairs += _flat(item, f"{prefix}{key}[{position}].")
        else:
            pairs.append((prefix + key, text(value if value != {} else None)))
    return pairs
