"""How many requests does an engine run at once, where it does not say? A guess that learns.

A guess grows by an eighth once it was full for a while and nothing of ours waited in the engine; it
falls to what really runs as soon as requests of ours wait there, for the backlog belongs to the
scheduler. What other callers have put on an engine is room that we do not have, known or guessed.

    slots  16   full, none waits for 2 s     -> 18
    slots  18   18 ours, engine: 15 run, 3 wait -> 15
    slots   8 (by its word), engine runs 5 of which 2 are ours, for 2 s -> 5
"""

from __future__ import annotations

from collections import deque

_HOLD_S = 2.0  # how long a state must last: reports of engines lag behind


class SlotGuess:
    """Slots of one engine. Times are seconds of a monotonic clock."""

    def __init__(self, *, known: int | None, assumed: int, most: int) -> None:
        self._known = known
        self._guess = min(assumed, most)
        self._most = most
        self._full_since: float | None = None
        self._shrunk_at = float("-inf")
        self._foreign: deque[tuple[float, int]] = deque()

    @property
    def assumed(self) -> bool:
        """Whether nobody said it."""
        return self._known is None

    @property
    def slots(self) -> int:
        """Inputs of ours that may run at once, from 1."""
        total = self._guess if self._known is None else self._known
        return max(1, total - self.foreign)

    @property
    def foreign(self) -> int:
        """Inputs of other callers that have run all the last while."""
        return min((count for _, count in self._foreign), default=0)

    def look(self, now: float, *, ours: int, running: int | None, waiting: int | None) -> bool:
        """Take the engine's own counts (None: unknown) beside ours; tell whether slots changed."""
        before = self.slots
        if running is not None:
            self._note_foreign(now, max(0, running + (waiting or 0) - ours))
        if self._known is None and waiting is not None:
            self._adapt(now, ours, waiting)
        return self.slots != before

    def _note_foreign(self, now: float, count: int) -> None:
        if not self._foreign:
            self._foreign.append((now, 0))  # it counts only once it has lasted
        self._foreign.append((now, count))
        while len(self._foreign) > 1 and self._foreign[1][0] <= now - _HOLD_S:
            self._foreign.popleft()

    def _adapt(self, now: float, ours: int, waiting: int) -> None:
        ours_waiting = min(ours, max(0, waiting - self.foreign))
        if ours_waiting:
            self._full_since = None
            if now - self._shrunk_at >= _HOLD_S:
                self._guess = max(1, min(self._guess, ours - ours_waiting))
                self._shrunk_at = now
            return
        if ours < self.slots:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        elif now - self._full_since >= _HOLD_S:
            self._guess = min(self._most, self._guess + max(1, self._guess // 8))
            self._full_since = now
