"""Write the table of a results file into docs/performance.md.

python -m benchmarks.document benchmarks/results/NAME.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import core_figure, table
from benchmarks.machine import ROOT

DOCUMENT = ROOT / "docs" / "performance.md"
FIGURE = ROOT / "docs" / "performance-core.svg"
BEGIN, END = "<!-- results: begin", "<!-- results: end -->"


def section(results: dict[str, Any], source: str) -> str:
    """The generated part of the document, its markers included."""
    return "\n".join(
        [
            f"{BEGIN}, written by `python -m benchmarks.document` -->",
            "",
            table.markdown(results),
            "",
            f"{table.circumstances(results)} All samples are in `{source}`.",
            "",
            END,
        ]
    )


def current(text: str) -> str:
    """The generated part as it stands in the document's text."""
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def write(path: Path) -> None:
    """Rewrite the document's table, and its figure, from this results file."""
    results = json.loads(path.read_text(encoding="utf-8"))
    drawn = core_figure.figure(results)
    if drawn is not None:
        FIGURE.write_text(drawn, encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    fresh = section(results, path.relative_to(ROOT).as_posix())
    DOCUMENT.write_text(text.replace(current(text), fresh), encoding="utf-8")


def main(argv: list[str]) -> int:
    """From the command line."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m benchmarks.document benchmarks/results/NAME.json\n")
        return 2
    write(Path(argv[0]).resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
