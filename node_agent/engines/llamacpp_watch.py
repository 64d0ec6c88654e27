"""Does the server answer, and how full is it? Looks at it on a fixed beat.

`/health` tells whether it lives, `/slots` what it runs. KV use is counted from the slots that work:
idle ones keep old prompts as a cache, which costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import aiohttp

_LOOK_TIMEOUT_S = 1.0


@dataclass(slots=True)
class Sample:
    """One look; None: not known."""

    running: int | None = None
    deferred: int | None = None
    kv_utilization: float | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None


def sum_up(samples: Sequence[Sample]) -> Sample:
    """The load of several servers in all; what one of them does not tell is not known."""

    def total(name: str) -> Any:
        values = [getattr(sample, name) for sample in samples]
        return sum(values) if values and None not in values else None

    summed = Sample(**{field.name: total(field.name) for field in fields(Sample)})
    if summed.kv_utilization is not None:
        summed.kv_utilization /= len(samples)  # all have as much
    return summed


class Watch:
    """The last look at one server, and when it last answered."""

    def __init__(self, session: aiohttp.ClientSession, now: float) -> None:
        self._session = session
        self._answered_at = now
        self.sample = Sample()
        self.context_per_slot: int | None = None

    def silence_s(self, now: float) -> float:
        """Return how long it has not answered."""
        return now - self._answered_at

    async def look(self) -> bool:
        """Look once; tell whether it answered. Takes a second at most."""
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                async with self._session.get("/health") as response:
                    await response.read()
                self._answered_at = asyncio.get_running_loop().time()
                async with self._session.get("/slots") as response:
                    slots = await response.json() if response.status == 200 else None
                async with self._session.get("/metrics") as response:
                    metrics = await response.text() if response.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError, ValueError):
            self.sample = Sample()
            return False
        self.sample = _sample(slots, metrics)
        if slots:
            self.context_per_slot = slots[0]["n_ctx"]
        return True


def _sample(slots: list[dict[str, Any]] | None, metrics: str) -> Sample:
    values = _metrics(metrics)
    sample = Sample(
        prompt_tokens_per_s=values.get("llamacpp:prompt_tokens_seconds"),
        output_tokens_per_s=values.get("llamacpp:predicted_tokens_seconds"),
    )
    deferred = values.get("llamacpp:requests_deferred")
    sample.deferred = None if deferred is None else int(deferred)
    if slots:
        working = [slot for slot in slots if slot.get("is_processing")]
        held = sum(slot.get("n_prompt_tokens", 0) for slot in working)
        sample.running = len(working)
        sample.kv_utilization = min(1.0, held / sum(slot["n_ctx"] for slot in slots))
    return sample


def _metrics(text: str) -> dict[str, float]:
    """Return the values of a Prometheus text without labels, by name."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("llamacpp:"):
            values[name] = float(value)
    return values
