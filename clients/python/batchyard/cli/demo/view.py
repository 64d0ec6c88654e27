"""What the demo shows while it runs: lines that stay, and on a terminal a live screen below them.

Where there is no terminal, a line of figures every two seconds stands for the screen.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from batchyard.cli.columns import printable
from batchyard.cli.screens import status_screen
from batchyard.cli.views.plain import Document

if TYPE_CHECKING:
    from rich.console import RenderableType

FIGURES_EVERY_S = 2.0
PIPE_WIDTH = 120
HEAD_LINES = 3
TOLD_EVENTS = frozenset(
    {
        "node_joined", "node_cordoned", "node_uncordoned", "node_suspect", "node_lost",
        "scale_out", "scale_in", "scale_failed", "no_available_node",
        "failover", "degraded", "rejected", "expired", "failed",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """What the client itself has counted."""

    sent: int
    ended: int
    tokens: int


class View:
    """Lines and screen. `progress` is asked whenever the screen is drawn."""

    def __init__(self, *, stderr: bool, plain: bool, progress: Callable[[], Progress]) -> None:
        self.console = Console(highlight=False, emoji=False, markup=False, stderr=stderr)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            self.console.width = PIPE_WIDTH
        self._animated = (
            self.console.is_terminal and not self.console.is_dumb_terminal and not plain
        )
        self._progress = progress
        self._began_at = time.monotonic()
        self._title = ""
        self._live: Live | None = None
        self._last_figures_at = 0.0
        self._last_event_id = ""

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Show the screen meanwhile, where there is a terminal."""
        if not self._animated:
            yield
            return
        live = Live(console=self.console, auto_refresh=False, transient=True)
        with live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_at

    def act(self, title: str) -> None:
        """A new act begins."""
        self._title = title
        self._print(Text(f"[{self.elapsed_s:5.1f} s] {title}", style="bold"))

    def say(self, text: str) -> None:
        """A line that stays."""
        self._print(Text(f"[{self.elapsed_s:5.1f} s]   {printable(text)}"))

    def show(self, document: Document) -> None:
        """A report came: tell its new decisions, show its state."""
        for event in document["logs"]:
            if event["event"] in TOLD_EVENTS and event["event_id"] > self._last_event_id:
                self._last_event_id = event["event_id"]
                self.say(f"{event['event']:<15} {event['message']}")
        if self._live is not None:
            self._live.update(self._screen(document), refresh=True)
        elif not self._animated and self.elapsed_s - self._last_figures_at >= FIGURES_EVERY_S:
            self._last_figures_at = self.elapsed_s
            self.say(figures(document, self._progress()))

    def _print(self, line: Text) -> None:
        # A pipe gets lines whole; a terminal gets them wrapped at words.
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def _screen(self, document: Document) -> RenderableType:
        progress = self._progress()
        head = Text(f"Demo · {self._title}", style="bold", no_wrap=True, overflow="ellipsis")
        counts = Text(
            f"{self.elapsed_s:.0f} s · {progress.ended} of {progress.sent} requests ended · "
            f"{document['totals']['batches']} batches · {progress.tokens} tokens received"
        )
        height = max(0, self.console.height - HEAD_LINES - 1)
        return Group(Text(), head, counts, status_screen(document, height=height))


def figures(document: Document, progress: Progress) -> str:
    """The screen in one line: queue by priority, nodes, batches, tokens."""
    depths: dict[int, int] = {}
    for queue in document["queues"]:
        depths[queue["priority"]] = depths.get(queue["priority"], 0) + queue["depth"]
    bands = " ".join(f"p{p}:{depths[p]}" for p in sorted(depths, reverse=True) if depths[p])
    nodes = [node for node in document["nodes"] if node["health"] != "lost"]
    running, slots = (sum(node[key] for node in nodes) for key in ("running", "slots"))
    return (
        f"waiting {document['queue_size']}{f' ({bands})' if bands else ''} · "
        f"running {running} of {slots} slots on {len(nodes)} nodes · "
        f"{document['totals']['batches']} batches · {progress.tokens} tokens · "
        f"{progress.ended} of {progress.sent} ended"
    )
