"""How soon would it finish there?"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from scheduler_service.core import profile
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


@dataclass(frozen=True, slots=True)
class Estimate:
    """Slowness * (prompts before it + its own prompt + its output + wait) * (1 + 4 * error rate).

    By the agent's profile, where it states one: prompt tokens that the engine does not know yet
    over the prefill rate, output tokens by the time per token at the concurrency it would have.
    Slowness is what attempts took there over what the profile says. Without a profile: the mean
    service time, stretched by load as in `completion`, less `prefill_share` of it for a prompt that
    is known. A wait is expected for what is sent beyond the slots.
    """

    unknown: Duration = 1 * MILLISECOND
    output_tokens: int = 256
    prefill_share: float = 0.3
    error_weight: float = 4.0

    def concerns(self, request: Request) -> Hashable:
        """Its tokens, and whose prefix it shares."""
        return (request.prompt, request.output_tokens, request.affinity_key)

    def estimate(self, request: Request, engine: Engine, now: Instant) -> Duration:
        """In whole nanoseconds, below 1,000 s per token whatever the profile says."""
        model, slots = request.served_model, engine.spec.slots
        spec, learned = engine.models[model], engine.service.get(model)
        ahead = engine.in_flight_inputs
        known = engine.prefixes.get(request.affinity_key, 0) if request.affinity_key else 0
        if spec.token_times:
            output = request.output_tokens or (learned and round(learned.tokens)) or 0
            work = profile.prefill_time(spec, max(0, request.prompt - known))
            work += (output or self.output_tokens) * profile.token_time(spec, ahead + 1)
            waited = profile.backlog(engine, now)
        else:
            if learned is not None and learned.mean:
                work = learned.expect(request.output_tokens)
            else:
                work = spec.configured_service or self.unknown
            if known and request.prompt:
                share = min(known, request.prompt) / request.prompt
                work -= int(work * self.prefill_share * share)
            waited = work * ahead // slots
        over = ahead + 1 - slots
        if over > 0:
            waited += (
                over * (learned.mean if learned is not None and learned.mean else work) // slots
            )
        slow = engine.slowness.get(model, 1.0)
        return int(slow * (work + waited) * (1 + self.error_weight * engine.node.trust.error_rate))
