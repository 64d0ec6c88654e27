"""When does the core's turn come: now, or after some more of what is on its way?

Theory of operation. A turn and the messages that it causes cost as much for one request as for ten.
Requests that come in a message of many share that; calls that have an RPC each would each pay for
all of it. So while such calls keep the process busy, and only then, turns keep a distance as long
as fewer than `ENOUGH` are together. What comes after a pause does not wait.

The distance is as long as the load needs. At the end of each `WINDOW` it is judged by the processor
time that the window took: from `BUSY` of a core on it grows by a `STEP`, up to `MOST`; below `CALM`
it shrinks by one, down to none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler_service.core.types import MICROSECOND, MILLISECOND, Duration, Instant

MOST: Final[Duration] = 4 * MILLISECOND
STEP: Final[Duration] = 500 * MICROSECOND
ENOUGH: Final = 24  # requests and results
WINDOW: Final[Duration] = 32 * MILLISECOND
ALONE: Final = 8  # calls in a window that came alone: with fewer there is nothing to save
BUSY: Final = 0.8
CALM: Final = 0.6


class Gathering:
    """The rule, and what it has to remember. Reads no clock: time is given."""

    __slots__ = ("_alone", "_cpu", "_cpu_at", "_turned_at", "_window_at", "distance")

    def __init__(self, cpu: Callable[[], Duration]) -> None:
        """`cpu`: the processor time that the process has used."""
        self.distance: Duration = 0  # from turn to turn
        self._cpu = cpu
        self._cpu_at = cpu()  # when the present window began
        self._window_at: Instant = 0
        self._alone = 0  # calls in the present window
        self._turned_at: Instant = 0

    def wait(self, now: Instant, waiting: int) -> Duration:
        """How long from `now` the turn is to wait for more; 0: not at all.

        Args:
            now: when `waiting` requests and results are together.
            waiting: so many.
        """
        if not self.distance or waiting >= ENOUGH:
            return 0
        return max(0, self._turned_at + self.distance - now)

    def is_enough(self, waiting: int) -> bool:
        """Whether a turn that waits is to wait no longer."""
        return waiting >= ENOUGH

    def turned(self, now: Instant, alone: int) -> None:
        """A turn begins. `alone`: of the requests that it takes, those that came one by one."""
        self._turned_at = now
        self._alone += alone
        past = now - self._window_at
        if past >= WINDOW:
            cpu = self._cpu()
            self._judge((cpu - self._cpu_at) / past)
            self._window_at, self._cpu_at, self._alone = now, cpu, 0

    def _judge(self, share: float) -> None:
        if self._alone < ALONE:
            self.distance = 0
        elif share >= BUSY:
            self.distance = min(MOST, self.distance + STEP)
        elif share < CALM:
            self.distance = max(0, self.distance - STEP)
