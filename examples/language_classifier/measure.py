"""What does batching gain here? Texts per second by batch size, through the engine as it stands.

python examples/language_classifier/measure.py
"""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from batchyard.v1 import inference_pb2
from node_agent.engines.interface import Item
from node_agent.engines.registry import build_engine

TEXTS = ["The harbour was quiet", "Die Stadt schläft noch", "La mer est calme", "今天天气很好"]
SECONDS, ROUNDS = 1.0, 3


class Counter:
    """Counts ends."""

    def __init__(self) -> None:
        self.left = 0
        self.over = asyncio.Event()

    def finished(self, _dispatch_id: int, result: Any) -> None:
        assert result.error is None, result.error
        self.left -= 1
        if not self.left:
            self.over.set()

    def running(self, _dispatch_id: int, _size: int) -> None:
        """Not counted."""

    def changed(self) -> None:
        """Not counted."""


async def rate(size: int) -> float:
    """Return texts per second in batches of `size`."""
    options = {
        "callable": "classifier:LanguageClassifier",
        "path": str(Path(__file__).parent),
        "max_batch_size": size,
    }
    engine, counter = build_engine(engine_id="e", kind="python", options=options), Counter()
    await engine.start(counter)  # type: ignore[arg-type]
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + SECONDS:
        items = [_item(done + i) for i in range(size)]
        counter.left = size
        counter.over.clear()
        engine.submit(items, atomic=True)
        await counter.over.wait()
        done += size
    took_s = time.perf_counter() - began
    await engine.stop(0)
    return done / took_s


def _item(number: int) -> Item:
    text = inference_pb2.TextInput(prompt=f"{TEXTS[number % len(TEXTS)]} {number}")
    return Item(
        dispatch_id=number + 1,
        attempt=1,
        model="LanguageClassifier",
        request=inference_pb2.InferenceRequest(text=text),
        max_tokens=0,
        stream=False,
        priority=5,
    )


async def main() -> None:
    """Measure each size, interleaved; print medians."""
    sizes = (1, 4, 16, 64)
    rounds = [[await rate(size) for size in sizes] for _ in range(ROUNDS)]
    for size, rates in zip(sizes, zip(*rounds, strict=True), strict=True):
        print(f"batch of {size:2}: {statistics.median(rates):7.0f} texts/s")


if __name__ == "__main__":
    asyncio.run(main())
