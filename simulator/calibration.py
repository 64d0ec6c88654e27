"""How long does an iteration of a real engine take? Measured tables, and which one a plan used.

Two sources, and the truth lies between them:

- "2023": end to end on the software of 2023 (Splitwise's measurements, medians per point; decode
  was bound by the CPU there). `data/calibration_splitwise_perf_model.csv.gz` holds them, and a test
  computes these figures from it anew.
- "linear": the linear operators alone (Vidur's profiles times layers), without attention, without
  all-reduce, without CPU: a lower bound. "2025" is those times 1.25 plus 2 ms an iteration, a guess
  at a present stack.

An iteration takes base + per_sequence * batch + per_context * context tokens for its decodes, plus
the prefill of its chunk by total tokens, interpolated, for a straight line through these points is
off by 30 to 40 %. Whole picoseconds, so that n iterations in one go are exactly n single ones.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

from scheduler_service.core.types import SECOND, Duration

PS_PER_MS: Final = 1_000_000_000
PS_PER_NS: Final = 1_000
PS_PER_S: Final = 1_000_000_000_000


@dataclass(frozen=True)
class IterationCost:
    """What iterations of one model on one kind of node cost, in picoseconds."""

    source: str  # which table
    base: int
    per_sequence: int
    per_context_token: int
    prefill: tuple[tuple[int, int], ...]  # (tokens in the iteration, ps), ascending

    def decode(self, batch: int, context: int, iterations: int = 1) -> int:
        """So many iterations on end of `batch` sequences that hold `context` tokens at first.

        Each iteration reads what the former ones have added: a sum in closed form.
        """
        n = iterations
        read = n * context + batch * (n * (n - 1) // 2)
        return n * (self.base + self.per_sequence * batch) + self.per_context_token * read

    def prefill_of(self, tokens: int, *, beside_decodes: bool) -> int:
        """Prompt tokens in one iteration, interpolated; the last slope goes on for ever.

        Few tokens alone take as long as the first point (the launch is what costs); beside decodes,
        which pay for the launch, they cost their share of it.
        """
        points = self.prefill
        first_tokens, first = points[0]
        if tokens <= first_tokens:
            return first * tokens // first_tokens if beside_decodes else first
        at = min(bisect.bisect_left(points, (tokens, 0)), len(points) - 1)
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (tokens - x0) // (x1 - x0)


@dataclass(frozen=True)
class Hardware:
    """A model on a kind of node."""

    cost: IterationCost
    gpu: str
    gpus: int
    kv_tokens: int
    weights_gb: int

    def prefill_rate(self) -> float:
        """Prompt tokens per second, at 2,048 of them: what an agent would state."""
        return 2048 / (self.cost.prefill_of(2048, beside_decodes=False) / PS_PER_S)

    def token_times(self, slots: int) -> tuple[tuple[int, Duration], ...]:
        """(sequences, time per token) at 1,000 tokens of context each: likewise."""
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128) if size < slots] + [slots]
        return tuple((n, self.cost.decode(n, 1000 * n) // PS_PER_NS) for n in sizes)

    def cold_start(self) -> Duration:
        """From the order to the hello: 10 s to start, weights at 2 GB/s, 40 s for the engine."""
        return 50 * SECOND + self.weights_gb * SECOND // 2


# Round figures per GPU and hour, to weigh kinds against each other; state your own in a fleet.
GPU_PRICE: Final = {"A100": 2.0, "H100": 3.0}
_GPU_BYTES: Final = 80_000_000_000


def kv_tokens(gpus: int, weights_gb: int, bytes_per_token: int) -> int:
    """What fits into nine tenths of the memory beside the weights."""
    return (gpus * _GPU_BYTES * 9 // 10 - weights_gb * 1_000_000_000) // bytes_per_token


def _ms(value: float) -> int:
    return round(value * PS_PER_MS)


def _measured(
    base: float, per_sequence: float, per_context: float, prefill: tuple[float, ...]
) -> IterationCost:
    """A row of the table of 2023; prefill at 512, 1,024, ... 8,192 tokens. All in ms."""
    points = tuple((512 << i, _ms(value)) for i, value in enumerate(prefill))
    return IterationCost("2023", _ms(base), _ms(per_sequence), _ms(per_context), points)


def _linear(
    step: tuple[float, float], prefill: tuple[float, float, float], slope: float, per_context: float
) -> IterationCost:
    """Decode step at 1 and 64 tokens, prefill at 512, 2,048 and 4,096, slope beyond. All in ms."""
    per_sequence = (step[1] - step[0]) / 63
    points = [(512, prefill[0]), (2048, prefill[1]), (4096, prefill[2])]
    points.append((8192, prefill[2] + 4096 * slope))
    return IterationCost(
        "linear",
        _ms(step[0] - per_sequence),
        _ms(per_sequence),
        _ms(per_context),
        tuple((tokens, _ms(value)) for tokens, value in points),
    )


def present_stack(linear: IterationCost) -> IterationCost:
    """The "2025" guess: a quarter more, and 2 ms an iteration."""
    extra = _ms(2)
    return IterationCost(
        "2025",
        linear.base * 5 // 4 + extra,
        linear.per_sequence * 5 // 4,
        linear.per_context_token * 5 // 4,
        tuple((tokens, value * 5 // 4 + extra) for tokens, value in linear.prefill),
    )


_KV_70B, _KV_8B, _KV_7B, _KV_BLOOM = 320 << 10, 128 << 10, 512 << 10, 4_014_080

MEASURED_2023: Final = {
    "H100-70B": Hardware(
        _measured(29.6, 0.198, 2.2e-4, (54, 78, 137, 390, 845)),
        "H100", 8, kv_tokens(8, 140, _KV_70B), 140,
    ),
    "H100x4-70B": Hardware(
        _measured(28.8, 0.272, 1.0e-4, (60, 106, 201, 464, 954)),
        "H100", 4, kv_tokens(4, 140, _KV_70B), 140,
    ),
    "A100-70B": Hardware(
        _measured(43.7, 0.187, 4.0e-4, (93, 155, 274, 661, 1550)),
        "A100", 8, kv_tokens(8, 140, _KV_70B), 140,
    ),
    "A100x4-70B": Hardware(
        _measured(43.1, 0.170, 4.6e-4, (127, 227, 403, 965, 2279)),
        "A100", 4, kv_tokens(4, 140, _KV_70B), 140,
    ),
    "H100-BLOOM176B": Hardware(
        _measured(35.4, 0.288, 2.2e-4, (76, 133, 253, 689, 1535)),
        "H100", 8, kv_tokens(8, 352, _KV_BLOOM), 352,
    ),
}  # fmt: skip

LINEAR: Final = {
    "A100x1-8B": Hardware(
        _linear((9.7, 11.2), (35, 144, 273), 0.067, 9.2e-5),
        "A100", 1, kv_tokens(1, 16, _KV_8B), 16,
    ),
    "H100x1-7B": Hardware(
        _linear((5.6, 5.9), (12, 40, 83), 0.020, 2.2e-4),
        "H100", 1, kv_tokens(1, 14, _KV_7B), 14,
    ),
    "A100-70B": Hardware(
        _linear((14.3, 15.5), (52, 185, 355), 0.087, 2.9e-5),
        "A100", 8, kv_tokens(8, 140, _KV_70B), 140,
    ),
    "H100-70B": Hardware(
        _linear((8.4, 9.0), (18, 64, 122), 0.030, 1.8e-5),
        "H100", 8, kv_tokens(8, 140, _KV_70B), 140,
    ),
}  # fmt: skip
