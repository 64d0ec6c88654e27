"""How does Triton answer, and any other server of the Open Inference Protocol v2?

Tensors in, tensors out; a model whose one input is text also takes texts. Requests that came as one
batch go in one call where the model takes batches and their shapes agree, and each gets its own
rows back. A decoupled model answers through a stream, as often as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import grpc.aio

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.faults import (
    ItemFailed,
    busy,
    invalid,
    stalled,
    unavailable,
    unknown_model,
    unsupported,
)
from node_agent.engines.interface import EngineError, Item, Load, Result
from node_agent.engines.itemwise import ItemwiseEngine
from node_agent.engines.oip_faults import from_status, is_denial
from node_agent.engines.oip_options import OipOptions
from node_agent.engines.oip_parameters import Parameters, parameters_of, set_parameter
from node_agent.engines.oip_server import (
    ACTIVE,
    AVAILABLE,
    FAILED,
    LOADING,
    SERVING,
    UNLOADING,
    OipModel,
    OipServer,
)
from node_agent.engines.oip_tensors import (
    Tensor,
    add_inputs,
    batch_key,
    check,
    check_inputs,
    new_request,
    rows,
    split,
    text_tensor,
    texts_of,
)
from node_agent.engines.works import Work, Works

_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
_OF_ONE = frozenset(  # statuses of a batch that may be about one of its members
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNKNOWN,
    }
)
_COMPLETE = types_pb2.FINISH_REASON_COMPLETE


@dataclass(slots=True, eq=False)
class _Call:
    """One call to the server, of one item or of several."""

    model: OipModel
    members: list[Sequence[Tensor]]
    wanted: Sequence[str]
    priority: int
    parameters: Parameters
    dispatch_id: int
    timeout_s: float | None = None
    task: asyncio.Task[list[list[Tensor]]] | None = None  # where several share it
    live: int = 0


@dataclass(slots=True, eq=False)
class _Part:
    """An item's part in a call."""

    call: _Call
    index: int = 0  # among its members


@dataclass(slots=True, eq=False)
class _Answer:
    outputs: list[inference_pb2.Output] = field(default_factory=list)

    def result(self, finish: types_pb2.FinishReason, error: EngineError | None) -> Result:
        """The end of the item."""
        if error is not None:
            return Result(finish_reason=finish, outputs=self.outputs, error=error)
        return Result(finish_reason=_COMPLETE, outputs=self.outputs)


class OipEngine(ItemwiseEngine[_Part]):
    """An engine of kind `oip`."""

    def __init__(self, engine_id: str, options: OipOptions) -> None:
        self._engine_id = engine_id
        self._options = options
        self._server = OipServer(options, self._tell_change)
        works: Works[_Part] = Works(
            slots=lambda: options.slots,
            look_ahead=options.look_ahead,
            perform=self._perform,
            explain=self._explain,
            may_start=lambda _: True,
        )
        super().__init__(self._server, works)
        self._shared: dict[Any, _Call] = {}  # calls that others of the same batch may join

    @property
    def server(self) -> OipServer:
        """What it works with; for the doctor."""
        return self._server

    def describe(self) -> node_service_pb2.EngineDescriptor:
        models = self._server.models.values()
        largest = max((model.max_batch_size for model in models), default=0)
        # A stream must not keep the place of a whole batch: beside one, all come by themselves.
        streams = any(model.decoupled for model in models)
        batches = self._options.batch and largest > 1 and not streams
        static, continuous = (
            node_service_pb2.ENGINE_MODE_STATIC,
            node_service_pb2.ENGINE_MODE_CONTINUOUS,
        )
        descriptor = node_service_pb2.EngineDescriptor(
            engine_id=self._engine_id,
            kind="oip",
            version=self._server.version,
            address=self._options.address,
            gpu_indexes=self._options.gpus,
            mode=static if batches else continuous,
            slots=self._options.slots,
            slots_assumed="slots" not in self._options.model_fields_set,
            max_batch_size=min(self._options.slots, largest) if batches else 0,
            look_ahead=self._options.look_ahead,
            models=[self._describe(model) for model in models],
        )
        if batches:
            descriptor.batch_key.equal.extend(["input_kind", "tensor_shapes"])
        return descriptor

    def load(self) -> Load:
        server = self._server
        return Load(
            health=server.health,
            message=server.message,
            remedy=server.remedy,
            running=self._works.running_inputs,
            waiting=self._works.waiting_inputs,
            model_states={
                **dict.fromkeys(server.available, AVAILABLE),
                **{m.name: self._state(m) for m in server.models.values()},
            },
        )

    def _state(self, model: OipModel) -> types_pb2.ModelState:
        if model.leaves:
            return FAILED if model.stuck else UNLOADING
        return ACTIVE if model.ready and self._server.health == SERVING else LOADING

    async def load_model(self, model: str, options: Mapping[str, Any]) -> None:
        """By the repository of the server (Triton); it warms models up itself."""
        await self._server.load_model(model, options)

    def why_not_unload(self, model: str) -> EngineError | None:  # noqa: ARG002
        """The server will say."""
        return None

    async def unload_model(self, model: str) -> None:
        """By the repository of the server (Triton)."""
        await self._server.unload_model(model)

    def submit(self, items: Sequence[Item], *, atomic: bool) -> None:  # noqa: ARG002
        """Run these, in as few calls as their shapes allow; a batch, or what came in one moment."""
        self._shared = {}
        for item in items:
            if not self._options.batch:
                self._shared = {}
            self._hold(item)
        self._works.start_waiting()

    def _describe(self, model: OipModel) -> node_service_pb2.ModelDescriptor:
        return node_service_pb2.ModelDescriptor(
            model=model.name,
            engine_model=model.engine_name if model.engine_name != model.name else "",
            streaming=model.decoupled and model.text_input is not None,
            task_types=self._options.task_types,
        )

    def _admit(self, item: Item) -> None:
        server, works = self._server, self._works
        model = server.models.get(item.model)
        if model is None:
            raise ItemFailed(unknown_model(item.model, server.models))
        if server.doubted:
            raise ItemFailed(unavailable("a call broke off; the server is asked", refused=True))
        if not model.ready:
            raise ItemFailed(unavailable(f"model {item.model!r} is not ready", refused=True))
        tensors = _tensors(item, model)
        text = item.request.HasField("text")
        parameters = parameters_of(item.request.params) if text else ()
        wanted = tuple(item.request.tensors.output_names)
        inputs = 1
        if not works.has_room(inputs):
            raise ItemFailed(busy(f"{works.held_inputs} inputs are held already"))
        part = self._part(item, model, tensors, wanted, parameters)
        works.add(item, part, _Answer(), inputs)

    def _part(
        self,
        item: Item,
        model: OipModel,
        tensors: Sequence[Tensor],
        wanted: tuple[str, ...],
        parameters: Parameters,
    ) -> _Part:
        """Join a call of the same batch, or begin one."""
        shared = self._shared
        shape = batch_key(tensors) if model.max_batch_size > 1 and not model.decoupled else None
        key = (model.name, shape, wanted, item.priority, parameters)
        call = shared.get(key) if shape is not None else None
        if call is not None:
            held = sum(map(rows, call.members))
            if held + rows(tensors) <= model.max_batch_size:
                call.members.append(tensors)
                call.live += 1
                times = (call.timeout_s, item.timeout_s)
                call.timeout_s = max(filter(None, times)) if all(times) else None
                return _Part(call, len(call.members) - 1)
        call = _Call(
            model, [tensors], wanted, item.priority, parameters, item.dispatch_id, item.timeout_s
        )
        call.live = 1
        shared[key] = call
        return _Part(call)

    async def _perform(self, work: Work[_Part]) -> None:
        """Make the call, and see whose fault a denial is: the caller's, if nothing at all is asked
        of the model and that is not denied.
        """
        try:
            await self._call(work)
        except grpc.aio.AioRpcError as error:
            server = self._server
            if not is_denial(error.code().name, error.details() or ""):
                raise
            if not await server.lets_in(work.call.call.model):
                raise ItemFailed(unavailable(server.message, refused=True)) from error
            raise

    async def _call(self, work: Work[_Part]) -> None:
        call, answer = work.call.call, work.answer
        assert isinstance(answer, _Answer)
        self._works.begin(work)
        if call.model.decoupled:
            await self._stream(work, call, answer)
            return
        try:
            await self._share(work, call, answer)
        except grpc.aio.AioRpcError as error:
            if error.code() is not _UNIMPLEMENTED or "decoupled" not in (error.details() or ""):
                raise
            call.model.decoupled = True  # its configuration did not show it
            self._tell_change()
            await self._stream(work, call, answer)

    async def _share(self, work: Work[_Part], call: _Call, answer: _Answer) -> None:
        """Have the call made once for all its members, and take this one's part."""
        if call.task is None:
            call.task = asyncio.create_task(self._infer(call))
        try:
            members = await asyncio.shield(call.task)
        except asyncio.CancelledError:
            call.live -= 1
            if not call.live:  # nobody waits for it any more
                call.task.cancel()
            raise
        except grpc.aio.AioRpcError as error:
            if len(call.members) == 1 or error.code() not in _OF_ONE:
                raise
            alone = replace(call, members=[call.members[work.call.index]])  # it may be another's
            answer.outputs = _outputs(call.model, (await self._infer(alone))[0])
            return
        answer.outputs = _outputs(call.model, members[work.call.index])

    async def _infer(self, call: _Call) -> list[list[Tensor]]:
        response = await self._server.call("ModelInfer", _request(call), self._limit)
        return split(response, [rows(member) for member in call.members])

    async def _stream(self, work: Work[_Part], call: _Call, answer: _Answer) -> None:
        """Every answer of a decoupled model: text as it comes, tensors as outputs.

        A stream that was answered is read to its end. One that is cancelled as it ends is held by
        Triton (2.51) for ever, now and then, and its model can no longer be unloaded.
        """
        request = _request(call)
        stream = self._server.stream(iter([request]), None)
        try:
            async for message in self._answers(stream):
                if message.error_message:
                    raise ItemFailed(from_status("INTERNAL", message.error_message))
                response = message.infer_response
                if response.outputs:
                    (tensors,) = split(response, [1])
                    self._take(work, call.model, answer, tensors)
        finally:
            stream.cancel()

    async def _answers(self, stream: Any) -> AsyncIterator[Any]:
        """What comes of a stream.

        Raises:
            ItemFailed: nothing came for too long (ENGINE_STALLED).
        """
        limit_s, which = self._options.first_token_timeout, "first_token_timeout"
        while True:
            try:
                async with asyncio.timeout(limit_s or None):
                    message = await stream.read()
            except TimeoutError as error:
                raise ItemFailed(stalled(which, limit_s)) from error
            if message is grpc.aio.EOF:
                return
            limit_s, which = self._options.idle_timeout, "idle_timeout"
            yield message

    def _take(
        self, work: Work[_Part], model: OipModel, answer: _Answer, tensors: list[Tensor]
    ) -> None:
        outputs = _outputs(model, tensors)
        if model.text_input is None:
            outputs[0].index = len(answer.outputs)
            answer.outputs += outputs
            return
        text = outputs[0].text
        if answer.outputs:
            answer.outputs[0].text += text
        else:
            answer.outputs = outputs
        if work.first_at is None:
            work.first_at = self._works.now()
        if work.item.stream and text:
            assert self._sink is not None
            self._sink.delta(work.item.dispatch_id, 0, 0, text, 0)

    @property
    def _limit(self) -> float | None:
        """Of a call that is answered once, in seconds. The deadline of an item is not the
        engine's: the scheduler cancels what is over.
        """
        return self._options.call_timeout or None

    def _explain(self, work: Work[_Part], failure: BaseException) -> EngineError | None:  # noqa: ARG002
        if not isinstance(failure, grpc.aio.AioRpcError):
            return None
        error = from_status(failure.code().name, failure.details() or "")
        if error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE:
            self._server.doubted = True
        return error


def _tensors(item: Item, model: OipModel) -> Sequence[Tensor]:
    request, kind = item.request, item.request.WhichOneof("input")
    if kind == "tensors":
        check(request.tensors.tensors)
        if model.decoupled:
            check_inputs(request.tensors.tensors, model.inputs)
        return list(request.tensors.tensors)
    if kind == "text" and model.text_input is not None:
        if not request.text.prompt:
            raise invalid("text.prompt", "the prompt is empty")
        shape = [1] * max(1, len(model.text_input.shape))
        return [text_tensor(model.text_input.name, request.text.prompt, shape)]
    if kind is None:
        raise invalid("input", "there is no input")
    raise unsupported(kind, kind, f"this model takes no input of kind {kind!r}: send tensors")


def _request(call: _Call) -> Any:
    request = new_request()
    request.model_name = call.model.engine_name
    request.id = f"batchyard-{call.dispatch_id:x}"
    add_inputs(request, call.members)
    for name in call.wanted:
        request.outputs.add(name=name)
    for name, value in call.parameters:
        set_parameter(request.parameters[name], value)
    if call.priority:
        request.parameters["priority"].int64_param = 11 - call.priority  # theirs: 1 is most urgent
    if call.timeout_s:
        request.parameters["timeout"].int64_param = max(1, int(call.timeout_s * 1e6))
    return request


def _outputs(model: OipModel, tensors: list[Tensor]) -> list[inference_pb2.Output]:
    if model.text_input is not None and len(tensors) == 1 and tensors[0].datatype == "BYTES":
        text = texts_of(tensors[0])
        return [inference_pb2.Output(text=text, finish_reason=_COMPLETE)]
    return [inference_pb2.Output(tensors=tensors, finish_reason=_COMPLETE)]
