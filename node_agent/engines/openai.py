"""How does a server that speaks OpenAI's HTTP answer? vLLM, SGLang, llama.cpp, Ollama and others.

The server schedules by itself; no more than its slots are ever given to it, known or guessed. What
`look_ahead` allows beyond them waits in `works.py`. A cancel closes the connection, which makes the
server drop the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines import openai_adapters
from node_agent.engines.faults import (
    ItemFailed,
    broken,
    busy,
    from_response,
    stalled,
    unavailable,
    unknown_model,
)
from node_agent.engines.interface import EngineError, Item, Load
from node_agent.engines.itemwise import ItemwiseEngine
from node_agent.engines.openai_answer import StreamedAnswer
from node_agent.engines.openai_look import Sample
from node_agent.engines.openai_options import OpenaiOptions
from node_agent.engines.openai_request import Call, build_call, encode
from node_agent.engines.openai_served import ServedModel
from node_agent.engines.openai_server import DOWN, SERVING, OpenaiServer
from node_agent.engines.openai_traits import below
from node_agent.engines.openai_whole import MAX_BODY_BYTES, WholeAnswer
from node_agent.engines.server_sent_events import read_events
from node_agent.engines.slot_guess import SlotGuess
from node_agent.engines.told_values import SLOTS_MAX
from node_agent.engines.works import Work, Works

ACTIVE = types_pb2.MODEL_STATE_ACTIVE
FAILED = types_pb2.MODEL_STATE_FAILED
LOADING = types_pb2.MODEL_STATE_LOADING
_STALLED = types_pb2.ERROR_REASON_ENGINE_STALLED
_UNAVAILABLE = types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
_DENIED = types_pb2.ERROR_REASON_PERMISSION_DENIED
_NO_MODEL = types_pb2.ERROR_REASON_MODEL_NOT_FOUND


class OpenaiEngine(ItemwiseEngine[Call]):
    """An engine of kind `openai`."""

    def __init__(self, engine_id: str, options: OpenaiOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._server = OpenaiServer(
            options, changed=self._on_changed, lost=self._on_lost, looked=self._on_looked
        )
        self._guess = self._new_guess()
        self._guessed_for: tuple[str, int | None] = ("", None)
        works: Works[Call] = Works(
            slots=lambda: self._guess.slots,
            look_ahead=options.look_ahead,
            perform=self._perform,
            explain=self._explain,
            may_start=lambda _: not self._server.doubted,
        )
        super().__init__(self._server, works)

    @property
    def server(self) -> OpenaiServer:
        """What it works with; for the doctor."""
        return self._server

    @property
    def pids(self) -> list[int]:
        """Of the server that is its child; none, where it is attached to one."""
        child = self._server.child
        return [child.pid] if child is not None else []

    def describe(self) -> node_service_pb2.EngineDescriptor:
        server, served = self._server, self._server.served
        descriptor = node_service_pb2.EngineDescriptor(
            engine_id=self._engine_id,
            kind="openai",
            version=" ".join(filter(None, (served.traits.title, served.version))),
            address=server.address,
            gpu_indexes=self._options.gpus,
            mode=node_service_pb2.ENGINE_MODE_CONTINUOUS,
            slots=self._guess.slots,
            slots_assumed=self._guess.assumed,
            max_batch_size=self._guess.slots,
            look_ahead=self._options.look_ahead,
            models=[self._describe(model) for model in served.models.values()],
        )
        capacity = self._kv_capacity()
        if capacity is not None:
            descriptor.kv_capacity_tokens = capacity
        return descriptor

    def load(self) -> Load:
        server, sample = self._server, self._server.sample
        load = Load(
            health=server.health,
            message=server.message,
            remedy=server.remedy,
            running=sample.running,
            kv_utilization=sample.kv_utilization,
            prefix_cache_hit_ratio=sample.prefix_cache_hit_ratio,
            preemptions=sample.preemptions,
            prompt_tokens_per_s=sample.prompt_tokens_per_s,
            output_tokens_per_s=sample.output_tokens_per_s,
            model_states={m.name: self._state(m) for m in server.served.models.values()},
        )
        if server.served.traits.tells_progress and server.health == SERVING:
            load.prefill_backlog_tokens = self._works.prefill_left
        if sample.waiting is not None:
            load.waiting = sample.waiting + self._works.waiting_inputs
        elif self._works.waiting_inputs:
            load.waiting = self._works.waiting_inputs
        return load

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """Have the server load an adapter. `options` go into its call (`lora_path`)."""
        await self._server.models.load_adapter(model, options)

    def why_not_unload(self, model: str) -> EngineError | None:
        """Only adapters can be, and not of every server."""
        served = self._server.served
        return openai_adapters.why_not(served, served.traits.unload, "unload", model)

    async def unload_model(self, model: str) -> None:
        """Have the server unload an adapter."""
        await self._server.models.unload_adapter(model)

    def _new_guess(self) -> SlotGuess:
        options, served = self._options, self._server.served
        return SlotGuess(
            known=options.slots or (served.slots and min(served.slots, SLOTS_MAX)),
            assumed=served.traits.assumed_slots,
            most=options.max_slots,
        )

    def _kv_capacity(self) -> int | None:
        served, sample = self._server.served, self._server.sample
        known = served.kv_capacity_tokens or sample.kv_capacity_tokens
        if known is None and served.traits.slots_path and served.context_length and served.slots:
            return served.context_length * served.slots
        return known

    def _describe(self, model: ServedModel) -> node_service_pb2.ModelDescriptor:
        traits = self._server.served.traits
        features = {"json_schema", *({"tools", "logprobs"} & set(traits.takes))}
        features |= {"regex", "grammar"} & traits.constraints.keys()
        if self._server.served.takes_images:
            features.add("images")
        described = node_service_pb2.ModelDescriptor(
            model=model.name,
            engine_model=model.engine_name if model.engine_name != model.name else "",
            base_model=model.base,
            streaming=not model.embeds,
            resumable=not model.embeds and traits.continue_chat is not None,
            task_types=self._options.task_types or (["embedding"] if model.embeds else []),
            features=[] if model.embeds else sorted(features),
        )
        if model.context_length is not None:
            described.context_length = model.context_length
        return described

    def _state(self, model: ServedModel) -> types_pb2.ModelState:
        if self._server.health == DOWN:
            return FAILED
        return LOADING if self._server.health not in (SERVING,) else model.state

    def _admit(self, item: Item) -> None:
        server, works = self._server, self._works
        model = server.served.models.get(item.model)
        if model is None:
            raise ItemFailed(unknown_model(item.model, server.served.models))
        if model.state != ACTIVE:
            text = f"model {item.model!r} has not answered a first request yet"
            raise ItemFailed(unavailable(text, refused=True))
        call = build_call(item, model, server.served, self._guess.slots)
        item.url_path = call.path
        if not works.has_room(call.inputs):
            raise ItemFailed(busy(f"{works.held_inputs} inputs are held already"))
        answer: StreamedAnswer | WholeAnswer
        assert self._sink is not None
        if call.streams:
            title = server.served.traits.title
            answer = StreamedAnswer(call.choices, call.input_field, self._sink, item, title)
        else:
            answer = WholeAnswer(call.raw_type, model.name, call.choices)
        works.add(item, call, answer, call.inputs)

    async def _perform(self, work: Work[Call]) -> None:
        """Make the call, and see whose fault a denial is."""
        if work.call.nothing_left:
            return
        key = self._server.models.key
        try:
            await self._call(work)
        except ItemFailed as failure:
            if failure.error.reason != _DENIED:
                raise
            raise ItemFailed(await self._judge(work, failure.error, key)) from failure

    async def _judge(self, work: Work[Call], denial: EngineError, key: str | None) -> EngineError:
        """The caller's, if the server lets a request of the agent's own in by the same key; else
        the key's, and nothing more goes there until it is let in.
        """
        server, title = self._server, self._server.served.traits.title
        if not await server.models.lets_in(work.item.model):
            server.doubted = True
            why = (
                f"{title} lets no request of this agent in: set api_key_file to a file with its key"
            )
            return unavailable(why, refused=True)
        if server.models.key != key:
            return unavailable(f"{title} did not take the key that the agent had", refused=True)
        return denial

    async def _call(self, work: Work[Call]) -> None:
        """Take what comes. Cancelled, it leaves, and its connection closes."""
        call, session = work.call, self._server.session
        assert session is not None
        headers = {"Content-Type": "application/json", **call.headers}
        limit_s = self._options.first_token_timeout
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=limit_s or None)
        try:
            async with session.post(
                below(call.path), data=encode(call), headers=headers, timeout=timeout
            ) as response:
                if response.status != 200:
                    await self._fail(work, response)
                self._works.begin(work)
                if isinstance(work.answer, WholeAnswer):
                    work.answer.take(await _read_body(response))
                else:
                    await self._read_stream(work, response)
        except (TimeoutError, aiohttp.SocketTimeoutError) as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise
            raise ItemFailed(stalled("first_token_timeout", limit_s)) from error

    async def _fail(self, work: Work[Call], response: aiohttp.ClientResponse) -> None:
        text = (await _read_body(response)).decode("utf-8", "replace")
        title = self._server.served.traits.title
        error = from_response(response.status, text, work.call.input_field, engine=title)
        if error.reason == _NO_MODEL:
            self._server.models.stale()
        elif error.reason == _UNAVAILABLE:
            self._server.doubted = True
        raise ItemFailed(error)

    async def _read_stream(self, work: Work[Call], response: aiohttp.ClientResponse) -> None:
        answer, options = work.answer, self._options
        assert isinstance(answer, StreamedAnswer)
        async for data in read_events(
            response, first_s=options.first_token_timeout, idle_s=options.idle_timeout
        ):
            answer.take(data)
            if work.first_at is None and answer.began:
                work.first_at = self._works.now()
        if answer.whole:
            return
        if answer.done:
            raise broken("the stream ended without a finish reason", "malformed")
        raise aiohttp.ClientPayloadError("the answer broke off")

    def _explain(self, work: Work[Call], failure: BaseException) -> EngineError | None:  # noqa: ARG002
        if isinstance(failure, ItemFailed) and failure.error.reason == _STALLED:
            self._server.suspect_hang()
        if not isinstance(failure, aiohttp.ClientError | OSError):
            return None
        self._server.doubted = True
        if isinstance(failure, aiohttp.ClientConnectorError):
            return unavailable(f"nothing answers at {self._server.address}", refused=True)
        return unavailable(f"the connection to the engine broke: {failure!r}")

    def _on_lost(self, why: str) -> None:
        self._works.lose_waiting(why)
        self._works.lose_running(unavailable(why))

    def _on_looked(self, sample: Sample) -> None:
        guess, works = self._guess, self._works
        if guess.look(
            works.now(), ours=works.running_inputs, running=sample.running, waiting=sample.waiting
        ):
            self._tell_change()

    def _on_changed(self) -> None:
        server, served = self._server, self._server.served
        if server.health != SERVING:
            self._works.lose_waiting(server.message or "the server is not there")
        if (served.kind, served.slots) != self._guessed_for:  # another server: begin anew
            self._guessed_for = (served.kind, served.slots)
            self._guess = self._new_guess()
        self._tell_change()


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """The whole body.

    Raises:
        ItemFailed: it is larger than any answer may be.
    """
    body = await response.content.read(MAX_BODY_BYTES)
    chunks = [body]
    while body and sum(map(len, chunks)) < MAX_BODY_BYTES:
        body = await response.content.read(MAX_BODY_BYTES)
        chunks.append(body)
    if body:
        raise broken(f"an answer of more than {MAX_BODY_BYTES} bytes", "malformed")
    return b"".join(chunks)
