"""Which items does an engine hold, which of them run, and how does each end, exactly once?

For engines that run each item in a task of its own. Items wait in the order they came until there
is room among the slots; `perform` is then called as a task. A cancel ends the task, which closes
its connection. Each item ends in `_finish`, by way of its task's done-callback (a task that is
cancelled before its first step never runs a line of its own) or a moment after `submit`, `cancel`
or `lose_waiting`: the sink is never called inside those.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from batchyard.v1 import types_pb2
from node_agent.engines.faults import ItemFailed, unavailable
from node_agent.engines.grace import wait_within
from node_agent.engines.interface import EngineError, Item, Result, Sink

log = logging.getLogger(__name__)

Call = TypeVar("Call")

_CANCELLED = types_pb2.FINISH_REASON_CANCELLED
_ERROR = types_pb2.FINISH_REASON_ERROR
_LENGTH = types_pb2.FINISH_REASON_LENGTH


class Gathered(Protocol):
    """What an item's answer is so far."""

    def result(self, finish: types_pb2.FinishReason, error: EngineError | None) -> Result:
        """The end of the item with what there is; `finish` where it has no natural end."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Work(Generic[Call]):
    """One item, from `submit` to its end."""

    item: Item
    inputs: int  # slots that it takes
    call: Call
    answer: Gathered
    submitted_at: float
    began_at: float | None = None  # the engine took it
    first_at: float | None = None  # its first output
    task: asyncio.Task[None] | None = None
    end: tuple[types_pb2.FinishReason, EngineError] | None = None  # decided from outside


class Works(Generic[Call]):
    """All items of one engine. `start` before use.

    `perform` runs one; `explain` turns what it raised into an error (None: it says itself what it
    means, or is a fault of ours); `may_start` says whether the server of an item takes more now.
    """

    def __init__(
        self,
        *,
        slots: Callable[[], int],
        look_ahead: int,
        perform: Callable[[Work[Call]], Awaitable[None]],
        explain: Callable[[Work[Call], BaseException], EngineError | None],
        may_start: Callable[[Item], bool],
    ) -> None:
        self._slots = slots
        self._look_ahead = look_ahead
        self._perform = perform
        self._explain = explain
        self._may_start = may_start
        self._works: dict[int, Work[Call]] = {}  # all that are held, by dispatch id
        self._waiting: deque[Work[Call]] = deque()
        self._empty: asyncio.Event | None = None
        self.held_inputs = 0
        self.running_inputs = 0
        self.stopping = False

    def start(self, sink: Sink) -> None:
        """Bind to the running loop and to where ends are reported."""
        self._loop = asyncio.get_running_loop()
        self._sink = sink

    def now(self) -> float:
        """The loop's clock, in seconds."""
        return self._loop.time()

    @property
    def waiting_inputs(self) -> int:
        """Inputs that are held and do not run."""
        return self.held_inputs - self.running_inputs

    @property
    def prefill_left(self) -> int:
        """Tokens of prompts that run and are not taken in yet, as far as their answers tell."""
        return sum(getattr(work.answer, "prefill_left", 0) for work in self._works.values())

    def has_room(self, inputs: int) -> bool:
        """Whether so many more may be held."""
        return self.held_inputs + inputs <= self._slots() + self._look_ahead

    def add(self, item: Item, call: Call, answer: Gathered, inputs: int) -> None:
        """Hold an item; `start_waiting` starts it."""
        work = Work(
            item=item, inputs=inputs, call=call, answer=answer, submitted_at=self._loop.time()
        )
        self._works[item.dispatch_id] = work
        self.held_inputs += inputs
        self._waiting.append(work)

    def refuse(self, item: Item, error: EngineError) -> None:
        """End an item that was never held."""
        result = Result(finish_reason=_ERROR, error=error)
        self._loop.call_soon(self._sink.finished, item.dispatch_id, result)

    def start_waiting(self) -> None:
        """Start what fits the slots, in line; what its server does not take now stands aside."""
        aside: list[Work[Call]] = []
        while self._waiting:
            work = self._waiting[0]
            if not self._may_start(work.item):
                aside.append(self._waiting.popleft())
                continue
            if self.running_inputs and self.running_inputs + work.inputs > self._slots():
                break
            self._waiting.popleft()
            self.running_inputs += work.inputs
            work.task = self._loop.create_task(self._run(work))
            work.task.add_done_callback(functools.partial(self._on_done, work))
        self._waiting.extendleft(reversed(aside))

    def runs(self, model: str) -> bool:
        """Whether an item of the model runs."""
        return any(w.task is not None and w.item.model == model for w in self._works.values())

    def begin(self, work: Work[Call]) -> None:
        """The engine took it: say so, once."""
        if work.began_at is None:
            work.began_at = self._loop.time()
            self._sink.running(work.item.dispatch_id, self.running_inputs)

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        """Stop an item; unknown ids are ignored."""
        work = self._works.get(dispatch_id)
        if work is not None:
            self._end(work, _CANCELLED, EngineError(reason=reason, message="cancelled"))

    def lose_waiting(self, message: str, model: str = "") -> None:
        """Give back what waits, all or of one model: its server is gone."""
        for work in [w for w in self._waiting if model in ("", w.item.model)]:
            self._end(work, _ERROR, unavailable(message, refused=True))

    def lose_running(self, error: EngineError) -> None:
        """End what runs: its engine will not answer any more."""
        for work in list(self._works.values()):
            if work.task is not None:
                self._end(work, _ERROR, error)

    async def stop(self, grace_s: float) -> None:
        """Take no more; end what still runs after the grace."""
        self.stopping = True
        if self._works and grace_s > 0:
            self._empty = asyncio.Event()
            await wait_within(self._empty, grace_s)
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for work in list(self._works.values()):
            self._end(work, _ERROR, unavailable("the engine was stopped", refused=not work.task))
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets what was ended while it waited report its end

    async def _run(self, work: Work[Call]) -> None:
        await self._perform(work)

    def _end(self, work: Work[Call], finish: types_pb2.FinishReason, error: EngineError) -> None:
        """End `work` from outside, once; it is reported a moment later."""
        if work.end is not None:
            return
        work.end = (finish, error)
        if work.task is not None:
            work.task.cancel()
        else:
            self._waiting.remove(work)
            self._loop.call_soon(self._finish, work, finish, error)

    def _on_done(self, work: Work[Call], task: asyncio.Task[None]) -> None:
        """Report the end of a call, whatever it was."""
        self.running_inputs -= work.inputs
        if task.cancelled():
            default = (_ERROR, unavailable("the engine was stopped"))
            finish, error = work.end or default
            self._finish(work, finish, error)
            return
        failure = task.exception()
        if failure is None:
            self._finish(work, _LENGTH, None)
        else:
            self._finish(work, _ERROR, self._explain(work, failure) or _meaning(failure))

    def _finish(
        self, work: Work[Call], finish: types_pb2.FinishReason, error: EngineError | None
    ) -> None:
        """Forget `work`, report its end, let the next one start. The one place for all three."""
        del self._works[work.item.dispatch_id]
        self.held_inputs -= work.inputs
        try:
            result = work.answer.result(finish, error)
        except Exception as fault:  # what came may not fit a message: it ends all the same
            log.exception("the end of an item could not be written", extra={"event": "item_failed"})
            result = Result(finish_reason=_ERROR, error=error or _internal(fault))
        if work.began_at is not None:
            if result.engine_queue_s is None:
                result.engine_queue_s = work.began_at - work.submitted_at
            if result.prefill_s is None and work.first_at is not None:
                result.prefill_s = work.first_at - work.began_at
                result.decode_s = self._loop.time() - work.first_at
        self._sink.finished(work.item.dispatch_id, result)
        if not self._works and self._empty is not None:
            self._empty.set()
        self.start_waiting()


def _meaning(failure: BaseException) -> EngineError:
    if isinstance(failure, ItemFailed):
        return failure.error
    log.error("a call of an engine failed", exc_info=failure, extra={"event": "item_failed"})
    return _internal(failure)


def _internal(fault: BaseException) -> EngineError:
    reason = types_pb2.ERROR_REASON_INTERNAL
    return EngineError(reason=reason, message=f"the agent's engine failed: {fault!r}")
