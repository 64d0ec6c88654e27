"""What came out of a measurement, and is it good enough?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.targets import MEASURES, Measure


@dataclass(slots=True)
class Measured:
    """The samples of one line, one a round, and those of its limit in the same run."""

    key: str  # of MEASURES
    samples: Sequence[float]
    limit_samples: Sequence[float] = ()
    detail: dict[str, float | int | str] = field(default_factory=dict)  # what explains the value

    @property
    def measure(self) -> Measure:
        """What it is, and what was wanted."""
        return MEASURES[self.key]

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.samples)

    @property
    def limit(self) -> float | None:
        """The median of the limit's rounds."""
        return median(self.limit_samples) if self.limit_samples else None

    @property
    def ratio(self) -> float | None:
        """Value over limit, of the medians."""
        limit = self.limit
        return self.value / limit if limit else None

    @property
    def verdict(self) -> str:
        """The best target that is reached; empty: none was set."""
        measure = self.measure
        if measure.floor is None:
            return ""
        for name in ("stretch", "promise", "floor"):
            wanted = getattr(measure, name)
            if wanted is not None and self._reaches(wanted):
                return name
        return "below floor"

    def _reaches(self, wanted: float) -> bool:
        return self.value >= wanted if self.measure.more_is_better else self.value <= wanted

    def as_json(self) -> dict[str, Any]:
        """All of it, for the results file."""
        measure = self.measure
        return {
            "key": self.key,
            "what": measure.what,
            "unit": measure.unit,
            "value": self.value,
            "samples": list(self.samples),
            "limit": self.limit,
            "limit_is": measure.limit,
            "limit_samples": list(self.limit_samples),
            "ratio": self.ratio,
            "floor": measure.floor,
            "promise": measure.promise,
            "stretch": measure.stretch,
            "verdict": self.verdict,
            "detail": self.detail,
        }
