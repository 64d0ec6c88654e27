"""What a column of a table shows of a document, and how its values are written."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batchyard.cli.durations import format_ms

Document = dict[str, Any]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def text(value: Any) -> str:
    """Any value for people: "-" for what is unknown or empty, yes and no for booleans."""
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(text(item) for item in value)
    return printable(str(value))


def printable(value: str) -> str:
    """`value` on one line, with control characters shown rather than obeyed by the terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), value)


def for_terminal(value: str) -> str:
    """Text of a model: as it is for a pipe, without control characters for a terminal.

    What a model writes may move the cursor, change the title or fake a prompt.
    """
    if not sys.stdout.isatty():
        return value
    return "".join(letter for letter in value if letter in "\n\t" or not _CONTROL.match(letter))


def percent(value: float | None) -> str:
    """A share of 0..1 in per cent."""
    return (
        "-" if value is None else f"{value * 100:.0f}%" if value >= 0.1 else f"{value * 100:.1f}%"
    )


def per_second(value: float | None) -> str:
    """A rate, with decimals where it is small."""
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def clock(value: str | None) -> str:
    """The time of day of an RFC 3339 time."""
    return value[11:19] if value else "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the document's key, the title, and how the value is written."""

    key: str
    title: str
    show: Callable[[Any], str] = text
    right: bool = False
    wide: bool = False  # only with `-o wide`
    cut: bool = False  # gives way where the terminal is narrow
    keep_end: bool = False  # cut in the middle
    fold: bool = False  # gives way first, by taking several lines
    pick: Callable[[Document], Any] | None = None  # for people, instead of the key's value

    def cell(self, row: Document) -> str:
        return self.show(self.pick(row) if self.pick else row.get(self.key))

    def raw(self, row: Document) -> str:
        """The value for a program: as in JSON, lists joined by commas."""
        return tsv(row.get(self.key))


def tsv(value: Any) -> str:
    """A value as one cell of tab-separated output."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(tsv(item) for item in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={tsv(item)}" for key, item in value.items())
    return printable(str(value))


def number(key: str, title: str, *, wide: bool = False) -> Column:
    """A column of counts."""
    return Column(key, title, right=True, wide=wide)


def slots(title: str) -> Column:
    """A node's slots, for people with a "~" where nobody said how many there are."""
    return Column("slots", title, right=True, pick=slots_shown)


def slots_shown(node: Document) -> str:
    """As above."""
    return f"{'~' if node.get('slots_assumed') else ''}{node['slots']}"


def duration(key: str, title: str, *, wide: bool = False) -> Column:
    """A column of milliseconds."""
    return Column(key, title, show=format_ms, right=True, wide=wide)


def rate(key: str, title: str) -> Column:
    """A column of counts per second."""
    return Column(key, title, show=per_second, right=True)


def share(key: str, title: str, *, wide: bool = False) -> Column:
    """A column of shares, in per cent."""
    return Column(key, title, show=percent, right=True, wide=wide)
