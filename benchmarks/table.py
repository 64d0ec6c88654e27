"""How are results shown to people? One set of columns, as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEADINGS = ("measure", "measured", "limit", "ratio", "first floor", "promise", "verdict")


def number(value: float | None) -> str:
    """Three digits that matter; thousands are grouped; nothing for None."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits if digits > 1 else 0):,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """The cells of each line of a results file."""
    return [
        (
            line["what"],
            f"{number(line['value'])} {line['unit']}",
            number(line["limit"]),
            number(line["ratio"]),
            number(line["floor"]),
            number(line["promise"]),
            line["verdict"],
        )
        for line in results["lines"]
    ]


def plain(results: dict[str, Any]) -> str:
    """For a terminal."""
    table = [HEADINGS, *rows(results)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    text = [_aligned(row, widths) for row in table]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def markdown(results: dict[str, Any]) -> str:
    """For a document."""
    rule = ["---", *["--:"] * (len(HEADINGS) - 2), "---"]
    table = [HEADINGS, rule, *rows(results)]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in table)


def circumstances(results: dict[str, Any]) -> str:
    """One sentence: which commit, on what, when."""
    machine = results["machine"]
    return (
        f"Commit {results['commit']}, {results['measured_at'][:10]}, on {machine['cores']} cores"
        f" of {machine['cpu']} ({machine['system']}), Python {machine['python']},"
        f" grpcio {machine['grpcio']}, protobuf {machine['protobuf']}, uvloop {machine['uvloop']};"
        f" median of {results['options']['rounds']} rounds of"
        f" {results['options']['round_s']:g} s; {results['pinning']}."
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
    return "  ".join([*cells, row[-1]]).rstrip()
