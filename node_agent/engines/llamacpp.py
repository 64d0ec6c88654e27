"""How do real models on this CPU answer? llama.cpp's server in child processes, called by HTTP.

One process a model. They batch continuously over their slots and queue without bound, so no more
than the engine's slots are ever given to all of them together; what `look_ahead` allows beyond them
waits in `works.py`, which also sees to it that each item ends once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.faults import ItemFailed, busy, from_response, unavailable, unknown_model
from node_agent.engines.interface import EngineError, Item, Load
from node_agent.engines.itemwise import ItemwiseEngine
from node_agent.engines.llamacpp_models import LlamacppModels
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_process import LlamacppProcess
from node_agent.engines.llamacpp_request import Call, build_call
from node_agent.engines.llamacpp_server import SERVING, STALLED, LlamacppServer
from node_agent.engines.llamacpp_watch import sum_up
from node_agent.engines.openai_answer import StreamedAnswer
from node_agent.engines.server_sent_events import read_events
from node_agent.engines.works import Work, Works

log = logging.getLogger(__name__)


class LlamacppEngine(ItemwiseEngine[Call]):
    """An engine of kind `llamacpp`."""

    def __init__(self, engine_id: str, options: LlamacppOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        works: Works[Call] = Works(
            slots=lambda: options.slots,
            look_ahead=options.look_ahead,
            perform=self._perform,
            explain=self._explain,
            may_start=self._may_start,
        )
        self._models = LlamacppModels(options, self._make_server)
        super().__init__(self._models, works)

    def _make_server(self, model: str, path: Path) -> LlamacppServer:
        return LlamacppServer(
            self._options,
            model,
            path,
            changed=lambda: self._on_changed(model),
            lost=lambda: self._works.lose_waiting("llama.cpp's process ended", model),
            busy=lambda: self._works.runs(model),
        )

    @property
    def child_pid(self) -> int | None:
        """Process id of the child that runs the first model; None before the start."""
        child = self._first_child()
        return child.pid if child is not None else None

    @property
    def pids(self) -> list[int]:
        """Of its models' processes."""
        return [s.child.pid for s in self._models.servers.values() if s.child is not None]

    def _first_child(self) -> LlamacppProcess | None:
        return next((s.child for s in self._models.servers.values() if s.child is not None), None)

    def describe(self) -> node_service_pb2.EngineDescriptor:
        child, options = self._first_child(), self._options
        models = [self._describe(name) for name in self._models.names]
        context = max((m.context_length for m in models), default=options.context_per_slot)
        return node_service_pb2.EngineDescriptor(
            engine_id=self._engine_id,
            kind="llamacpp",
            version=child.version if child is not None else "",
            address=child.address if child is not None else "",
            mode=node_service_pb2.ENGINE_MODE_CONTINUOUS,
            slots=options.slots,
            max_batch_size=options.slots,
            look_ahead=options.look_ahead,
            kv_capacity_tokens=context * options.slots,
            models=models,
        )

    def _describe(self, name: str) -> node_service_pb2.ModelDescriptor:
        server = self._models.servers.get(name)
        known = server.context_per_slot if server is not None else None
        return node_service_pb2.ModelDescriptor(
            model=name,
            context_length=known or self._options.context_per_slot,
            streaming=True,
            resumable=True,
            task_types=self._options.task_types,
            features=["grammar", "json_schema"],
        )

    def load(self) -> Load:
        models = self._models
        serving = [server for server in models.servers.values() if server.health == SERVING]
        total = sum_up([server.sample for server in serving])
        load = Load(
            health=models.health,
            message=models.message,
            running=total.running,
            kv_utilization=total.kv_utilization,
            prompt_tokens_per_s=total.prompt_tokens_per_s,
            output_tokens_per_s=total.output_tokens_per_s,
            model_states=models.states(),
        )
        if serving:
            load.prefill_backlog_tokens = self._works.prefill_left
        if total.deferred is not None:
            load.waiting = total.deferred + self._works.waiting_inputs
        return load

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """Serve one more file. `options`: `file`, in the model folder."""
        await self._models.load(model, options)

    def why_not_unload(self, model: str) -> EngineError | None:  # noqa: ARG002
        """Any can be."""
        return None

    async def unload_model(self, model: str) -> None:
        """End its process."""
        await self._models.unload(model)
        self._tell_change()

    def _may_start(self, item: Item) -> bool:
        server = self._models.servers.get(item.model)
        return server is not None and not server.doubted

    def _admit(self, item: Item) -> None:
        works = self._works
        server = self._models.servers.get(item.model)
        if server is None:
            raise ItemFailed(unknown_model(item.model, self._models.servers))
        if server.health != SERVING:
            text = f"model {item.model!r} does not serve: {server.message or 'it is loading'}"
            raise ItemFailed(unavailable(text, refused=True))
        call = build_call(item, self._options)
        item.url_path = call.path
        if not works.has_room(call.inputs):
            raise ItemFailed(busy(f"{works.held_inputs} inputs are held already"))
        assert self._sink is not None
        answer = StreamedAnswer(call.inputs, call.input_field, self._sink, item)
        works.add(item, call, answer, call.inputs)

    async def _perform(self, work: Work[Call]) -> None:
        """Make the call and take what comes. Cancelled, it leaves, and its connection closes."""
        call, answer = work.call, work.answer
        server = self._models.servers.get(work.item.model)
        if server is None or server.session is None:
            raise ItemFailed(unavailable("its model was unloaded", refused=True))
        session = server.session
        if not call.max_tokens:
            return  # a continuation of an output that is long enough
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

    def _explain(self, work: Work[Call], failure: BaseException) -> EngineError | None:
        if not isinstance(failure, aiohttp.ClientError | OSError):
            return None
        server = self._models.servers.get(work.item.model)
        if server is None:
            return unavailable("its model was unloaded")
        server.doubted = True
        if isinstance(failure, aiohttp.ClientConnectorError):
            return unavailable("llama.cpp's process does not answer", refused=True)
        if server.stalled_to_death:
            limit = f"{self._options.stall_timeout:g}s"
            return EngineError(
                reason=types_pb2.ERROR_REASON_ENGINE_STALLED,
                message="llama.cpp's process stopped answering and was killed",
                metadata={"limit": limit},
            )
        return unavailable("llama.cpp's process ended while it ran this")

    def _on_changed(self, model: str) -> None:
        server = self._models.servers.get(model)
        if server is not None and server.health == STALLED:
            log.warning(
                "llama.cpp engine: %s: %s", model, server.message, extra={"event": "engine_failed"}
            )
        self._tell_change()
