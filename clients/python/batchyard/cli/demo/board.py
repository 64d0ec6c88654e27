"""What the demo knows at the moment, and how it waits for something to become true.

One board, written by the follower of the report's stream and by the calls; everything that waits
waits on a condition over it, within a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from batchyard.cli.views.plain import Document


class Stuck(Exception):
    """What had to happen did not, in time or at all. The text says what."""


class Board:
    """The last report, and news of any kind."""

    def __init__(self) -> None:
        self.document: Document | None = None  # as `batchyard status` shows it; None: none yet
        self._fault = ""
        self._news = asyncio.Event()

    def report(self, document: Document) -> None:
        """A report came."""
        self.document = document
        self.changed()

    def changed(self) -> None:
        """Something happened: let all who wait look again."""
        self._news.set()
        self._news = asyncio.Event()

    def fail(self, text: str) -> None:
        """What all who wait now or later get as the reason why they wait in vain."""
        self._fault = self._fault or text
        self.changed()

    async def until(self, holds: Callable[[], Any], *, within_s: float, what: str) -> None:
        """Return when `holds` says so.

        Raises:
            Stuck: it did not within that time, or `fail` was called.
        """
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    if self._fault:
                        raise Stuck(f"{what}: {self._fault}")
                    await self._news.wait()
        except TimeoutError as error:
            raise Stuck(f"{what}: not within {within_s:.0f} s") from error

    @property
    def waiting(self) -> int:
        """Requests in the queue, by the last report."""
        return int(self.document["queue_size"]) if self.document else 0

    def serving(self, model: str) -> list[str]:
        """Nodes that can run the model now, by the last report."""
        nodes = self.document["nodes"] if self.document else []
        return [n["node_id"] for n in nodes if n["state"] == "healthy" and model in n["models"]]

    def has_event(self, name: str, node_id: str = "") -> bool:
        """Whether the last report has such an event."""
        events = self.document["logs"] if self.document else []
        return any(
            event["event"] == name and node_id in ("", event.get("node_id", "")) for event in events
        )
