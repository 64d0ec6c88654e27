"""How soon would it finish there?"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from scheduler_service.core.types import MILLISECOND, Duration, Engine, Instant, Request


@dataclass(frozen=True, slots=True)
class Completion:
    """Mean service time there, stretched by how full the engine is.

    Learned from finished attempts, else the agent's profile, else `unknown`: an engine that nobody
    knows yet looks quick, so that it is tried.
    """

    unknown: Duration = 1 * MILLISECOND

    def concerns(self, request: Request) -> Hashable:
        """Its expected output."""
        return request.output_tokens

    def estimate(self, request: Request, engine: Engine, now: Instant) -> Duration:
        """mean * (1 + in flight / slots), in whole nanoseconds."""
        model = request.served_model
        learned = engine.service.get(model)
        if learned is not None and learned.mean:
            mean = learned.expect(request.output_tokens)
        else:
            mean = engine.models[model].configured_service or self.unknown
        slots = engine.spec.slots
        return mean * (slots + engine.in_flight_inputs) // slots
