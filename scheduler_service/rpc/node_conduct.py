"""Does an agent keep to what an honest one can do? Messages, and ids that were never its own.

An honest agent may now and then speak of an item that has just been taken from it. One that goes on
speaking of items it does not hold, or sends messages faster than any engine makes them, is
disconnected; nothing it says of foreign items has an effect meanwhile (`node_deltas.py`, the core).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from scheduler_service.core.types import SECOND, Instant
from scheduler_service.rpc.convert_node import violation

WINDOW: Final = 10 * SECOND
FOREIGN_MAX: Final = 1_000  # rows and results per window
MESSAGES_MAX: Final = 50_000  # per window; an agent under full load sends 2,000/s

InFlight = Callable[[str, int], Container[int]]  # items of a node in a session, by dispatch id


class Conduct:
    """What one session has done in the current window."""

    __slots__ = ("_began", "_foreign", "_in_flight", "_messages", "_on_foreign")

    def __init__(
        self, in_flight: InFlight | None, on_foreign: Callable[[], None] | None = None
    ) -> None:
        """
        Args:
            in_flight: None where nobody knows, and no id is judged.
            on_foreign: counts what it said of an item that it does not hold.
        """
        self._in_flight = in_flight
        self._on_foreign = on_foreign
        self._began: Instant = 0
        self._messages = 0
        self._foreign = 0

    def message(self, now: Instant) -> None:
        """One has come.

        Raises:
            SessionRefused: they come too fast.
        """
        self._messages += 1
        if now - self._began >= WINDOW:
            self._began, self._messages, self._foreign = now, 1, 0
        elif self._messages > MESSAGES_MAX:
            raise violation(f"more than {MESSAGES_MAX} messages in {WINDOW // SECOND} s")

    def held(self, node_id: str, epoch: int) -> Container[int] | None:
        """The items that it holds, for those who ask for many at once; None: nobody knows."""
        return None if self._in_flight is None else self._in_flight(node_id, epoch)

    def speaks_of(self, node_id: str, epoch: int, dispatch_id: int, field: str) -> None:
        """It says something about an item that has no live attempt of its own.

        Raises:
            SessionRefused: it does so again and again of items that it was not given.
        """
        if self._in_flight is None or dispatch_id in self._in_flight(node_id, epoch):
            return  # cancelled or revoked a moment ago, and it still runs there
        if self._on_foreign is not None:
            self._on_foreign()
        self._foreign += 1
        if self._foreign > FOREIGN_MAX:
            raise violation(
                f"{self._foreign} times in {WINDOW // SECOND} s it spoke of items that it does not "
                f"hold, last of {dispatch_id}",
                field,
            )
