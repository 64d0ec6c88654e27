"""How many output tokens does the scheduler expect? Policies never see the true number."""

from __future__ import annotations

import math
from random import Random

from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import Instant
from simulator.callers import Predict
from simulator.watchers import Watcher
from simulator.workload.arrival import Arrival


def oracle(arrival: Arrival, _rid: int) -> int:
    """The truth."""
    return arrival.output_tokens


def noisy(sigma: float, seed: int = 0) -> Predict:
    """The truth times a log-normal factor of median 1, the same for the same request."""

    def predict(arrival: Arrival, rid: int) -> int:
        factor = math.exp(sigma * Random(f"{seed}/{rid}/noise").gauss(0, 1))
        return max(1, round(arrival.output_tokens * factor))

    return predict


def at_most(max_tokens: int) -> Predict:
    """What the caller allows, which is all that many callers say."""
    return lambda _arrival, _rid: max_tokens


class TenantMean(Watcher):
    """The mean of what the tenant's finished requests made; `first_guess` before the first."""

    def __init__(self, first_guess: int = 256) -> None:
        self._first_guess = first_guess
        self._sums: dict[str, tuple[int, int]] = {}  # (requests, tokens)

    def __call__(self, arrival: Arrival, _rid: int) -> int:
        """The tenant's mean so far."""
        count, tokens = self._sums.get(arrival.tenant, (0, 0))
        return round(tokens / count) if count else self._first_guess

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """Learn from a success."""
        del now
        if command.outcome is Outcome.SUCCEEDED:
            tenant = command.request.tenant
            count, tokens = self._sums.get(tenant, (0, 0))
            made = command.request.context.arrival.output_tokens
            self._sums[tenant] = count + 1, tokens + made
