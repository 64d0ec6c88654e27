"""Does the event loop keep up? How late a timer comes, ten times a second."""

from __future__ import annotations

import asyncio
from typing import Final

from service_kit.metrics import TIME_EDGES_S, Counted, Family, Kind

EVERY_S: Final = 0.1


class LoopLag:
    """Measures from `start` to `stop`."""

    def __init__(self) -> None:
        self.counted = Counted(TIME_EDGES_S)
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Needs a running loop."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + EVERY_S
        self._timer = loop.call_at(self._due_s, self._on_timer)

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def family(self) -> Family:
        """As a metric."""
        lag = Family(
            "batchyard.event_loop.lag",
            Kind.HISTOGRAM,
            "How late timers of the loop come",
            "s",
            edges=TIME_EDGES_S,
        )
        lag.add(self.counted.bins())
        return lag

    def _on_timer(self) -> None:
        self.counted.add(max(0.0, asyncio.get_running_loop().time() - self._due_s))
        self.start()
