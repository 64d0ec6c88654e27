"""How does a real model on this CPU answer? llama.cpp's server in a child process, called by HTTP.

The server batches continuously over its slots and queues without bound, so no more than the slots
are ever given to it; what `look_ahead` allows beyond them waits in `works.py`, which also sees to
it that each item ends once.
"""

from __future__ import annotations

import logging
from pathlib import Path

import aiohttp

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.faults import ItemFailed, busy, from_response, unavailable, unknown_model
from node_agent.engines.interface import EngineError, EngineStartError, Item, Load, Sink
from node_agent.engines.itemwise import ItemwiseEngine
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_request import Call, build_call
from node_agent.engines.llamacpp_server import DOWN, SERVING, STALLED, LlamacppServer
from node_agent.engines.openai_answer import StreamedAnswer
from node_agent.engines.server_sent_events import read_events
from node_agent.engines.works import Work, Works

log = logging.getLogger(__name__)

_MODEL_STATES = {SERVING: types_pb2.MODEL_STATE_ACTIVE, DOWN: types_pb2.MODEL_STATE_FAILED}


class LlamacppEngine(ItemwiseEngine[Call]):
    """An engine of kind `llamacpp`."""

    def __init__(self, engine_id: str, options: LlamacppOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._model = options.model or Path(options.model_path or options.package).stem
        works: Works[Call] = Works(
            slots=lambda: options.slots,
            look_ahead=options.look_ahead,
            perform=self._perform,
            explain=self._explain,
            may_start=lambda: not self._server.doubted,
        )
        self._server = LlamacppServer(
            options,
            self._model,
            changed=self._on_changed,
            lost=lambda: self._works.lose_waiting("llama.cpp's process ended"),
            busy=lambda: self._works.running_inputs > 0,
        )
        super().__init__(self._server, works)

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
            load.waiting = sample.deferred + self._works.waiting_inputs
        return load

    async def start(self, sink: Sink) -> None:
        try:
            self._options.find_model()
        except ValueError as error:
            raise EngineStartError(f"the llama.cpp engine cannot serve: {error}") from error
        await super().start(sink)

    def _admit(self, item: Item) -> None:
        works = self._works
        if item.model != self._model:
            raise ItemFailed(unknown_model(item.model, [self._model]))
        call = build_call(item, self._options)
        item.url_path = call.path
        if not works.has_room(call.inputs):
            raise ItemFailed(busy(f"{works.held_inputs} inputs are held already"))
        assert self._sink is not None
        answer = StreamedAnswer(call.inputs, call.input_field, self._sink, item)
        works.add(item, call, answer, call.inputs)

    async def _perform(self, work: Work[Call]) -> None:
        """Make the call and take what comes. Cancelled, it leaves, and its connection closes."""
        call, session, answer = work.call, self._server.session, work.answer
        if not call.max_tokens:
            return  # a continuation of an output that is long enough
        assert session is not None
        assert isinstance(answer, StreamedAnswer)
        headers = {"Content-Type": "application/json"}
        async with session.post(call.path, data=call.body.encode(), headers=headers) as response:
            if response.status != 200:
                text = await response.text(errors="replace")
                raise ItemFailed(from_response(response.status, text, call.input_field))
            first_s, idle_s = self._options.first_token_timeout, self._options.idle_timeout
            async for data in read_events(response, first_s=first_s, idle_s=idle_s):
                self._works.begin(work)
                answer.take(data)
        if not answer.whole:
            raise aiohttp.ClientPayloadError("the answer broke off")

    def _explain(self, work: Work[Call], failure: BaseException) -> EngineError | None:  # noqa: ARG002
        if not isinstance(failure, aiohttp.ClientError | OSError):
            return None
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
        return unavailable("llama.cpp's process ended while it ran this")

    def _on_changed(self) -> None:
        if self._server.health == STALLED:
            log.warning("llama.cpp engine: %s", self._server.message)
        self._tell_change()
