"""Which models does the server have, and are they ready? Asked on a fixed beat, over one channel.

A server is there once it says so; a model serves once its own readiness says so, for servers are
ready long before their models. Not to be reached, or to let nothing in,
is DOWN, and asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError, ModelRefused
from node_agent.engines.oip_faults import is_denial
from node_agent.engines.oip_messages import MESSAGES, METHODS, SERVICE
from node_agent.engines.oip_options import OipOptions
from node_agent.engines.oip_repository import is_closed, load_request, repository_fault
from node_agent.engines.told_values import MODELS_MAX, is_name

log = logging.getLogger(__name__)

STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
ACTIVE, LOADING = types_pb2.MODEL_STATE_ACTIVE, types_pb2.MODEL_STATE_LOADING
AVAILABLE, UNLOADING = types_pb2.MODEL_STATE_AVAILABLE, types_pb2.MODEL_STATE_UNLOADING
FAILED = types_pb2.MODEL_STATE_FAILED
_ASK_S = 5.0
_NO_SERVER = ("UNAVAILABLE", "UNIMPLEMENTED")
_ADDRESS = "start it, or correct its address: the gRPC port of the server (Triton: 8001)"
_LOADED = ("READY", "LOADING", "UNLOADING")  # states of models that it has, or soon has or had
_MESSAGE_BYTES = 64 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class OipModel:
    """One model of the server."""

    name: str  # public
    engine_name: str
    ready: bool = False
    leaves: bool = False  # it was told to go, and the server has not let go of it yet
    stuck: bool = False  # and that was waited for in vain
    max_batch_size: int = 0  # 0: it takes no batches
    decoupled: bool = False  # any number of answers to one request
    inputs: list[Any] = field(default_factory=list)  # TensorMetadata
    outputs: list[Any] = field(default_factory=list)

    @property
    def text_input(self) -> Any | None:
        """The one tensor of text that makes it a model of texts; None: it is not one."""
        found = [tensor for tensor in self.inputs if tensor.datatype == "BYTES"]
        return found[0] if len(found) == len(self.inputs) == 1 else None


class OipServer:
    """The server of one engine. `changed` is called when health or models change."""

    def __init__(self, options: OipOptions, changed: Callable[[], None]) -> None:
        self._options = options
        self._changed = changed
        self._keeper: asyncio.Task[None] | None = None
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Any] = {}
        self.health = STARTING
        self.remedy = ""  # for what `message` says; empty: wait
        self.message = ""
        self.version = ""
        self.models: dict[str, OipModel] = {}
        self.doubted = False  # a call broke off: give it nothing until it answers a look
        self.denied: OipModel | None = None  # not even an empty request for it was let in
        self.available: list[str] = []  # that its repository has, and it has not loaded
        self._asked: dict[str, str] = {}  # public name: theirs, of models loaded at our word
        self._dropped: set[str] = set()  # public names, unloaded at our word

    async def start(self) -> None:
        """Return when a model is ready; keep looking from then on.

        Raises:
            EngineStartError: none was, within `start_timeout`.
        """
        self._channel = grpc.aio.insecure_channel(
            self._options.address,
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MESSAGE_BYTES),
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        try:
            async with asyncio.timeout(self._options.start_timeout):
                await self._until_ready()
        except TimeoutError as error:
            why = self.message
            await self.stop()
            self.message = why
            raise EngineStartError(
                f"no model to serve at {self._options.address}: {why}"
            ) from error
        self._keeper = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        """Look no more."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
        self._set_health(DOWN, "stopped")

    def call(self, name: str, request: Any, timeout_s: float | None = _ASK_S) -> Any:
        """Start a unary call."""
        return self._method(name)(request, timeout=timeout_s)

    def stream(self, requests: Any, timeout_s: float | None) -> Any:
        """Start a stream of answers. Triton then ends it by the status of a fault; without being
        asked to it tells words only, not whose fault it is.
        """
        asked = (("triton_grpc_error", "true"),)
        return self._method("ModelStreamInfer")(requests, timeout=timeout_s, metadata=asked)

    async def lets_in(self, model: OipModel) -> bool:
        """Whether a request for `model` without any input fails by what it asks, not by who asks.
        Where it is denied, it is no longer served from: that is tried again at every look.
        """
        request = MESSAGES["InferRequest"](model_name=model.engine_name)
        words = ""
        try:
            if model.decoupled:
                async for _ in self.stream(iter([request]), _ASK_S):
                    pass
            else:
                await self.call("ModelInfer", request)
        except grpc.aio.AioRpcError as error:
            if is_denial(error.code().name, error.details() or ""):
                words = f"{error.code().name}: {error.details()}"
        self.denied = model if words else None
        if words:
            remedy = "allow it there, by its address or in its gate"
            text = f"{self._options.address} lets no request of this agent in; {remedy} ({words})"
            self._set_health(DOWN, text, remedy=remedy)
        return not words

    async def look(self) -> bool:
        """Look once; tell whether it serves: a model is ready, or one can be loaded and none is."""
        try:
            ready = await self.call("ServerReady", MESSAGES["Empty"]())
            if not self.version:
                about = await self.call("ServerMetadata", MESSAGES["Empty"]())
                self.version = f"{about.name} {about.version}".strip()
            if self.doubted:  # it may be another one by now: its models are described anew
                for model in self.models.values():
                    model.ready = False
            changed = await self._look_at_models()
            if self.denied is not None and not await self.lets_in(self.denied):
                return False
        except grpc.aio.AioRpcError as error:
            self.version = ""
            for model in self.models.values():
                model.ready = False
            code = error.code().name
            away = DOWN if self.health != STARTING else STARTING
            why = f"{self._options.address} answers {code}: {error.details()}"
            self._set_health(away, why, remedy=_ADDRESS if code in _NO_SERVER else "")
            return False
        self.doubted = False
        # Triton says that it is not ready while any model comes or goes; the others serve on.
        none_yet = ready.ready and not self.models and bool(self.available or self._dropped)
        serves = none_yet or any(model.ready for model in self.models.values())
        health = SERVING if serves else STARTING
        why = "no model of it is ready" if self.models else "it lists no models: name them (models)"
        if not ready.ready:
            why = "the server says that it is not ready"
        self._set_health(health, "" if serves else why, force=changed)
        return serves

    async def _until_ready(self) -> None:
        while True:
            if await self.look():
                return
            await asyncio.sleep(self._options.poll_interval)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_interval)
            await self.look()

    async def _look_at_models(self) -> bool:
        """Tell whether models came, went, or changed their readiness."""
        before = {name: model.ready for name, model in self.models.items()}
        if any(model.leaves for model in self.models.values()):
            await self._let_go()
        names = {**(self._options.models or await self._listed()), **self._asked}
        names = {name: theirs for name, theirs in names.items() if name not in self._dropped}
        kept = {name: m for name, m in self.models.items() if names.get(name) == m.engine_name}
        for name, theirs in names.items():
            model = kept.setdefault(name, OipModel(name=name, engine_name=theirs))
            request = MESSAGES["ModelName"](name=theirs)
            try:
                ready = (await self.call("ModelReady", request)).ready
                if ready and not model.ready:
                    await self._describe(model)
            except grpc.aio.AioRpcError as error:
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise
                ready = False  # it does not know that model (yet)
            model.ready = ready and not model.leaves
        # What was loaded or unloaded at our word while it was asked.
        kept = {name: model for name, model in kept.items() if name not in self._dropped}
        kept.update((n, m) for n, m in self.models.items() if n in self._asked and n not in names)
        self.models = kept
        return before != {name: model.ready for name, model in kept.items()}

    async def _listed(self) -> dict[str, str]:
        """The models that it has loaded, or loads now. A repository names the others, too."""
        index = await self._index()
        loaded = {name: name for name, state in index if state in _LOADED}
        self.available = sorted({name for name, _ in index} - loaded.keys())[:MODELS_MAX]
        return dict(list(loaded.items())[:MODELS_MAX])

    async def _index(self) -> list[tuple[str, str]]:
        """Name and state of each version of a model in its repository; empty: it shows none."""
        try:
            index = await self.call("RepositoryIndex", MESSAGES["IndexRequest"]())
        except grpc.aio.AioRpcError as error:
            if is_closed(error):
                return []
            raise
        return [(model.name, model.state) for model in index.models if is_name(model.name)]

    async def _let_go(self) -> None:
        """Forget the models that it has unloaded. It says yes to that at once, and does it later,
        which takes Triton seconds, and 2.51 now and then for ever.
        """
        still = {name for name, state in await self._index() if state == "UNLOADING"}
        for name, model in list(self.models.items()):
            if model.leaves and model.engine_name not in still:
                self._asked.pop(name, None)
                self._dropped.add(name)
                del self.models[name]
                self._changed()

    async def load_model(self, name: str, options: Mapping[str, Any]) -> None:
        """Have it loaded; return when it is ready. `options`: parameters of Triton's own.

        Raises:
            ModelRefused: it was not.
        """
        theirs = self._options.models.get(name, name)
        request = load_request(theirs, options)
        model = self.models[name] = OipModel(name=name, engine_name=theirs)
        self._dropped.discard(name)
        self._asked[name] = theirs
        self._changed()
        try:
            await self.call("RepositoryModelLoad", request, None)
            while not model.ready:
                await self.look()
                model = self.models.get(name, model)
                if not model.ready:
                    await asyncio.sleep(self._options.poll_interval)
        except BaseException as error:
            self._asked.pop(name, None)
            self.models.pop(name, None)
            self._changed()
            if isinstance(error, grpc.aio.AioRpcError):
                raise ModelRefused(repository_fault(error, "load")) from error
            raise

    async def unload_model(self, name: str) -> None:
        """Have it unloaded; return when it is gone. Cancelled, it is given up as stuck, and shown
        so until it goes after all.

        Raises:
            ModelRefused: it was not.
        """
        model = self.models[name]
        request = MESSAGES["RepositoryChange"](model_name=model.engine_name)
        try:
            await self.call("RepositoryModelUnload", request, None)
        except grpc.aio.AioRpcError as error:
            raise ModelRefused(repository_fault(error, "unload")) from error
        model.leaves, model.ready = True, False
        try:
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):  # it may be away for a while
                    await self._let_go()
                if self.models.get(name) is not model:
                    return
                await asyncio.sleep(self._options.poll_interval)
        except asyncio.CancelledError:
            model.stuck = True
            raise

    async def _describe(self, model: OipModel) -> None:
        request = MESSAGES["ModelName"](name=model.engine_name)
        metadata = await self.call("ModelMetadata", request)
        model.inputs, model.outputs = list(metadata.inputs), list(metadata.outputs)
        try:
            config = (await self.call("ModelConfig", request)).config
        except grpc.aio.AioRpcError as error:
            if not is_closed(error):  # only Triton has it
                raise
            model.max_batch_size = self._options.max_batch_size
            return
        model.max_batch_size = max(0, config.max_batch_size)
        model.decoupled = config.transaction_policy.decoupled

    def _method(self, name: str) -> Any:
        if name not in self._calls:
            assert self._channel is not None
            sent, received = METHODS[name]
            kind = self._channel.unary_unary
            if name == "ModelStreamInfer":
                kind = self._channel.stream_stream  # type: ignore[assignment]
            self._calls[name] = kind(
                SERVICE + name,
                request_serializer=MESSAGES[sent].SerializeToString,
                response_deserializer=MESSAGES[received].FromString,
            )
        return self._calls[name]

    def _set_health(
        self,
        health: node_service_pb2.EngineHealth,
        message: str,
        *,
        remedy: str = "",
        force: bool = False,
    ) -> None:
        changed = health != self.health or force
        self.health, self.message, self.remedy = health, message, remedy
        if changed:
            self._changed()
