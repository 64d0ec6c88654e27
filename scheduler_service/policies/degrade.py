"""Which of the permitted models stands in, if any?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.core.interfaces import Candidate
from scheduler_service.core.types import Request


@dataclass(frozen=True, slots=True)
class FirstFeasible:
    """The first with a live node and room; else the first with a live node."""

    def choose(self, request: Request, candidates: Sequence[Candidate]) -> str | None:
        """In the order that the request gives."""
        live = [c for c in candidates if c.live_nodes]
        roomy = [c for c in live if c.free_inputs > c.waiting]
        chosen = next(iter(roomy or live), None)
        return chosen.model if chosen else None


@dataclass(frozen=True, slots=True)
class Never:
    """No substitutions on this scheduler, whatever requests permit."""

    def choose(self, request: Request, candidates: Sequence[Candidate]) -> str | None:
        """None."""
        return None
