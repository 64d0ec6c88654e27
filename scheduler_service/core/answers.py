"""How long do a pool's attempts take until they answer, and what may rivals of slow ones cost?

Only where hedging is configured; the rule is in `hedging.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler_service.core.lengths import Histogram
from scheduler_service.core.settings import Hedge
from scheduler_service.core.types import MICROSECOND, Duration, Request

QUANTILE: Final = 0.95
BURST: Final = 10  # rivals that a pool can save up
TICK: Final = 100 * MICROSECOND  # the unit in which times are remembered
LOOK_EVERY: Final = 16  # answers


@dataclass(slots=True)
class Answers:
    """Times from dispatch to answer."""

    mean: float = 0.0  # the last one weighs 1/8
    late: Duration = 0  # the p95 of about the last thousand
    samples: int = 0
    _times: Histogram = field(default_factory=Histogram)

    def add(self, took: Duration) -> None:
        """One answered after so long."""
        self._times.add(max(1, took // TICK))
        self.mean += (took - self.mean) / (8 if self.samples else 1)
        if self.samples % LOOK_EVERY == 0:
            self.late = self._times.quantile(QUANTILE) * TICK
        self.samples += 1


@dataclass(slots=True)
class Hedging:
    """What a pool knows for its rivals."""

    limits: Hedge
    streams: Answers = field(default_factory=Answers)  # until the first output
    others: Answers = field(default_factory=Answers)  # until the result
    _saved: float = 0.0  # rivals that it may send
    _firsts: int = 0  # first attempts that were counted in

    def answers(self, request: Request) -> Answers:
        """Of requests of its kind."""
        return self.streams if request.stream else self.others

    def may_send(self, firsts: int) -> bool:
        """Whether the share allows one more. `firsts`: first attempts of the pool so far."""
        self._saved = min(BURST, self._saved + self.limits.share * (firsts - self._firsts))
        self._firsts = firsts
        return self._saved >= 1

    def sent(self) -> None:
        """One was sent."""
        self._saved -= 1
