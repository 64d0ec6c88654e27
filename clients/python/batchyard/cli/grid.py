"""A table that fits the terminal: which columns give way, and where their values are cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from batchyard.cli.columns import Column, Document

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

GAP: Final = 2  # cells between two columns
CUT_FLOOR: Final = 8  # cells that a column with `cut` keeps while another can give
FOLD_FLOOR: Final = 24  # the same for one with `fold`


class Grid:
    """Rows below bold titles. Where the terminal is narrow, folded columns give way first, then
    those that may be cut, from the last to the first; where that is not enough, the last columns
    are left out: what a row is called is read longest.
    """

    def __init__(
        self, rows: Iterable[Document], columns: Sequence[Column], *, wide: bool = False
    ) -> None:
        self._columns = [column for column in columns if wide or not column.wide]
        self._cells = [[column.cell(row) for column in self._columns] for row in rows]
        self._wide = wide

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        # Where columns were left out there are fewer widths than columns.
        for column, width in zip(self._columns, widths, strict=False):
            table.add_column(
                Text(column.title, no_wrap=True),
                justify="right" if column.right else "left",
                no_wrap=self._wide or not (column.cut or column.fold),
                max_width=width,
            )
        for cells in self._cells:
            # Cells are Text, never markup: a model may be called "[red]".
            table.add_row(
                *(
                    _shown(column, cell, width)
                    for column, cell, width in zip(self._columns, cells, widths, strict=False)
                )
            )
        yield table

    def _widths(self, room: int) -> list[int]:
        """Cells for each column that is shown, so that all fit into `room`; the first always is."""
        widths = [
            max(cell_len(text) for text in (column.title, *(row[at] for row in self._cells)))
            for at, column in enumerate(self._columns)
        ]
        if self._wide:
            return widths
        over = sum(widths) + GAP * (len(widths) - 1) - room
        for floor, at in self._givers():
            given = max(0, min(over, widths[at] - floor))
            widths[at] -= given
            over -= given
        while over > 0 and len(widths) > 1:
            over -= widths.pop() + GAP
        return widths

    def _givers(self) -> list[tuple[int, int]]:
        """(floor, position), in the order in which they give way."""
        places = list(reversed(list(enumerate(self._columns))))
        folded = [(FOLD_FLOOR, at) for at, column in places if column.fold]
        return folded + [(CUT_FLOOR, at) for at, column in places if column.cut]


def _shown(column: Column, cell: str, width: int) -> Text:
    if column.fold:
        return Text(cell, overflow="fold")
    if column.keep_end:
        cell = without_middle(cell, width)
    return Text(cell, no_wrap=True, overflow="ellipsis")


def without_middle(text: str, cells: int) -> str:
    """`text` in at most `cells`, as "auto-…83-1": ids of one family differ at their end."""
    if cell_len(text) <= cells or cells < 3:
        return text
    end = (cells - 1) // 2
    head = set_cell_size(text, cells - 1 - end).rstrip()
    return f"{head}…{set_cell_size(text[::-1], end).rstrip()[::-1]}"
