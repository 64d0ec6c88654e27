"""Does the server live, and how full is it? One look, by the names in the table of traits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp

from node_agent.engines.openai_served import Served
from node_agent.engines.openai_traits import Metrics, below
from node_agent.engines.prometheus_text import Series, mean, read_metrics, total
from node_agent.engines.told_values import amount, count

LOOK_S = 2.0  # the longest look
_DIGITS = 20  # of a number in a label that is read


@dataclass(slots=True, kw_only=True)
class Sample:
    """What one look saw; None: not known."""

    running: int | None = None
    waiting: int | None = None
    kv_utilization: float | None = None
    prefix_cache_hit_ratio: float | None = None
    preemptions: int | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    kv_capacity_tokens: int | None = None


class Looker:
    """Looks at one server, and remembers its counters for the rates between two looks."""

    def __init__(self, session: aiohttp.ClientSession, served: Served) -> None:
        self._session = session
        self._served = served
        self._counted: dict[str, tuple[float, float]] = {}  # instant and total, by metric
        self.sample = Sample()

    async def look(self) -> bool:
        """Tell whether it answered its health check; the rest is taken as far as it is there.

        Raises:
            aiohttp.ClientConnectorError: nothing listens there: it is gone.
        """
        traits = self._served.traits
        try:
            async with asyncio.timeout(LOOK_S):
                async with self._session.get(below(traits.health)) as response:
                    await response.read()
                    if response.status >= 500:
                        return False
                text = await self._text(traits.metrics.path)
                slots = await self._slots(traits.slots_path)
        except aiohttp.ClientConnectorError:
            self.sample = Sample()
            raise
        except (aiohttp.ClientError, TimeoutError):
            self.sample = Sample()
            return False
        self.sample = self._read(text)
        if slots:
            _add_slots(self.sample, slots)
        return True

    async def _text(self, path: str) -> str:
        if not path:
            return ""
        async with self._session.get(below(path)) as response:
            return await response.text(errors="replace") if response.status == 200 else ""

    async def _slots(self, path: str) -> list[dict[str, Any]]:
        if not path:
            return []
        async with self._session.get(below(path)) as response:
            try:
                slots = await response.json() if response.status == 200 else []
            except ValueError:
                return []
        return [slot for slot in slots if isinstance(slot, dict)] if type(slots) is list else []

    def _read(self, text: str) -> Sample:
        names, capacity = self._served.traits.metrics, self._served.traits.kv_capacity
        found = read_metrics(text, _wanted(names) | {capacity.metric if capacity else ""})
        ratio = mean(found, names.prefix_hit_ratio)
        if ratio is None:
            asked, hits = total(found, names.prefix_queries_total), None
            if asked:
                hits = total(found, names.prefix_hits_total)
            ratio = hits / asked if asked and hits is not None else None
        return Sample(
            running=_whole(total(found, names.running)),
            waiting=_whole(total(found, names.waiting)),
            kv_utilization=_share(mean(found, names.kv_utilization)),
            prefix_cache_hit_ratio=_share(ratio),
            preemptions=_whole(total(found, names.preemptions)),
            prompt_tokens_per_s=self._rate("prompt", total(found, names.prompt_tokens_total)),
            output_tokens_per_s=self._rate("output", total(found, names.output_tokens_total)),
            kv_capacity_tokens=_product(found, capacity.metric, capacity.labels)
            if capacity
            else None,
        )

    def _rate(self, name: str, count: float | None) -> float | None:
        """Growth per second since the last look; None: first look, or the engine began anew."""
        if count is None:
            return None
        now = asyncio.get_running_loop().time()
        at, before = self._counted.get(name, (now, count))
        self._counted[name] = (now, count)
        return (count - before) / (now - at) if now > at and count >= before else None


def _wanted(names: Metrics) -> set[str]:
    listed = (value for key, value in names if key != "path")
    return {name for group in listed for name in group}


def _whole(value: float | None) -> int | None:
    return None if value is None else count(int(value))


def _share(value: float | None) -> float | None:
    return None if value is None else min(1.0, max(0.0, value))


def _product(found: dict[str, list[Series]], metric: str, labels: tuple[str, ...]) -> int | None:
    """The sum over the engine's processes of the product of these labels."""
    tokens = 0
    for series in found.get(metric, ()):
        product = 1
        for label in labels:
            number = series.labels.get(label, "")
            if not (number.isascii() and number.isdigit()):
                return None
            product *= int(number[:_DIGITS])
        tokens += product
    return amount(tokens)


def _add_slots(sample: Sample, slots: list[dict[str, Any]]) -> None:
    """llama.cpp's slots: idle ones keep old prompts as a cache, which costs nothing."""
    working = [slot for slot in slots if slot.get("is_processing")]
    room = sum(count(slot.get("n_ctx")) or 0 for slot in slots)
    held = sum(count(slot.get("n_prompt_tokens")) or 0 for slot in working)
    sample.running = len(working)
    if room:
        sample.kv_utilization = min(1.0, held / room)
