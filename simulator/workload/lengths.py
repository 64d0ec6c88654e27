"""How long are prompts and outputs, where a trace does not say? Presets, drawn with a generator."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Sequence
from random import Random

from simulator.workload.errors import TraceError
from simulator.workload.traces import DATA, load

Lengths = Callable[[Random], tuple[int, int]]  # -> (prompt, output) tokens


def fixed(prompt: int, output: int) -> Lengths:
    """Always the same."""
    return lambda _random: (prompt, output)


def log_normal(prompt: float, output: float, *, sigma: float = 1.0, most: int = 8192) -> Lengths:
    """Independent, with these means (of the law before `most` cuts it off)."""
    shift = sigma * sigma / 2

    def draw(random: Random) -> tuple[int, int]:
        pair = []
        for mean in (prompt, output):
            value = random.lognormvariate(math.log(mean) - shift, sigma)
            pair.append(max(1, min(most, round(value))))
        return pair[0], pair[1]

    return draw


def empirical(pairs: Sequence[tuple[int, int]]) -> Lengths:
    """Pairs of a trace, drawn with repetition: prompt and output stay together."""
    return lambda random: pairs[random.randrange(len(pairs))]


def _of_trace(name: str) -> Lengths:
    return empirical([(a.prompt_tokens, a.output_tokens) for a in load(name)])


def _arxiv() -> Lengths:
    path = DATA / "arxiv_summarization_lengths.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return empirical(
            [(int(r["num_prefill_tokens"]), int(r["num_decode_tokens"])) for r in rows]
        )


PRESETS: dict[str, Callable[[], Lengths]] = {
    "azure-conv": lambda: _of_trace("azure-conv"),
    "azure-code": lambda: _of_trace("azure-code"),
    "mooncake": lambda: _of_trace("mooncake"),
    "arxiv": _arxiv,
    "sharegpt": lambda: log_normal(161, 338),
    "chat-long": lambda: log_normal(1730, 415),
    "summaries": lambda: log_normal(7059, 208, sigma=0.5, most=16384),
}


def preset(name: str) -> Lengths:
    """The preset of that name.

    Raises:
        TraceError: there is none.
    """
    if name not in PRESETS:
        raise TraceError(f"no lengths {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]()
