"""Which request goes next? Inside of a band by `Discipline`, between bands by the least key."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.interfaces import Discipline
from scheduler_service.core.types import NEVER, SECOND, Duration, Instant, Request

WINDOW = Discipline().window


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
    window: int = WINDOW
    sjf: bool = False

    def discipline(self) -> Discipline:
        """Bands by priority, fair within."""
        return Discipline(window=self.window, sjf=self.sjf)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Scaled by `per_level`, so that it stays in whole numbers."""
        bonus = min(self.levels * self.per_level, now - head.received_at)
        return (-(head.priority * self.per_level + bonus), -head.priority, head.place)


@dataclass(frozen=True, slots=True)
class Strict:
    """Priority alone; within one, fairness and deadlines."""

    window: int = WINDOW
    sjf: bool = False

    def discipline(self) -> Discipline:
        """Bands by priority, fair within."""
        return Discipline(window=self.window, sjf=self.sjf)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Most urgent first."""
        return (-head.priority, head.place)


@dataclass(frozen=True, slots=True)
class Fair:
    """Equal shares for all users, by weight, whatever their priorities."""

    sjf: bool = False

    def discipline(self) -> Discipline:
        """One band, pure fairness."""
        return Discipline(banded=False, window=0, sjf=self.sjf)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """There is one head."""
        return (head.place,)


@dataclass(frozen=True, slots=True)
class Edf:
    """Earliest deadline alone, by the start that it needs; those without one in fair shares."""

    sjf: bool = False

    def discipline(self) -> Discipline:
        """One band, a window without end."""
        return Discipline(banded=False, window=NEVER, sjf=self.sjf)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """There is one head."""
        return (head.place,)


@dataclass(frozen=True, slots=True)
class Fifo:
    """Age alone."""

    def discipline(self) -> Discipline:
        """By place."""
        return Discipline(fair=False)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Oldest first."""
        return (head.place,)


@dataclass(frozen=True, slots=True)
class AgedUncapped:
    """For experiments only: a level per `per_level` of waiting, without a cap.

    Nothing that came `per_level` * (q - p) later passes; so under a backlog priorities invert.
    """

    per_level: Duration = 10 * SECOND
    window: int = WINDOW

    def discipline(self) -> Discipline:
        """Bands by priority, fair within."""
        return Discipline(window=self.window)

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """When it came, less its priority's lead."""
        return (head.received_at - self.per_level * head.priority, head.place)
