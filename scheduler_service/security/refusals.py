"""Who was refused what? Counted for metrics, and told in the log, but not without end.

Whoever is refused can try again as fast as the network goes, so lines are few per place and window;
the next window's first line says how many were left out. No line has a credential in it.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum
from typing import Final

from scheduler_service.clock import Clock
from scheduler_service.core.types import SECOND, Instant
from service_kit.metrics import Family, Kind

log = logging.getLogger(__name__)

WINDOW: Final = 10 * SECOND
LINES_MAX: Final = 20  # per place and window


class Place(StrEnum):
    """Where somebody was refused."""

    RPC = "rpc"
    CALL = "call"  # one of many on a Multiplex stream
    HTTP = "http"
    SESSION = "session"  # of an agent: not begun, or ended for a broken rule
    ITEM = "item"  # what an agent said of an item that it does not hold


class Refusals:
    """All of one scheduler."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[tuple[Place, str]] = Counter()  # by place and reason
        self._clock = clock
        self._windows: dict[Place, tuple[Instant, int]] = {}  # its begin, and lines asked for

    def count(self, place: Place, reason: str) -> None:
        """One more, without a line."""
        self.counts[place, reason] += 1

    def total(self, place: Place) -> int:
        """For whatever reason."""
        return sum(number for (where, _), number in self.counts.items() if where is place)

    def tell(
        self,
        place: Place,
        reason: str,
        text: str,
        *,
        method: str = "",
        principal: str = "",
        address: str = "",
    ) -> None:
        """One more, with a line unless there were many of late.

        Args:
            place: where.
            reason: a name of the errors' reasons.
            text: as the caller was told; holds no secret.
            method: of gRPC, or HTTP's with its path.
            principal: who it was; empty: nobody knows.
            address: from where.
        """
        self.counts[place, reason] += 1
        began, asked = self._windows.get(place, (0, 0))
        now = self._clock.now()
        if now - began < WINDOW and began:
            self._windows[place] = (began, asked + 1)
            if asked >= LINES_MAX:
                return
            left_out = 0
        else:
            self._windows[place] = (now, 1)
            left_out = max(0, asked - LINES_MAX)
        fields: dict[str, str | int] = {"event": "access_refused", "place": place, "reason": reason}
        given: dict[str, str | int] = {
            "method": method,
            "principal": principal,
            "address": address,
            "count": left_out,
        }
        fields.update({name: value for name, value in given.items() if value})
        more = f" (and {left_out} more before it)" if left_out else ""
        log.warning("refused: %s%s", text, more, extra=fields)

    def family(self) -> Family:
        """The metric."""
        found = Family(
            "batchyard.refusals",
            Kind.COUNTER,
            "Callers, agents and what they said that was refused",
            "{refusal}",
            ("place", "reason"),
        )
        for (place, reason), number in self.counts.items():
            found.add(number, place, reason)
        return found
