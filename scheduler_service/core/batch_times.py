"""How long does a static batch of so many inputs take there, and how many come meanwhile?

The time is a straight line over the size, T(B) = fixed + each * B, fitted by recursive least
squares with forgetting: it starts from what the agent's profile states and follows what is
measured, so that a node that turned slow is known after some tens of batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler_service.core.outcomes import AttemptState
from scheduler_service.core.types import MILLISECOND, SECOND, Batch, Duration, Engine, Instant

if TYPE_CHECKING:
    from scheduler_service.core.state import State

FORGETTING: Final = 0.98  # weight of a measurement after one more
UNSURE: Final = 1_000.0  # variance of both coefficients at first, in those of one measurement
UNSURE_MOST: Final = 1e6  # above it nothing is forgotten, lest a first odd size upset all
RATE_WINDOW: Final = 100 * MILLISECOND


@dataclass(slots=True)
class BatchTime:
    """The line of one model on one engine, and the size limit that its latencies allow."""

    fixed: float = 0.0  # ns
    each: float = 0.0  # ns per input
    samples: int = 0
    size_limit: int = 0  # by the former's rule; 0: as the engine's
    _fixed_var: float = UNSURE
    _both_var: float = 0.0
    _each_var: float = UNSURE

    def learn(self, size: int, took: Duration) -> None:
        """One batch of so many inputs took so long."""
        a, b, c = self._fixed_var, self._both_var, self._each_var
        gain_fixed, gain_each = a + b * size, b + c * size
        spread = FORGETTING + gain_fixed + gain_each * size
        gain_fixed, gain_each = gain_fixed / spread, gain_each / spread
        error = took - (self.fixed + self.each * size)
        self.fixed += gain_fixed * error
        self.each += gain_each * error
        row_fixed, row_each = a + b * size, b + c * size
        a, b, c = a - gain_fixed * row_fixed, b - gain_fixed * row_each, c - gain_each * row_each
        forget = FORGETTING if (a + c) / FORGETTING < UNSURE_MOST else 1.0
        self._fixed_var, self._both_var, self._each_var = a / forget, b / forget, c / forget
        self.samples += 1

    def expect(self, size: int) -> Duration:
        """Time of a batch; 0: nothing is known."""
        if not self.samples:
            return 0
        each = max(0.0, self.each)
        return max(0, int(max(0.0, self.fixed) + each * size))


@dataclass(slots=True)
class Rate:
    """Inputs that arrive per second, an average over the last few tenths."""

    per_second: float = 0.0
    count: int = 0  # since
    since: Instant = 0

    def add(self, now: Instant, inputs: int) -> None:
        """So many came."""
        passed = now - self.since
        if passed >= RATE_WINDOW:
            seen = self.count * SECOND / passed
            weight = 0.3 if passed < 10 * RATE_WINDOW else 1.0
            self.per_second += (seen - self.per_second) * weight
            self.count, self.since = 0, now
        self.count += inputs


def time_of(engine: Engine, model: str) -> BatchTime:
    """The line, made from the profile where nothing was measured yet."""
    known = engine.batch_times.get(model)
    if known is None:
        known = engine.batch_times[model] = BatchTime()
        spec = engine.models[model]
        for size, took in spec.batch_times:
            known.learn(size, took)
        if not spec.batch_times and spec.configured_service:
            known.learn(1, spec.configured_service)
    return known


def batch_over(state: State, batch: Batch) -> None:
    """All items of a static batch have ended: learn from one that succeeded and had the engine."""
    succeeded = all(a.state is AttemptState.SUCCEEDED for a in batch.attempts)
    if not succeeded or batch.behind or batch.model not in batch.engine.models:
        return
    size = sum(a.inputs for a in batch.attempts)
    took = state.now - batch.created_at
    known = time_of(batch.engine, batch.model)
    known.learn(size, took)
    known.size_limit = state.policies.former.resize(
        known.size_limit or batch.engine.max_batch, batch.engine.max_batch, size, took
    )
