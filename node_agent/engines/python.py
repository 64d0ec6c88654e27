"""How does a user's own function serve? In batches, each in one call, in processes of their own.

Static: a batch starts together and ends together, on one of the workers. Items that come loosely
are put together while the workers are busy. A cancelled item ends at once; when all of a running
batch are cancelled, the call is interrupted, and its process killed if that does not help. A worker
that dies takes its batch with it and nothing else, and is started again.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from node_agent.engines.grace import wait_within
from node_agent.engines.interface import (
    EngineError,
    EngineStartError,
    Item,
    Load,
    ModelRefused,
    Result,
    Sink,
)
from node_agent.engines.python_options import PythonOptions
from node_agent.engines.python_worker import PythonWorker, WorkerLost

STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
_STATES = {
    STARTING: types_pb2.MODEL_STATE_LOADING,
    SERVING: types_pb2.MODEL_STATE_ACTIVE,
    DOWN: types_pb2.MODEL_STATE_FAILED,
}
_CANCELLED = types_pb2.FINISH_REASON_CANCELLED
_ERROR = types_pb2.FINISH_REASON_ERROR
_INTERRUPT_S = 0.05
_KINDS = frozenset({"text", "chat", "tokens", "tensors", "embedding", "raw"})


@dataclass(slots=True, eq=False)
class _Held:
    """One item, from `submit` to its end."""

    item: Item
    inputs: int
    submitted_at: float
    ended: bool = False


@dataclass(slots=True, eq=False)
class _Batch:
    """Items that one call answers."""

    members: list[_Held]
    joinable: bool  # it came loosely, and may grow until it starts
    started_at: float | None = None
    worker: PythonWorker | None = None
    killing: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    answered: bool = False  # the call has ended: there is nothing to break off
    inputs: int = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = sum(held.inputs for held in self.members)


class PythonEngine:
    """An engine of kind `python`."""

    def __init__(self, engine_id: str, options: PythonOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._model = options.public_name
        self._workers = [PythonWorker(options, self._on_worker) for _ in range(options.workers)]
        self._idle: deque[PythonWorker] = deque()
        self._restarts: set[asyncio.Task[None]] = set()
        self._held: dict[int, tuple[_Held, _Batch]] = {}
        self._waiting: deque[_Batch] = deque()
        self._running: set[_Batch] = set()
        self._health = STARTING
        self._unloaded = False  # on the scheduler's word: no process of it runs
        self._loading = False
        self._sink: Sink | None = None
        self._stopping = False  # nothing new is taken; what is held goes on within the grace
        self._closing = False  # nothing starts any more
        self._empty: asyncio.Event | None = None

    @property
    def workers(self) -> Sequence[PythonWorker]:
        """Its workers."""
        return self._workers

    @property
    def pids(self) -> list[int]:
        """Of its workers' processes."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

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
            message="; ".join(w.message for w in self._workers if w.message),
            running=sum(batch.inputs for batch in self._running),
            waiting=sum(batch.inputs for batch in self._waiting),
            model_states={self._model: self._model_state()},
        )

    def _model_state(self) -> types_pb2.ModelState:
        if self._loading:
            return types_pb2.MODEL_STATE_LOADING
        return types_pb2.MODEL_STATE_AVAILABLE if self._unloaded else _STATES[self._health]

    async def start(self, sink: Sink) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        try:
            await self._start_workers()
        except WorkerLost as lost:
            self._health = DOWN
            raise EngineStartError(f"{self._options.callable} cannot serve: {lost}") from lost
        self._on_worker()

    async def _start_workers(self) -> None:
        """Bring all of them up, or none. Raises WorkerLost."""
        starts = [asyncio.create_task(worker.start()) for worker in self._workers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await asyncio.gather(*(worker.stop() for worker in self._workers))
            raise
        self._idle.extend(self._workers)

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """Start its processes again, after it was unloaded; another model it does not have."""
        if model != self._model or options:
            text = f"this engine serves {self._model!r}, as its agent was started, and no other"
            raise ModelRefused(unsupported("", "load_model", text).error)
        self._loading = True
        self._on_worker()
        try:
            await self._start_workers()
        except WorkerLost as lost:
            raise ModelRefused(unavailable(str(lost))) from lost
        finally:
            self._loading = False
        self._unloaded = False
        self._on_worker()

    def why_not_unload(self, model: str) -> EngineError | None:  # noqa: ARG002
        """It always can be."""
        return None

    async def unload_model(self, model: str) -> None:  # noqa: ARG002
        """End its processes; what they hold in memory is free."""
        self._unloaded = True
        self._idle.clear()
        restarts = list(self._restarts)
        for task in restarts:
            task.cancel()
        await asyncio.gather(*restarts, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._on_worker()

    async def stop(self, grace_s: float) -> None:
        self._stopping = True
        if self._held and grace_s > 0:
            self._empty = asyncio.Event()
            await wait_within(self._empty, grace_s)
        self._closing = True
        for held, batch in list(self._held.values()):
            refused = batch.worker is None
            self._finish(held, _failed(unavailable("the engine was stopped", refused=refused)))
        self._waiting.clear()
        tasks = [*self._restarts, *(b.task for b in self._running if b.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._health = DOWN

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:
        batch: list[_Held] = []
        room = self._options.slots + self._options.look_ahead - self._held_inputs()
        for item in items:
            try:
                held = self._admit(item, room)
            except ItemFailed as failure:
                result = _failed(failure.error)
                assert self._sink is not None
                self._loop.call_soon(self._sink.finished, item.dispatch_id, result)
                continue
            room -= held.inputs
            batch.append(held)
        if atomic and sum(held.inputs for held in batch) <= self._options.max_batch_size:
            self._line_up(batch, joinable=False)
        else:
            for held in batch:
                self._join(held)
        self._loop.call_soon(self._start_waiting)

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        known = self._held.get(dispatch_id)
        if known is None or known[0].ended:
            return
        held, batch = known
        held.ended = True
        error = EngineError(reason=reason, message="cancelled")
        result = Result(finish_reason=_CANCELLED, error=error)
        self._loop.call_soon(self._finish, held, result)
        if batch.answered or not all(member.ended for member in batch.members):
            return
        if batch.worker is None:
            self._waiting.remove(batch)
        else:
            self._break_off(batch, batch.worker, self._loop.time() + self._options.cancel_grace)

    def _break_off(self, batch: _Batch, worker: PythonWorker, kill_at: float) -> None:
        """Interrupt the call, again until it ends (it may not have begun yet); then kill."""
        if self._loop.time() >= kill_at:
            worker.kill()
            return
        worker.interrupt()
        again = functools.partial(self._break_off, batch, worker, kill_at)
        batch.killing = self._loop.call_later(_INTERRUPT_S, again)

    def _admit(self, item: Item, room: int) -> _Held:
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
        return _Held(item, inputs, self._loop.time())

    def _held_inputs(self) -> int:
        return sum(batch.inputs for batch in (*self._running, *self._waiting))

    def _join(self, held: _Held) -> None:
        """Put a loose item to the others that wait."""
        last = self._waiting[-1] if self._waiting else None
        if (
            last is not None
            and last.joinable
            and last.inputs + held.inputs <= self._options.max_batch_size
        ):
            last.members.append(held)
            last.inputs += held.inputs
            self._held[held.item.dispatch_id] = (held, last)
        else:
            self._line_up([held], joinable=True)

    def _line_up(self, members: list[_Held], *, joinable: bool) -> None:
        if not members:
            return
        batch = _Batch(members, joinable)
        self._waiting.append(batch)
        for held in members:
            self._held[held.item.dispatch_id] = (held, batch)

    def _start_waiting(self) -> None:
        while self._waiting and self._idle and not self._closing:
            batch = self._waiting.popleft()
            batch.members = [held for held in batch.members if not held.ended]
            batch.inputs = sum(held.inputs for held in batch.members)
            batch.worker = self._idle.popleft()
            batch.started_at = self._loop.time()
            self._running.add(batch)
            assert self._sink is not None
            for held in batch.members:
                self._sink.running(held.item.dispatch_id, batch.inputs)
            batch.task = self._loop.create_task(self._run(batch, batch.worker))

    async def _run(self, batch: _Batch, worker: PythonWorker) -> None:
        message = node_service_pb2.DispatchBatch(model=self._model)
        for held in batch.members:
            added = message.items.add(dispatch_id=held.item.dispatch_id)
            added.request.CopyFrom(held.item.request)
        results: dict[int, Result] = {}
        lost: EngineError | None = None
        try:
            reply = await worker.run(message)
            await self._free(batch)
            results = {result.dispatch_id: _result(result) for result in reply.results}
        except WorkerLost as error:
            lost = _loss(error, self._options.batch_timeout)
        finally:
            self._running.discard(batch)
            if batch.killing is not None:
                batch.killing.cancel()
        run_s = self._loop.time() - (batch.started_at or 0.0)
        assert self._sink is not None
        with self._sink.together():
            for held in batch.members:
                self._end(held, batch, results.get(held.item.dispatch_id), lost, run_s)
        self._reuse(worker, lost is not None)
        self._start_waiting()

    async def _free(self, batch: _Batch) -> None:
        """Let the next batch come while results are made of this one."""
        batch.answered = True
        self._running.discard(batch)
        assert self._sink is not None
        self._sink.freed([held.item.dispatch_id for held in batch.members if not held.ended])
        await asyncio.sleep(0)

    def _end(
        self,
        held: _Held,
        batch: _Batch,
        result: Result | None,
        lost: EngineError | None,
        run_s: float,
    ) -> None:
        if held.ended:
            return
        held.ended = True
        if result is None:
            result = _failed(lost or unavailable("the function gave no answer"))
        result.engine_queue_s = (batch.started_at or held.submitted_at) - held.submitted_at
        result.decode_s = run_s
        self._finish(held, result)

    def _finish(self, held: _Held, result: Result) -> None:
        """Forget the item and report its end. The one place for both."""
        held.ended = True
        if self._held.pop(held.item.dispatch_id, None) is None:
            return
        assert self._sink is not None
        if held.item.stream:
            for output in result.outputs:
                if output.text:
                    self._sink.delta(held.item.dispatch_id, output.index, 0, output.text, 0)
        self._sink.finished(held.item.dispatch_id, result)
        if not self._held and self._empty is not None:
            self._empty.set()

    def _reuse(self, worker: PythonWorker, lost: bool) -> None:
        """Give the worker its next batch, or replace its process."""
        if self._closing:
            return
        if not lost and not worker.is_too_large():
            self._idle.append(worker)
            return
        task = asyncio.create_task(self._restart(worker))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _restart(self, worker: PythonWorker) -> None:
        await worker.restart()
        self._idle.append(worker)
        self._start_waiting()

    def _on_worker(self) -> None:
        """Serving as long as one worker is there; one that died idle is started again."""
        for worker in [worker for worker in self._idle if not worker.ready]:
            self._idle.remove(worker)
            self._reuse(worker, lost=True)
        ready = any(worker.ready for worker in self._workers)
        health = SERVING if ready or self._unloaded else DOWN
        if self._health == STARTING and not all(worker.ready for worker in self._workers):
            return
        self._health = health
        if health == DOWN:
            why = self.load().message
            for held, batch in list(self._held.values()):
                if batch.worker is None and not held.ended:
                    held.ended = True
                    result = _failed(unavailable(why, refused=True))
                    self._loop.call_soon(self._finish, held, result)
            self._waiting.clear()
        if self._sink is not None:
            self._sink.changed()


def _failed(error: EngineError) -> Result:
    return Result(finish_reason=_ERROR, error=error)


def _loss(error: WorkerLost, limit_s: float) -> EngineError:
    if not error.stalled:
        return unavailable(str(error))
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_STALLED,
        message=str(error),
        metadata={"limit": f"{limit_s:g}s"},
    )


def _result(message: node_service_pb2.ItemResult) -> Result:
    if message.HasField("error"):
        blamed = message.error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
        error = EngineError(
            reason=message.error.reason,
            message=message.error.message,
            field="request" if blamed else "",
            metadata={} if blamed else {"engineStatus": "exception"},
        )
        return _failed(error)
    return Result(finish_reason=message.finish_reason, outputs=list(message.outputs))
