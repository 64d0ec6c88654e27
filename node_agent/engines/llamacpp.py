"""How does a real model on this CPU answer? llama.cpp's server in a child process, called by HTTP.

The server batches continuously over its slots and queues without bound, so no more than the slots
are ever given to it; what `look_ahead` allows beyond them waits here. One task per running item
reads its stream; a cancel ends the task, which closes the connection, which frees the slot. Each
item ends in `_finish`, by way of its task's done-callback (a task that is cancelled before its
first step never runs a line of its own) or of `_finish_soon`: never inside `submit` or `cancel`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.interface import EngineError, EngineStartError, Item, Load, Result, Sink
from node_agent.engines.llamacpp_answer import Answer
from node_agent.engines.llamacpp_errors import ItemFailed, from_response, unavailable
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_request import Call, build_call
from node_agent.engines.llamacpp_server import DOWN, SERVING, STALLED, LlamacppServer
from node_agent.engines.server_sent_events import EventDecoder

log = logging.getLogger(__name__)

_CANCELLED = types_pb2.FINISH_REASON_CANCELLED
_ERROR = types_pb2.FINISH_REASON_ERROR
_MODEL_STATES = {SERVING: types_pb2.MODEL_STATE_ACTIVE, DOWN: types_pb2.MODEL_STATE_FAILED}


@dataclass(slots=True, kw_only=True, eq=False)
class _Work:
    """One item, from `submit` to its end."""

    item: Item
    call: Call
    answer: Answer
    submitted_at: float
    began_at: float | None = None  # the server took it into a slot
    task: asyncio.Task[None] | None = None
    end: tuple[types_pb2.FinishReason, EngineError] | None = None  # decided from outside


class LlamacppEngine:
    """An engine of kind `llamacpp`."""

    def __init__(self, engine_id: str, options: LlamacppOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._model = options.model or Path(options.model_path or options.package).stem
        self._works: dict[int, _Work] = {}  # all that are held, by dispatch id
        self._waiting: deque[_Work] = deque()
        self._held_inputs = 0
        self._running_inputs = 0
        self._stopping = False
        self._empty: asyncio.Event | None = None
        self._server = LlamacppServer(
            options,
            self._model,
            changed=self._on_changed,
            lost=self._on_lost,
            busy=lambda: self._running_inputs > 0,
        )

    @property
    def child_pid(self) -> int | None:
        """Process id of the child that runs llama.cpp; None before the start."""
        return self._server.child.pid if self._server.child is not None else None

    def describe(self) -> node_service_pb2.EngineDescriptor:
        child, context = self._server.child, self._server.context_per_slot
        model = node_service_pb2.ModelDescriptor(
            model=self._model,
            context_length=context,
            streaming=True,
            resumable=True,
            task_types=self._options.task_types,
            features=["grammar", "json_schema"],
        )
        return node_service_pb2.EngineDescriptor(
            engine_id=self._engine_id,
            kind="llamacpp",
            version=child.version if child is not None else "",
            address=child.address if child is not None else "",
            mode=node_service_pb2.ENGINE_MODE_CONTINUOUS,
            slots=self._options.slots,
            max_batch_size=self._options.slots,
            look_ahead=self._options.look_ahead,
            kv_capacity_tokens=context * self._options.slots,
            models=[model],
        )

    def load(self) -> Load:
        server, sample = self._server, self._server.sample
        state = _MODEL_STATES.get(server.health, types_pb2.MODEL_STATE_LOADING)
        load = Load(
            health=server.health,
            message=server.message,
            running=sample.running,
            kv_utilization=sample.kv_utilization,
            prompt_tokens_per_s=sample.prompt_tokens_per_s,
            output_tokens_per_s=sample.output_tokens_per_s,
            model_states={self._model: state},
        )
        if sample.deferred is not None:
            load.waiting = sample.deferred + self._held_inputs - self._running_inputs
        return load

    async def start(self, sink: Sink) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        try:
            self._options.find_model()
        except ValueError as error:
            raise EngineStartError(f"the llama.cpp engine cannot serve: {error}") from error
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        self._stopping = True
        if self._works and grace_s > 0:
            self._empty = asyncio.Event()
            try:
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
            except TimeoutError:
                pass
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for work in list(self._works.values()):
            self._end(work, _ERROR, unavailable("the engine was stopped", refused=not work.task))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.stop()

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:  # noqa: ARG002
        # Continuous batching: items that come together need not start together.
        for item in items:
            try:
                work = self._admit(item)
            except ItemFailed as failure:
                result = Result(finish_reason=_ERROR, error=failure.error)
                self._loop.call_soon(self._sink.finished, item.dispatch_id, result)
                continue
            self._works[item.dispatch_id] = work
            self._held_inputs += work.call.inputs
            self._waiting.append(work)
        self._start_waiting()

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        work = self._works.get(dispatch_id)
        if work is not None:
            self._end(work, _CANCELLED, EngineError(reason=reason, message="cancelled"))

    def _admit(self, item: Item) -> _Work:
        server = self._server
        if self._stopping or server.health != SERVING:
            why = server.message or "it starts or stops"
            raise ItemFailed(unavailable(f"the engine does not serve: {why}", refused=True))
        if item.model != self._model:
            message = f"model {item.model!r} is not on this engine; it has: {self._model}"
            reason = types_pb2.ERROR_REASON_MODEL_NOT_FOUND
            raise ItemFailed(EngineError(reason=reason, message=message, refused=True))
        call = build_call(item, self._options)
        if self._held_inputs + call.inputs > self._options.slots + self._options.look_ahead:
            message = f"{self._held_inputs} inputs are held already"
            reason = types_pb2.ERROR_REASON_ENGINE_BUSY
            raise ItemFailed(EngineError(reason=reason, message=message, refused=True))
        on_delta = functools.partial(self._on_delta, item)
        answer = Answer(call.inputs, call.input_field, on_delta)
        return _Work(item=item, call=call, answer=answer, submitted_at=self._loop.time())

    def _start_waiting(self) -> None:
        while self._waiting and not self._server.doubted:
            work = self._waiting[0]
            if self._running_inputs + work.call.inputs > self._options.slots:
                return
            self._waiting.popleft()
            self._running_inputs += work.call.inputs
            work.task = self._loop.create_task(self._perform(work))
            work.task.add_done_callback(functools.partial(self._on_done, work))

    async def _perform(self, work: _Work) -> None:
        """Make the call and take what comes. Cancelled, it leaves, and its connection closes."""
        call, session = work.call, self._server.session
        if not call.max_tokens:
            return  # a continuation of an output that is long enough
        assert session is not None
        headers = {"Content-Type": "application/json"}
        async with session.post(call.path, data=call.body.encode(), headers=headers) as response:
            if response.status != 200:
                text = await response.text(errors="replace")
                raise ItemFailed(from_response(response.status, text, call.input_field))
            decoder = EventDecoder()
            async for chunk in response.content.iter_any():
                for data in decoder.feed(chunk):
                    self._begin(work)
                    work.answer.take(data)
        if not work.answer.whole:
            raise aiohttp.ClientPayloadError("the answer broke off")

    def _begin(self, work: _Work) -> None:
        if work.began_at is None:
            work.began_at = self._loop.time()
            self._sink.running(work.item.dispatch_id, self._running_inputs)

    def _on_delta(self, item: Item, choice: int, channel: int, text: str, tokens: int) -> None:
        if item.stream:
            self._sink.delta(item.dispatch_id, choice, channel, text, tokens)

    def _end(self, work: _Work, finish: types_pb2.FinishReason, error: EngineError) -> None:
        """End `work` from outside, once; it is reported a moment later."""
        if work.end is not None:
            return
        work.end = (finish, error)
        if work.task is not None:
            work.task.cancel()
        else:
            self._waiting.remove(work)
            self._loop.call_soon(self._finish, work, finish, error)

    def _on_done(self, work: _Work, task: asyncio.Task[None]) -> None:
        """Report the end of a call, whatever it was."""
        self._running_inputs -= work.call.inputs
        if task.cancelled():
            finish, error = work.end or (_ERROR, unavailable("the engine was stopped"))
            self._finish(work, finish, error)
            return
        failure = task.exception()
        if failure is None:
            self._finish(work, types_pb2.FINISH_REASON_LENGTH, None)
        else:
            self._finish(work, _ERROR, self._explain(failure))

    def _explain(self, failure: BaseException) -> EngineError:
        if isinstance(failure, ItemFailed):
            return failure.error
        if isinstance(failure, aiohttp.ClientError | OSError):
            self._server.doubted = True
        if isinstance(failure, aiohttp.ClientConnectorError):
            return unavailable("llama.cpp's process does not answer", refused=True)
        if self._server.stalled_to_death:
            limit = f"{self._options.stall_timeout:g}s"
            return EngineError(
                reason=types_pb2.ERROR_REASON_ENGINE_STALLED,
                message="llama.cpp's process stopped answering and was killed",
                metadata={"limit": limit},
            )
        if isinstance(failure, aiohttp.ClientError | OSError):
            return unavailable("llama.cpp's process ended while it ran this")
        log.error("llama.cpp engine: a call failed", exc_info=failure)
        reason = types_pb2.ERROR_REASON_INTERNAL
        return EngineError(reason=reason, message=f"the agent's engine failed: {failure!r}")

    def _finish(
        self, work: _Work, finish: types_pb2.FinishReason, error: EngineError | None
    ) -> None:
        """Forget `work`, report its end, let the next one start. The one place for all three."""
        del self._works[work.item.dispatch_id]
        self._held_inputs -= work.call.inputs
        result = work.answer.result(finish, error)
        if work.began_at is not None:
            result.engine_queue_s = work.began_at - work.submitted_at
        self._sink.finished(work.item.dispatch_id, result)
        if not self._works and self._empty is not None:
            self._empty.set()
        self._start_waiting()

    def _on_lost(self) -> None:
        """Refuse what waits: its server is gone. What runs there ends by its broken connection."""
        for work in list(self._waiting):
            self._end(work, _ERROR, unavailable("llama.cpp's process ended", refused=True))

    def _on_changed(self) -> None:
        if self._server.health == STALLED:
            log.warning("llama.cpp engine: %s", self._server.message)
        self._sink.changed()
        self._start_waiting()
