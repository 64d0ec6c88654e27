"""Which of the permitted models stands in, if any?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.core.interfaces import Candidate, PressureView
from scheduler_service.core.types import NEVER, SECOND, Duration, Request


@dataclass(frozen=True, slots=True)
class FirstFeasible:
    """The first with a live node and room; else the first with a live node."""

    def limits(self) -> tuple[Duration, Duration]:
        """No overload."""
        return NEVER, NEVER

    def overloaded(self, view: PressureView) -> bool:
        """Never."""
        return False

    def choose(self, request: Request, candidates: Sequence[Candidate]) -> str | None:
        """In the order that the request gives."""
        live = [c for c in candidates if c.live_nodes]
        roomy = [c for c in live if c.free_inputs > c.waiting]
        chosen = next(iter(roomy or live), None)
        return chosen.model if chosen else None


@dataclass(frozen=True, slots=True)
class Never:
    """No substitutions on this scheduler, whatever requests permit."""

    def limits(self) -> tuple[Duration, Duration]:
        """No overload."""
        return NEVER, NEVER

    def overloaded(self, view: PressureView) -> bool:
        """Never."""
        return False

    def choose(self, request: Request, candidates: Sequence[Candidate]) -> str | None:
        """None."""
        return None


@dataclass(frozen=True, slots=True)
class Pressed:
    """The first that is in time and not itself under pressure; before waits are long, too.

    Pressure is the expected wait over `objective`. A pool degrades from when its pressure was above
    1 for `enter` until it was below `leave` for `stay`; a model whose pressure is `most` or more
    stands in for nobody.
    """

    objective: Duration = 3 * SECOND
    enter: Duration = 2 * SECOND
    leave: float = 0.5
    stay: Duration = 10 * SECOND
    most: float = 0.8

    def limits(self) -> tuple[Duration, Duration]:
        """The objective, and `leave` of it."""
        return self.objective, int(self.leave * self.objective)

    def overloaded(self, view: PressureView) -> bool:
        """With hysteresis."""
        if view.degrading:
            return view.below_for < self.stay
        return view.above_for >= self.enter

    def choose(self, request: Request, candidates: Sequence[Candidate]) -> str | None:
        """In the order that the request gives."""
        for candidate in candidates:
            pressed = candidate.expected_wait >= self.most * self.objective
            if candidate.live_nodes and candidate.in_time and not pressed:
                return candidate.model
        return None
