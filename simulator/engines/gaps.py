"""How long are the gaps between tokens? A histogram of 1 % wide bins, for millions of gaps."""

from __future__ import annotations

import math
from collections import Counter

from scheduler_service.core.types import Duration

_WIDTH = math.log(1.01)


class GapHistogram:
    """Durations with weights."""

    def __init__(self) -> None:
        self.count = 0
        self.sum: Duration = 0
        self._bins: Counter[int] = Counter()

    def add(self, gap: Duration, times: int) -> None:
        """`times` gaps of that length."""
        self.count += times
        self.sum += gap * times
        self._bins[int(math.log(max(1, gap)) / _WIDTH)] += times

    @property
    def mean(self) -> float:
        """In nanoseconds."""
        return self.sum / max(1, self.count)

    def quantile(self, share: float) -> Duration:
        """At most 1 % off."""
        left = share * self.count
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                return round(math.exp((number + 0.5) * _WIDTH))
        return 0
