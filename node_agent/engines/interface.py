"""What must an engine be able to do, and what does it tell the agent?

One engine is a group of slots that its models share (the wire twin is `EngineDescriptor`). Engines
live on the agent's event loop and talk back through a `Sink`, by plain calls, never by a task
or an iterator per item.

Rules, held by `tests/contract/test_engines.py` for every engine:

- Every submitted item gets exactly one `Sink.finished`, whatever happens, cancelled ones too, and
  nothing after it.
- `Sink` methods are called on the event loop's thread only.
- `delta` texts are whole code points; joined per (choice, channel) they are the output.
- `cancel` frees the slot within 1 s; an unknown or finished id is ignored.
- The engine never raises from `submit` or `cancel` for a fault of an item: that item finishes with
  an `EngineError` and its neighbours go on.
- A load value that the engine does not know is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Protocol, runtime_checkable

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2


@dataclass(slots=True, kw_only=True)
class Item:
    """One dispatched attempt, parsed and checked by the agent."""

    dispatch_id: int
    attempt: int  # from 1
    model: str  # public name to serve, after any degrade
    request: inference_pb2.InferenceRequest
    max_tokens: int  # 0: the request's own, else the engine's default
    stream: bool  # False: no deltas are wanted
    priority: int  # 1..10, 10 most urgent
    continuation: node_service_pb2.Continuation | None = None
    timeout_s: float | None = None  # time left when it was received; None: no deadline
    traceparent: str = ""  # of the agent's engine span; empty: not sampled
    url_path: str = ""  # of the HTTP request that an engine makes of it; set by the engine


@dataclass(slots=True, kw_only=True)
class EngineError:
    """Why an item failed. `refused` means it was never started and may go elsewhere uncharged."""

    reason: types_pb2.ErrorReason
    message: str
    field: str = ""
    metadata: dict[str, str] = dataclass_field(default_factory=dict)
    refused: bool = False


@dataclass(slots=True, kw_only=True)
class Result:
    """The end of one item. `outputs` is what was produced, also where it was streamed or cut."""

    finish_reason: types_pb2.FinishReason
    outputs: Sequence[inference_pb2.Output] = ()
    error: EngineError | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    engine_queue_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Load:
    """What the engine knows of itself now; None is unknown."""

    health: node_service_pb2.EngineHealth
    message: str = ""  # why it is not SERVING
    remedy: str = ""  # what to do about that; empty: wait, for all that is known
    running: int | None = None  # by the engine's own count
    waiting: int | None = None
    kv_utilization: float | None = None  # 0..1
    prefix_cache_hit_ratio: float | None = None  # 0..1
    prefill_backlog_tokens: int | None = None  # of prompts that it holds, not taken in yet
    preemptions: int | None = None  # inside the engine, since its start
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    model_states: dict[str, types_pb2.ModelState] = dataclass_field(default_factory=dict)
    # As configured; what was measured, the agent keeps.
    profiles: dict[str, node_service_pb2.ServiceProfile] = dataclass_field(default_factory=dict)


class Sink(Protocol):
    """Where an engine reports. One per engine, given at `start`."""

    def running(self, dispatch_id: int, batch_size: int) -> None:
        """The item began to run, with `batch_size` inputs in all (itself included)."""

    def delta(self, dispatch_id: int, choice: int, channel: int, text: str, tokens: int) -> None:
        """Output of a streamed item. `channel` as in `TokenDeltas`; `tokens` 0: not known."""

    def extra(
        self, dispatch_id: int, choice: int, channel: int, extra: types_pb2.DeltaExtra
    ) -> None:
        """A rare row of a streamed item, before the output that it belongs to: the head of a tool
        call (which opens its channel), or log probabilities. Its id and position are filled in."""

    def freed(self, dispatch_ids: Sequence[int]) -> None:
        """The slots of these are free; the end of each follows as soon as it is made. Worth saying
        where a batch ends and the loop turns before the first `finished`: so the next batch is on
        its way while results are made of this one.
        """

    def finished(self, dispatch_id: int, result: Result) -> None:
        """The item's end; its slot is free, if it was not before."""

    def together(self) -> AbstractContextManager[None]:
        """For what happens in one moment, as the ends of a batch: what is said inside is acted on
        as a whole when the block ends, which costs less and answers with one message.
        """
        ...

    def changed(self) -> None:
        """Health, models or slots changed: describe and report again, soon."""


class Engine(Protocol):
    """An engine under the agent's care."""

    def describe(self) -> node_service_pb2.EngineDescriptor:
        """Identity, mode, slots and models, as they are now."""
        ...

    def load(self) -> Load:
        """Load and health now. Cheap: called on every report."""
        ...

    async def start(self, sink: Sink) -> None:
        """Start and warm up. Returns when the first model can serve.

        Raises:
            EngineStartError: it cannot serve; the text says what to do.
        """

    async def stop(self, grace_s: float) -> None:
        """Stop; what still runs after `grace_s` seconds finishes with ENGINE_UNAVAILABLE."""

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:
        """Run these. `atomic`: as one engine batch (static engines), else each as it can."""

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        """Stop this item; it then finishes with FINISH_REASON_CANCELLED and what it has so far."""


@runtime_checkable
class Parent(Protocol):
    """An engine whose server is a child of the agent, or several."""

    @property
    def pids(self) -> Sequence[int]:
        """Of the children that run now."""
        ...


@runtime_checkable
class ModelKeeper(Protocol):
    """An engine that can load and unload models while it works.

    A model is described and LOADING from the call of `load_model` on, and ACTIVE once it answered
    a first request; one that is gone is not described any more. What could be loaded by its name
    alone is AVAILABLE in `Load.model_states`.
    """

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """Return when the model serves. Cancelled, it is as if it had never been asked for.

        Raises:
            ModelRefused: it cannot be loaded, and is gone again.
        """

    def why_not_unload(self, model: str) -> EngineError | None:
        """Why this described model cannot be unloaded; None: it can. Asked before it is drained."""
        ...

    async def unload_model(self, model: str) -> None:
        """Return when the model is gone. None of its items is held when this is called.

        Raises:
            ModelRefused: it stays.
        """


class ModelRefused(Exception):
    """A model cannot be loaded or unloaded; the error says why, and what to do."""

    def __init__(self, error: EngineError) -> None:
        super().__init__(error.message)
        self.error = error


class EngineStartError(Exception):
    """The engine cannot serve. The message says what was tried and what to do."""
