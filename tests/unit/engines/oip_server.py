"""A server of the Open Inference Protocol v2 with models that a test sets up, on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from node_agent.engines.oip_messages import MESSAGES, METHODS, SERVICE

WORD_S = 0.002  # between two words
TEXTS = ("words", "m", "later")


class OipServerDouble:
    """ "double" and "spare" double bytes of UINT8, the first in batches of up to 4. The others are
    decoupled text: they say what they hear word by word, "wait" for long at the word, and "refuse".
    """

    def __init__(
        self, ready: Iterable[str] = ("double", "words"), unloaded: Iterable[str] = ("spare",)
    ) -> None:
        self.requests: list[Any] = []
        self.ready = dict.fromkeys(ready, True)
        self.server_ready = True
        self.unloaded = list(unloaded)
        self.parameters: dict[str, Any] = {}  # of the last load
        self.fails: tuple[grpc.StatusCode, str] | None = None
        self.hates = 256  # a byte that fails the call of whoever sends it
        self.hatred = (grpc.StatusCode.INVALID_ARGUMENT, "hates it")
        self.answers: tuple[str, list[int], bytes] | None = None  # type, shape, data of any output
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.tells_ready = asyncio.Event()
        self.tells_ready.set()
        self.lets_go = asyncio.Event()  # of models that it was told to unload
        self.lets_go.set()
        self.may_end = asyncio.Event()  # streams that have said all
        self.may_end.set()
        self.cancelled = 0  # of those
        self.asked_ready = 0
        self.open = 0
        self.address = ""

    async def serve(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        handlers = {}
        for name, (received, sent) in METHODS.items():
            streams = name == "ModelStreamInfer"
            make = (
                grpc.stream_stream_rpc_method_handler
                if streams
                else (grpc.unary_unary_rpc_method_handler)
            )
            handlers[name] = make(
                getattr(self, f"on_{name}"),
                request_deserializer=MESSAGES[received].FromString,
                response_serializer=MESSAGES[sent].SerializeToString,
            )
        service = SERVICE.strip("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        return server

    async def on_ServerReady(self, _request: Any, _context: Any) -> Any:
        return MESSAGES["Ready"](ready=self.server_ready)

    async def on_ServerMetadata(self, _request: Any, _context: Any) -> Any:
        return MESSAGES["ServerMetadata"](name="double", version="1")

    async def on_ModelReady(self, request: Any, _context: Any) -> Any:
        self.asked_ready += 1
        await self.tells_ready.wait()
        return MESSAGES["Ready"](ready=self.ready.get(request.name, False))

    async def on_RepositoryIndex(self, _request: Any, _context: Any) -> Any:
        loaded = [{"name": name, "state": "READY"} for name in self.ready]
        state = "UNAVAILABLE" if self.lets_go.is_set() else "UNLOADING"
        gone = [{"name": name, "state": state} for name in self.unloaded]
        return MESSAGES["Index"](models=[*loaded, *gone])

    async def on_RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        if request.model_name not in self.unloaded:
            await context.abort(grpc.StatusCode.INTERNAL, f"failed to load {request.model_name!r}")
        await self.blocked.wait()
        self.parameters = dict(request.parameters)
        self.unloaded.remove(request.model_name)
        self.ready[request.model_name] = True
        return MESSAGES["Empty"]()

    async def on_RepositoryModelUnload(self, request: Any, _context: Any) -> Any:
        self.unloaded.append(request.model_name)
        del self.ready[request.model_name]
        return MESSAGES["Empty"]()

    async def on_ModelConfig(self, request: Any, _context: Any) -> Any:
        config = MESSAGES["ModelConfig"]()
        config.config.max_batch_size = 4 if request.name == "double" else 0
        config.config.transaction_policy.decoupled = request.name in TEXTS
        return config

    async def on_ModelMetadata(self, request: Any, _context: Any) -> Any:
        text = request.name in TEXTS
        tensor = {"name": "text_input" if text else "x", "datatype": "BYTES" if text else "UINT8"}
        return MESSAGES["ModelMetadata"](name=request.name, inputs=[tensor])

    async def on_ModelInfer(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.open += 1
        try:
            await self.blocked.wait()
            if self.fails is not None:
                await context.abort(*self.fails)
            if self.hates in list(b"".join(request.raw_input_contents)):
                await context.abort(*self.hatred)
            if not request.inputs:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected 1 input, got 0")
        finally:
            self.open -= 1
        response = MESSAGES["InferResponse"](model_name=request.model_name, id=request.id)
        for tensor, data in zip(request.inputs, request.raw_input_contents, strict=True):
            doubled = bytes(2 * value % 256 for value in data)
            kind, shape, content = self.answers or (tensor.datatype, tensor.shape, doubled)
            response.outputs.add(name="y", datatype=kind, shape=shape)
            response.raw_output_contents.append(content)
        return response

    async def on_ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            self.requests.append(request)
            if self.fails is not None:
                await context.abort(*self.fails)
            if not request.inputs:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected 1 input, got 0")
            words = request.raw_input_contents[0][4:].split(b" ")
            if words == [b"refuse"]:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "will not write it")
            for word in words:
                if word == b"wait":
                    await asyncio.Event().wait()  # until it is cancelled
                await asyncio.sleep(WORD_S)
                message = MESSAGES["StreamResponse"]()
                message.infer_response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                data = len(word).to_bytes(4, "little") + word
                message.infer_response.raw_output_contents.append(data)
                yield message
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@asynccontextmanager
async def oip_server(**models: Iterable[str]) -> AsyncIterator[OipServerDouble]:
    """A started server, with its own models or these (`ready`, `unloaded`); gone at the end."""
    double = OipServerDouble(**models)
    server = await double.serve()
    try:
        yield double
    finally:
        double.blocked.set()
        double.tells_ready.set()
        await server.stop(None)
