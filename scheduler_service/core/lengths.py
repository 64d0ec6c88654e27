"""How long will an output be? The p90 of what this tenant got from this model lately.

Callers state the most that they allow, which is far more than models say; memory reserved for that
stands empty. Off unless configured (`queue.learn_lengths`).
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core.types import Request

SHARE: Final = 0.9
FEWEST: Final = 20  # outputs before a p90 is told
MEMORY: Final = 1_000  # outputs; then all counts are halved, so that old ones fade
KEYS: Final = 10_000  # of (model, tenant); beyond, the model's own histogram is asked
PER_OCTAVE: Final = 4  # buckets from one power of two to the next: 19 % wide
_BUCKETS: Final = 24 * PER_OCTAVE


class Histogram:
    """Counts of lengths in buckets of equal ratio."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.total = 0

    def add(self, tokens: int) -> None:
        """One output of `tokens`, 1 or more."""
        self._counts[_bucket(tokens)] += 1
        self.total += 1
        if self.total >= MEMORY:
            self._counts = [count // 2 for count in self._counts]
            self.total = sum(self._counts)

    def quantile(self, share: float) -> int:
        """A length that `share` of all do not exceed: the upper end of its bucket."""
        rest = share * self.total
        for bucket, count in enumerate(self._counts):
            rest -= count
            if rest <= 0:
                return _upper(bucket)
        return _upper(_BUCKETS - 1)


class Lengths:
    """Histograms by model and tenant, and by model for tenants of whom little is known."""

    __slots__ = ("_by_model", "_by_tenant")

    def __init__(self) -> None:
        self._by_model: dict[str, Histogram] = {}
        self._by_tenant: dict[tuple[str, str], Histogram] = {}

    def learn(self, request: Request, model: str, tokens: int) -> None:
        """An output of one choice ended by itself."""
        if tokens <= 0 or request.inputs != 1:
            return
        if model not in self._by_model:
            self._by_model[model] = Histogram()
        self._by_model[model].add(tokens)
        key = model, request.tenant or request.user_id
        known = self._by_tenant.get(key)
        if known is None:
            if len(self._by_tenant) >= KEYS:
                return
            known = self._by_tenant[key] = Histogram()
        known.add(tokens)

    def expect(self, request: Request) -> None:
        """Lower what the request states to the p90; where it states nothing, state that."""
        likely = self.likely(request.model, request.tenant or request.user_id)
        if likely and request.inputs == 1:
            stated = request.output_tokens
            request.output_tokens = min(stated, likely) if stated else likely

    def likely(self, model: str, user: str) -> int:
        """The p90 in tokens; 0: too little is known."""
        for known in (self._by_tenant.get((model, user)), self._by_model.get(model)):
            if known is not None and known.total >= FEWEST:
                return known.quantile(SHARE)
        return 0


def _bucket(tokens: int) -> int:
    """Of 2^k * (1 + j / PER_OCTAVE) <= tokens: k * PER_OCTAVE + j. Whole numbers only."""
    octave = tokens.bit_length() - 1
    part = ((tokens - (1 << octave)) * PER_OCTAVE) >> octave
    return min(_BUCKETS - 1, octave * PER_OCTAVE + part)


def _upper(bucket: int) -> int:
    """The largest length in it, or its smallest where it holds less than one."""
    octave, part = divmod(bucket + 1, PER_OCTAVE)
    ends = ((PER_OCTAVE + part) << octave) // PER_OCTAVE
    exact = ((PER_OCTAVE + part) << octave) % PER_OCTAVE == 0
    return max(1, ends - 1 if exact else ends)
