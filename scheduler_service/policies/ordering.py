"""Which band head goes next? Keys for `Ordering`; the smallest goes first."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.types import SECOND, Duration, Instant, Request


@dataclass(frozen=True, slots=True)
class Aged:
    """Priority plus a capped bonus for waiting: p + min(levels, wait / per_level).

    A request rises one level per `per_level` of waiting, by at most `levels`; ties go to the higher
    priority, then to age. Because the bonus is capped, an old backlog never passes fresh requests
    that are more than `levels` more urgent; the floor of the queue sees to it that it moves.
    (An uncapped bonus inverts priorities under any backlog.)
    """

    per_level: Duration = 10 * SECOND
    levels: int = 2

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Scaled by `per_level`, so that it stays in whole numbers."""
        bonus = min(self.levels * self.per_level, now - head.received_at)
        return (-(head.priority * self.per_level + bonus), -head.priority, head.place)


@dataclass(frozen=True, slots=True)
class Strict:
    """Priority alone; within one, age."""

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Most urgent first."""
        return (-head.priority, head.place)


@dataclass(frozen=True, slots=True)
class Fifo:
    """Age alone."""

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Oldest first."""
        return (head.place,)
