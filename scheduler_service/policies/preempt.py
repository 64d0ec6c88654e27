"""From when on may a running job item be stopped for an interactive request?"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.types import NEVER, SECOND, Attempt, Duration, Instant


@dataclass(frozen=True, slots=True)
class AfterRun:
    """Once it has run for `min_run` since its last start, so that each start gets it on."""

    min_run: Duration = 2 * SECOND

    def allowed_from(self, item: Attempt) -> Instant:
        """That long after it was sent."""
        return item.started_at + self.min_run


@dataclass(frozen=True, slots=True)
class Never:
    """Job items run to their end."""

    def allowed_from(self, item: Attempt) -> Instant:
        """NEVER."""
        return NEVER
