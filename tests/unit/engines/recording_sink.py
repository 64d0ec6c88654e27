"""What did an engine report, and did it keep the rules while it did? A sink that checks each call.

It fails the test at once when an engine breaks a rule of `interface.py`: a second end, a call
after the end, a call from another thread, half a code point.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import Engine, Item, Result

PATIENCE_S = 20.0  # for what must happen, but not within a stated time


class RecordingSink:
    """Keeps all reports of one engine, by dispatch id."""

    def __init__(self) -> None:
        self.submitted: set[int] = set()
        self.started: dict[int, int] = {}  # batch size, by dispatch id
        self.texts: dict[int, dict[tuple[int, int], str]] = defaultdict(lambda: defaultdict(str))
        self.pieces: dict[int, list[str]] = defaultdict(list)
        self.delta_tokens: dict[int, int] = defaultdict(int)
        self.extras: dict[int, list[tuple[int, int, types_pb2.DeltaExtra]]] = defaultdict(list)
        self.results: dict[int, Result] = {}
        self.faults: list[str] = []
        self.changes = 0
        self._thread = threading.get_ident()
        self._news = asyncio.Event()

    def running(self, dispatch_id: int, batch_size: int) -> None:
        self._check(dispatch_id, "running")
        if dispatch_id in self.started:
            self.faults.append(f"running twice: {dispatch_id}")
        self.started[dispatch_id] = batch_size
        self._news.set()

    def delta(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        self._check(dispatch_id, "delta")
        text.encode("utf-8")  # raises on half a code point
        self.texts[dispatch_id][choice, channel] += text
        self.pieces[dispatch_id].append(text)
        self.delta_tokens[dispatch_id] += tokens
        self._news.set()

    def extra(
        self, dispatch_id: int, choice: int, channel: int, extra: types_pb2.DeltaExtra
    ) -> None:
        self._check(dispatch_id, "extra")
        if extra.HasField("tool_call") and self.texts[dispatch_id].get((choice, channel)):
            self.faults.append(f"arguments before the head of a tool call: {dispatch_id}")
        self.extras[dispatch_id].append((choice, channel, extra))
        self._news.set()

    def freed(self, dispatch_ids: Sequence[int]) -> None:
        for dispatch_id in dispatch_ids:
            self._check(dispatch_id, "freed")

    def finished(self, dispatch_id: int, result: Result) -> None:
        self._check(dispatch_id, "finished")
        self.results[dispatch_id] = result
        self._news.set()

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def changed(self) -> None:
        self.changes += 1
        self._news.set()

    def _check(self, dispatch_id: int, call: str) -> None:
        if threading.get_ident() != self._thread:
            self.faults.append(f"{call} from another thread")
        if dispatch_id not in self.submitted:
            self.faults.append(f"{call} of an item that was never submitted: {dispatch_id}")
        if dispatch_id in self.results:
            self.faults.append(f"{call} after the end: {dispatch_id}")

    async def until(self, condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        """Wait until `condition` holds; it is looked at on every report, and often besides."""
        async with asyncio.timeout(within_s):
            while not condition():
                self._news.clear()
                try:
                    async with asyncio.timeout(0.02):
                        await self._news.wait()
                except TimeoutError:
                    continue

    async def end(self, dispatch_id: int, within_s: float = PATIENCE_S) -> Result:
        """Wait for the end of one item."""
        await self.until(lambda: dispatch_id in self.results, within_s)
        return self.results[dispatch_id]


class Bench:
    """One started engine and its sink: submit, wait, look.

    `params`: GenerationParams of every item that does not say otherwise.
    """

    def __init__(
        self, engine: Engine, model: str, params: Mapping[str, object] | None = None
    ) -> None:
        self.engine = engine
        self.model = model
        self.params = params or {}
        self.sink = RecordingSink()
        self._last_id = 0

    def item(
        self,
        prompt: str = "hello",
        *,
        stream: bool = False,
        attempt: int = 1,
        request: inference_pb2.InferenceRequest | None = None,
        continuation: node_service_pb2.Continuation | None = None,
        **params: object,
    ) -> Item:
        """Return a new item; `params` are those of GenerationParams."""
        self._last_id += 1
        if request is None:
            request = inference_pb2.InferenceRequest(text=inference_pb2.TextInput(prompt=prompt))
        given = {**self.params, **params}
        request.params.MergeFrom(inference_pb2.GenerationParams(**given))  # type: ignore[arg-type]
        return Item(
            dispatch_id=self._last_id,
            attempt=attempt,
            model=self.model,
            request=request,
            max_tokens=0,
            stream=stream,
            priority=5,
            continuation=continuation,
        )

    def submit(self, *items: Item, atomic: bool = False) -> list[int]:
        """Submit items; return their dispatch ids."""
        ids = [item.dispatch_id for item in items]
        self.sink.submitted.update(ids)
        self.engine.submit(items, atomic=atomic)
        return ids

    async def run(self, item: Item) -> Result:
        """Submit one item and wait for its end."""
        (dispatch_id,) = self.submit(item)
        return await self.sink.end(dispatch_id)

    async def cancel(self, dispatch_id: int) -> Result:
        """Cancel a client's item and return its end, which must come within a second."""
        self.engine.cancel(dispatch_id, types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)
        return await self.sink.end(dispatch_id, within_s=1.0)

    async def until_idle(self, within_s: float = 1.0) -> None:
        """Wait until the engine, by its own count, runs and keeps nothing."""
        await self.sink.until(lambda: is_idle(self.engine), within_s)


@asynccontextmanager
async def serving(
    engine: Engine, model: str, params: Mapping[str, object] | None = None
) -> AsyncIterator[Bench]:
    """Start `engine`, and stop it at the end. It must have kept every rule, for every item."""
    bench = Bench(engine, model, params)
    try:
        await engine.start(bench.sink)
        yield bench
    finally:
        await engine.stop(0)
    assert bench.sink.faults == []
    assert bench.sink.submitted == bench.sink.results.keys()


def is_idle(engine: Engine) -> bool:
    """Tell whether the engine says that nothing runs or waits."""
    load = engine.load()
    return load.running == 0 and not load.waiting and not load.kv_utilization


def joined(result: Result, choice: int = 0) -> str:
    """Return the text of one choice; "" where there is none."""
    return "".join(output.text for output in result.outputs if output.index == choice)
