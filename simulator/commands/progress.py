"""How far is it? A bar on a terminal's standard error, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from scheduler_service.core import commands as cmd
from scheduler_service.core.types import Instant
from simulator.watchers import Watcher

EVERY = 128  # requests between two looks at the bar

Advance = Callable[[int], None]


class Counting(Watcher):
    """Tells of requests that have ended."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._seen = 0

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """One more."""
        del now, command
        self._seen += 1
        if self._seen >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Tell of the rest."""
        self._advance(self._seen)
        self._seen = 0


@contextlib.contextmanager
def bar(*, quiet: bool = False) -> Iterator[Callable[[str, int | None], Advance]]:
    """Begin a line of the bar with `(words, total)`; what it returns moves it on."""
    if quiet or not sys.stderr.isatty():
        yield lambda _words, _total: lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), Remaining())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def begin(words: str, total: int | None) -> Advance:
            task = progress.add_task(words, total=total)
            return lambda count: progress.advance(task, count)

        yield begin
