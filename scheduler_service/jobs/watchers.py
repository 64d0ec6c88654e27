"""Who wants to know when a job changes?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Watchers:
    """Those who watch jobs, by the jobs' keys."""

    def __init__(self) -> None:
        self._events: dict[int, set[asyncio.Event]] = {}

    @contextmanager
    def watch(self, job: int) -> Iterator[asyncio.Event]:
        """An event that is set at each change, until this is left."""
        event = asyncio.Event()
        self._events.setdefault(job, set()).add(event)
        try:
            yield event
        finally:
            mine = self._events[job]
            mine.discard(event)
            if not mine:
                del self._events[job]

    def changed(self, jobs: Iterable[int]) -> None:
        """Tell those who watch them."""
        for job in jobs:
            for event in self._events.get(job, ()):
                event.set()

    def watched(self) -> list[int]:
        """Keys of the jobs that anybody watches."""
        return list(self._events)

    def wake_all(self) -> None:
        """Tell everybody: the service stops."""
        self.changed(list(self._events))
