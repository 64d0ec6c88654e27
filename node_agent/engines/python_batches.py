"""Which items wait, which run in one call, and how does each end, exactly once?

A batch starts together and ends together, on one of the workers. Items that come loosely are put
together while the workers are busy. A cancelled item ends at once; when all of a running batch are
cancelled, the call is interrupted, and its process killed if that does not help. The sink is never
called inside `submit`, `cancel` or `refuse_waiting`.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from dataclasses import dataclass, field

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.faults import unavailable
from node_agent.engines.grace import wait_within
from node_agent.engines.interface import EngineError, Item, Result, Sink
from node_agent.engines.python_options import PythonOptions
from node_agent.engines.python_worker import PythonWorker, WorkerLost
from node_agent.engines.python_workers import PythonWorkers

_CANCELLED = types_pb2.FINISH_REASON_CANCELLED
_ERROR = types_pb2.FINISH_REASON_ERROR
_INTERRUPT_S = 0.05


@dataclass(slots=True, eq=False)
class Held:
    """One item, from `submit` to its end."""

    item: Item
    inputs: int
    submitted_at: float
    ended: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    """Items that one call answers."""

    members: list[Held]
    joinable: bool  # it came loosely, and may grow until it starts
    started_at: float | None = None
    worker: PythonWorker | None = None
    killing: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    answered: bool = False  # the call has ended: there is nothing to break off
    inputs: int = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = sum(held.inputs for held in self.members)


class PythonBatches:
    """All items of one engine. `start` before use."""

    def __init__(self, options: PythonOptions, workers: PythonWorkers) -> None:
        self._options = options
        self._workers = workers
        self._held: dict[int, tuple[Held, Batch]] = {}
        self._waiting: deque[Batch] = deque()
        self._running: set[Batch] = set()
        self._closing = False  # nothing starts any more
        self._empty: asyncio.Event | None = None

    @property
    def running_inputs(self) -> int:
        """Of the calls that run."""
        return sum(batch.inputs for batch in self._running)

    @property
    def waiting_inputs(self) -> int:
        """Of the batches that wait for a worker."""
        return sum(batch.inputs for batch in self._waiting)

    def start(self, sink: Sink) -> None:
        """Bind to the running loop, and to who hears of it."""
        self._loop = asyncio.get_running_loop()
        self._sink = sink

    def now(self) -> float:
        """The loop's time, in seconds."""
        return self._loop.time()

    def submit(self, batch: list[Held], *, atomic: bool) -> None:
        """Take these in; `atomic`: as one batch, if it is not too large."""
        if atomic and sum(held.inputs for held in batch) <= self._options.max_batch_size:
            self._line_up(batch, joinable=False)
        else:
            for held in batch:
                self._join(held)
        self._loop.call_soon(self.start_waiting)

    def refuse(self, item: Item, error: EngineError) -> None:
        """Tell in a moment that it was not taken in."""
        self._loop.call_soon(self._sink.finished, item.dispatch_id, _failed(error))

    def refuse_waiting(self, why: str) -> None:
        """No worker will come for them."""
        for held, batch in list(self._held.values()):
            if batch.worker is None and not held.ended:
                held.ended = True
                result = _failed(unavailable(why, refused=True))
                self._loop.call_soon(self._finish, held, result)
        self._waiting.clear()

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        """End it, if it is held; break its call off when nobody waits for it any more."""
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

    async def wait_until_empty(self, grace_s: float) -> None:
        """Return when all have ended, or the grace is over."""
        if self._held and grace_s > 0:
            self._empty = asyncio.Event()
            await wait_within(self._empty, grace_s)

    async def close(self, why: str) -> None:
        """End all that there are; those that wait are refused."""
        self._closing = True
        for held, batch in list(self._held.values()):
            self._finish(held, _failed(unavailable(why, refused=batch.worker is None)))
        self._waiting.clear()
        tasks = [batch.task for batch in self._running if batch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _break_off(self, batch: Batch, worker: PythonWorker, kill_at: float) -> None:
        """Interrupt the call, again until it ends (it may not have begun yet); then kill."""
        if self._loop.time() >= kill_at:
            worker.kill()
            return
        worker.interrupt()
        again = functools.partial(self._break_off, batch, worker, kill_at)
        batch.killing = self._loop.call_later(_INTERRUPT_S, again)

    def _join(self, held: Held) -> None:
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

    def _line_up(self, members: list[Held], *, joinable: bool) -> None:
        if not members:
            return
        batch = Batch(members, joinable)
        self._waiting.append(batch)
        for held in members:
            self._held[held.item.dispatch_id] = (held, batch)

    def start_waiting(self) -> None:
        """Give what waits to the workers that are free."""
        while self._waiting and not self._closing:
            worker = self._workers.take()
            if worker is None:
                return
            batch = self._waiting.popleft()
            batch.members = [held for held in batch.members if not held.ended]
            batch.inputs = sum(held.inputs for held in batch.members)
            batch.worker = worker
            batch.started_at = self._loop.time()
            self._running.add(batch)
            for held in batch.members:
                self._sink.running(held.item.dispatch_id, batch.inputs)
            batch.task = self._loop.create_task(self._run(batch, worker))

    async def _run(self, batch: Batch, worker: PythonWorker) -> None:
        message = node_service_pb2.DispatchBatch(model=self._options.public_name)
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
        with self._sink.together():
            for held in batch.members:
                self._end(held, batch, results.get(held.item.dispatch_id), lost, run_s)
        self._workers.give_back(worker, lost=lost is not None)
        self.start_waiting()

    async def _free(self, batch: Batch) -> None:
        """Let the next batch come while results are made of this one."""
        batch.answered = True
        self._running.discard(batch)
        self._sink.freed([held.item.dispatch_id for held in batch.members if not held.ended])
        await asyncio.sleep(0)

    def _end(
        self,
        held: Held,
        batch: Batch,
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

    def _finish(self, held: Held, result: Result) -> None:
        """Forget the item and report its end. The one place for both."""
        held.ended = True
        if self._held.pop(held.item.dispatch_id, None) is None:
            return
        if held.item.stream:
            for output in result.outputs:
                if output.text:
                    self._sink.delta(held.item.dispatch_id, output.index, 0, output.text, 0)
        self._sink.finished(held.item.dispatch_id, result)
        if not self._held and self._empty is not None:
            self._empty.set()


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
