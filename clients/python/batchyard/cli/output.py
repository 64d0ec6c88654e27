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
    from rich.table import Table
    from rich.text import Text


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
    """Write one thing: a block of `key: value` lines for people, the document for programs."""
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, document)
    elif form == "name":
        print(document[id_key])
    elif form == "tsv":
        write_lines(f"{key}\t{cell}" for key, cell in _flat(document))
    else:
        width = max(len(key) for key, _ in _flat(document))
        write_lines(f"{key:<{width}}  {cell}" for key, cell in _flat(document))


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


def table(rows: Iterable[Document], columns: Sequence[Column], *, wide: bool = False) -> Table:
    """The rows as a table for people."""
    from rich.table import Table
    from rich.text import Text

    shown = [column for column in columns if wide or not column.wide]
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in shown:
        grid.add_column(
            Text(column.title, no_wrap=True),
            justify="right" if column.right else "left",
            no_wrap=wide or not (column.cut or column.fold),
        )
    for row in rows:
        # Cells are Text, never markup: a model may be called "[red]".
        grid.add_row(*(_cell(column, row) for column in shown))
    return grid


def _cell(column: Column, row: Document) -> Text:
    from rich.text import Text

    if column.fold:
        return Text(column.cell(row), overflow="fold")
    return Text(column.cell(row), no_wrap=True, overflow="ellipsis")


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
