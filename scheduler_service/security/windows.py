"""How much was there in the last 60 s? A ring of seconds with their sum.

Exact to one second, and on the safe side: a second counts until all of it is 60 s old.
"""

from __future__ import annotations

from typing import Final

SECONDS: Final = 61  # the current one, and the 60 before it


class MinuteWindow:
    """A sum over the last minute. Times are whole monotonic seconds that never fall."""

    __slots__ = ("_at", "_ring", "total")

    def __init__(self) -> None:
        self.total = 0
        self._ring = [0] * SECONDS
        self._at = 0

    def advance(self, now_s: int) -> None:
        """Forget what is too old."""
        passed = now_s - self._at
        if passed <= 0:
            return
        if passed >= SECONDS:
            self._ring = [0] * SECONDS
            self.total = 0
        elif self.total:
            for second in range(self._at + 1, now_s + 1):
                self.total -= self._ring[second % SECONDS]
                self._ring[second % SECONDS] = 0
        self._at = now_s

    def take(self, amount: int, limit: float, now_s: int) -> bool:
        """Count it if the sum then is within the limit; whether it was."""
        if now_s != self._at:
            self.advance(now_s)
        total = self.total + amount
        if total > limit:
            return False
        self.total = total
        self._ring[self._at % SECONDS] += amount
        return True

    def add(self, amount: int, now_s: int) -> None:
        """Count it."""
        self.advance(now_s)
        self._ring[now_s % SECONDS] += amount
        self.total += amount

    def take_back(self, amount: int, then_s: int, now_s: int) -> None:
        """Count less in a second that may be over, or forgotten."""
        if now_s != self._at:
            self.advance(now_s)
        if now_s - then_s < SECONDS:
            amount = min(amount, self._ring[then_s % SECONDS])
            self._ring[then_s % SECONDS] -= amount
            self.total -= amount

    def seconds_until(self, room: int, limit: float) -> int:
        """How long until `room` more fit below the limit; for ever too much: a whole minute."""
        excess: float = self.total + room - limit
        for age in range(SECONDS - 1, -1, -1):
            if excess <= 0:
                return SECONDS - 1 - age
            excess -= self._ring[(self._at - age) % SECONDS]
        return SECONDS
