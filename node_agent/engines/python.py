"""How does a user's own function serve? In batches, each in one call, in processes of their own.

Static: which items make a batch, and how they end, is in `python_batches.py`. A worker that dies
takes its batch with it and nothing else, and is started again (`python_workers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.faults import (
    ItemFailed,
    busy,
    invalid,
    unavailable,
    unknown_model,
    unsupported,
)
from node_agent.engines.interface import (
    EngineError,
    EngineStartError,
    Item,
    Load,
    ModelRefused,
    Sink,
)
from node_agent.engines.python_batches import Held, PythonBatches
from node_agent.engines.python_options import PythonOptions
from node_agent.engines.python_worker import PythonWorker, WorkerLost
from node_agent.engines.python_workers import PythonWorkers

STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
_STATES = {
    STARTING: types_pb2.MODEL_STATE_LOADING,
    SERVING: types_pb2.MODEL_STATE_ACTIVE,
    DOWN: types_pb2.MODEL_STATE_FAILED,
}
_KINDS = frozenset({"text", "chat", "tokens", "tensors", "embedding", "raw"})


class PythonEngine:
    """An engine of kind `python`."""

    def __init__(self, engine_id: str, options: PythonOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._model = options.public_name
        self._workers = PythonWorkers(options, changed=self._on_worker, freed=self._on_freed)
        self._batches = PythonBatches(options, self._workers)
        self._health = STARTING
        self._unloaded = False  # on the scheduler's word: no process of it runs
        self._loading = False
        self._sink: Sink | None = None
        self._stopping = False  # nothing new is taken; what is held goes on within the grace

    @property
    def workers(self) -> Sequence[PythonWorker]:
        """Its workers."""
        return self._workers.all

    @property
    def pids(self) -> list[int]:
        """Of its workers' processes."""
        return self._workers.pids

    def describe(self) -> node_service_pb2.EngineDescriptor:
        model = node_service_pb2.ModelDescriptor(
            model=self._model, task_types=self._options.task_types
        )
        shown = not self._unloaded or self._loading
        return node_service_pb2.EngineDescriptor(
            engine_id=self._engine_id,
            kind="python",
            version=self._options.callable,
            mode=node_service_pb2.ENGINE_MODE_STATIC,
            slots=self._options.slots,
            max_batch_size=self._options.max_batch_size,
            look_ahead=self._options.look_ahead,
            models=[model] if shown else [],
        )

    def load(self) -> Load:
        return Load(
            health=self._health,
            message=self._workers.message,
            running=self._batches.running_inputs,
            waiting=self._batches.waiting_inputs,
            model_states={self._model: self._model_state()},
        )

    def _model_state(self) -> types_pb2.ModelState:
        if self._loading:
            return types_pb2.MODEL_STATE_LOADING
        return types_pb2.MODEL_STATE_AVAILABLE if self._unloaded else _STATES[self._health]

    async def start(self, sink: Sink) -> None:
        self._batches.start(sink)
        self._sink = sink
        try:
            await self._workers.start()
        except WorkerLost as lost:
            self._health = DOWN
            raise EngineStartError(f"{self._options.callable} cannot serve: {lost}") from lost
        self._workers.review()

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """Start its processes again, after it was unloaded; another model it does not have."""
        if model != self._model or options:
            text = f"this engine serves {self._model!r}, as its agent was started, and no other"
            raise ModelRefused(unsupported("", "load_model", text).error)
        self._loading = True
        self._workers.review()
        try:
            await self._workers.start()
        except WorkerLost as lost:
            raise ModelRefused(unavailable(str(lost))) from lost
        finally:
            self._loading = False
        self._unloaded = False
        self._workers.review()

    def why_not_unload(self, model: str) -> EngineError | None:  # noqa: ARG002
        """It always can be."""
        return None

    async def unload_model(self, model: str) -> None:  # noqa: ARG002
        """End its processes; what they hold in memory is free."""
        self._unloaded = True
        await self._workers.stop()
        self._workers.review()

    async def stop(self, grace_s: float) -> None:
        self._stopping = True
        await self._batches.wait_until_empty(grace_s)
        self._workers.retire()
        await self._batches.close("the engine was stopped")
        await self._workers.stop()
        self._health = DOWN

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:
        batch: list[Held] = []
        batches, options = self._batches, self._options
        held_inputs = batches.running_inputs + batches.waiting_inputs
        room = options.slots + options.look_ahead - held_inputs
        for item in items:
            try:
                held = self._admit(item, room)
            except ItemFailed as failure:
                batches.refuse(item, failure.error)
                continue
            room -= held.inputs
            batch.append(held)
        batches.submit(batch, atomic=atomic)

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        self._batches.cancel(dispatch_id, reason)

    def _admit(self, item: Item, room: int) -> Held:
        if self._stopping or self._health != SERVING:
            why = self.load().message or "it starts or stops"
            raise ItemFailed(unavailable(f"the engine does not serve: {why}", refused=True))
        if item.model != self._model or self._unloaded:
            raise ItemFailed(unknown_model(item.model, [self._model]))
        request, kind = item.request, item.request.WhichOneof("input")
        if kind is None:
            raise invalid("input", "there is no input")
        if kind not in _KINDS:
            raise unsupported(kind, kind, f"this engine takes no input of kind {kind!r}")
        if not getattr(request, kind).ByteSize():
            raise invalid(kind, "the input is empty")
        if item.continuation is not None and item.continuation.text:
            raise unsupported("continuation", "continuation", "a function's answer is whole")
        inputs = min(max(1, len(request.embedding.texts)), self._options.max_batch_size)
        if inputs > room:
            raise ItemFailed(busy(f"{inputs} inputs came; there is room for {max(0, room)}"))
        return Held(item, inputs, self._batches.now())

    def _on_freed(self) -> None:
        self._batches.start_waiting()

    def _on_worker(self) -> None:
        """Serving as long as one worker is there."""
        ready = any(worker.ready for worker in self._workers.all)
        health = SERVING if ready or self._unloaded else DOWN
        if self._health == STARTING and not all(worker.ready for worker in self._workers.all):
            return
        self._health = health
        if health == DOWN:
            self._batches.refuse_waiting(self.load().message)
        if self._sink is not None:
            self._sink.changed()
