"""Does the event loop keep up? How late a timer comes, ten times a second."""

from __future__ import annotations

import asyncio
from typing import Final

from scheduler_service.core.types import MILLISECOND
from scheduler_service.report import histogram
from scheduler_service.report.buckets import Lengths

EVERY: Final = 100 * MILLISECOND


class LoopLag:
    """Measures from `start` to `stop`."""

    def __init__(self) -> None:
        self.lengths = Lengths()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Needs a running loop."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + EVERY / 1e9
        self._timer = loop.call_at(self._due_s, self._on_timer)

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        late_s = asyncio.get_running_loop().time() - self._due_s
        lag = max(0, int(late_s * 1e9))
        histogram.add(self.lengths.bars, lag)
        self.lengths.total += lag
        self.start()
