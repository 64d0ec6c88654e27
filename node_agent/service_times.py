"""How fast does an engine serve, as measured on its own work?

Static engines: the time of a batch by its size. Continuous ones: time per output token of an item,
by how many inputs ran when it started. Older samples fade, so a slowed engine shows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from batchyard.v1 import node_service_pb2 as node
from node_agent.rpc import durations

# A mean over neighbours is good enough above 8, and keeps a report small.
CONCURRENCIES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
PROMPT_LEAST = 64  # tokens of a prompt that tells a rate
MEMORY = 50  # samples after which a new one weighs 1/50


@dataclass(slots=True)
class Mean:
    """A mean in which old samples fade."""

    value: float = 0.0
    samples: int = 0

    def add(self, sample: float) -> None:
        """Take one more sample in."""
        self.samples += 1
        self.value += (sample - self.value) / min(self.samples, MEMORY)


@dataclass(slots=True)
class ModelTimes:
    """What was measured of one model."""

    prefill_tokens_per_s: Mean = field(default_factory=Mean)
    points: dict[int, Mean] = field(default_factory=dict)  # by concurrency


class ServiceTimes:
    """Measured times of one engine, by model."""

    def __init__(self) -> None:
        self._models: dict[str, ModelTimes] = {}

    def add_run(self, model: str, concurrency: int, seconds: float) -> None:
        """One batch, or one output token of one item, took this long."""
        if concurrency < 1 or seconds < 0:
            return
        bucket = CONCURRENCIES[bisect_right(CONCURRENCIES, concurrency) - 1]
        points = self._of(model).points
        mean = points.get(bucket)
        if mean is None:
            mean = points[bucket] = Mean()
        mean.add(seconds)

    def add_prefill(self, model: str, tokens: int, seconds: float) -> None:
        """A prompt of so many tokens took this long. Short ones do not count: what they take is
        mostly the same for any prompt, and a rate made of it would hold back all that could run.
        """
        if tokens >= PROMPT_LEAST and seconds > 0:
            self._of(model).prefill_tokens_per_s.add(tokens / seconds)

    def _of(self, model: str) -> ModelTimes:
        times = self._models.get(model)
        if times is None:
            times = self._models[model] = ModelTimes()
        return times

    def profiles(self) -> dict[str, node.ServiceProfile]:
        """What to report; a model without samples is not in it."""
        return {name: _profile(times) for name, times in self._models.items()}


def _profile(times: ModelTimes) -> node.ServiceProfile:
    profile = node.ServiceProfile()
    if times.prefill_tokens_per_s.samples:
        profile.prefill_tokens_per_second = times.prefill_tokens_per_s.value
    for concurrency, mean in sorted(times.points.items()):
        point = profile.points.add(concurrency=concurrency, samples=mean.samples)
        point.time.CopyFrom(durations.from_s(mean.value))
    return profile
