"""A real grpc.aio server whose answers a test scripts, and which records what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from batchyard.v1 import (
    Accepted,
    CallResult,
    CancelRequestsResponse,
    Error,
    GenerateResponse,
    GenerateStreamResponse,
    GetServerInfoResponse,
    InferenceRequest,
    InferenceResult,
    ListModelsResponse,
    ModelInfo,
    MultiplexOpened,
    MultiplexRequest,
    MultiplexResponse,
    Output,
    Started,
    TokenDeltas,
)
from batchyard.v1.admin_service_pb2_grpc import (
    AdminServiceServicer,
    add_AdminServiceServicer_to_server,
)
from batchyard.v1.scheduler_service_pb2_grpc import (
    SchedulerServiceServicer,
    add_SchedulerServiceServicer_to_server,
)

END = object()


def answer(request: InferenceRequest, text: str | None = None, **fields: Any) -> InferenceResult:
    """A result that succeeded; its text is the prompt unless said."""
    result = InferenceResult(request_id=request.request_id, model=request.model, **fields)
    result.finish_reason = fields.get("finish_reason", 1)
    result.outputs.append(Output(text=request.text.prompt if text is None else text))
    return result


def refusal(request: InferenceRequest, error: Error, finish_reason: int = 9) -> InferenceResult:
    return InferenceResult(request_id=request.request_id, finish_reason=finish_reason, error=error)


class ScriptedStream:
    """One Multiplex stream, as the test sees it."""

    def __init__(self, context: grpc.aio.ServicerContext) -> None:
        self.context = context
        self.messages: list[MultiplexRequest] = []
        self.calls: list[Any] = []
        self.cancelled: list[int] = []
        self.done = False
        self.ended = False
        self._out: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, **parts: Any) -> None:
        self._out.put_nowait(MultiplexResponse(**parts))

    def result(self, call: Any, result: InferenceResult) -> None:
        self.send(results=[CallResult(call_id=call.call_id, result=result)])

    def accept(self, call: Any, **fields: Any) -> None:
        self.send(
            accepted=[Accepted(call_id=call.call_id, request_id=call.request.request_id, **fields)]
        )

    def start(self, call: Any, output_id: int = 1, **fields: Any) -> None:
        self.send(started=[Started(call_id=call.call_id, output_id=output_id, **fields)])

    def delta(self, call: Any, offset: int, text: str, **columns: Any) -> None:
        self.send(deltas=TokenDeltas(ids=[call.call_id], offsets=[offset], texts=[text], **columns))

    def end(self) -> None:
        """Ends the stream with OK, whatever is still open."""
        self._out.put_nowait(END)

    def abort(self, code: grpc.StatusCode, details: str = "", trailers: Any = ()) -> None:
        self._out.put_nowait((code, details, trailers))

    async def responses(self) -> AsyncIterator[MultiplexResponse]:
        while True:
            item = await self._out.get()
            if item is END:
                return
            if isinstance(item, tuple):
                await self.context.abort(*item)
            yield item


class ScriptedScheduler(SchedulerServiceServicer, AdminServiceServicer):
    """`on_call(stream, call)` answers Multiplex calls; by default each is echoed at once."""

    def __init__(self) -> None:
        self.streams: list[ScriptedStream] = []
        self.metadata: list[dict[str, Any]] = []
        self.unary: list[Any] = []
        self.cancel_requests: list[Any] = []
        self.opened: MultiplexOpened | None = MultiplexOpened(stream_id="s")
        self.max_outstanding = 0
        self.refuse: tuple[Any, ...] | None = None  # abort each Multiplex with this
        self.refused = 0
        self.on_call: Callable[[ScriptedStream, Any], None] = lambda stream, call: stream.result(
            call, answer(call.request)
        )
        self.on_generate: Callable[[Any, Any], Any] = lambda request, _: GenerateResponse(
            result=answer(request.request)
        )
        self.generate_stream: list[GenerateStreamResponse] = []
        self.unary_cancelled = 0
        self.admin_answers: dict[str, Any] = {}
        self.address = ""
        self._server: grpc.aio.Server | None = None
        self._changed: asyncio.Future[None] | None = None

    async def until(self, condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
        """Returns when `condition`, of something recorded here, holds; else fails the test."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed = asyncio.get_running_loop().create_future()
                await self._changed

    def changed(self) -> None:
        """Something was recorded."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    @property
    def calls(self) -> list[Any]:
        return [call for stream in self.streams for call in stream.calls]

    async def listen(self, port: int = 0) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_SchedulerServiceServicer_to_server(self, self._server)
        add_AdminServiceServicer_to_server(self, self._server)
        bound = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{bound}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def Multiplex(self, request_iterator: Any, context: Any) -> Any:
        self.metadata.append(dict(context.invocation_metadata()))
        if self.refuse is not None:
            self.refused += 1
            self.changed()
            await context.abort(*self.refuse)
        stream = ScriptedStream(context)
        self.streams.append(stream)
        if self.opened is not None:
            stream.send(opened=self.opened, max_outstanding=self.max_outstanding)
        reader = asyncio.create_task(self._read(stream, request_iterator))
        try:
            async for response in stream.responses():
                yield response
        finally:
            stream.ended = True
            self.changed()
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _read(self, stream: ScriptedStream, request_iterator: Any) -> None:
        async for message in request_iterator:
            stream.messages.append(message)
            stream.calls.extend(message.calls)
            for call in message.calls:
                self.on_call(stream, call)
            stream.cancelled.extend(message.cancel_call_ids)
            if message.done:
                stream.done = True
                stream.end()
            self.changed()

    async def Generate(self, request: Any, context: Any) -> Any:
        self.unary.append(request)
        self.changed()
        self.metadata.append(dict(context.invocation_metadata()))
        try:
            response = self.on_generate(request, context)
            return await response if asyncio.iscoroutine(response) else response
        except asyncio.CancelledError:
            self.unary_cancelled += 1
            self.changed()
            raise

    async def GenerateStream(self, request: Any, context: Any) -> Any:
        self.unary.append(request)
        self.changed()
        try:
            response = self.on_generate(request, context)
            if asyncio.iscoroutine(response):
                response = await response
            for item in response:
                yield item
        except asyncio.CancelledError:
            self.unary_cancelled += 1
            self.changed()
            raise

    async def CancelRequests(self, request: Any, context: Any) -> Any:
        self.cancel_requests.append(request)
        self.changed()
        return CancelRequestsResponse(request_ids=request.request_ids[:1])

    async def ListModels(self, request: Any, context: Any) -> Any:
        if not request.page_token:
            return ListModelsResponse(models=[ModelInfo(model="a")], next_page_token="2")
        return ListModelsResponse(models=[ModelInfo(model="b")])

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        self.metadata.append(dict(context.invocation_metadata()))
        return GetServerInfoResponse(version="9.9", features=["multiplex"])


@contextlib.asynccontextmanager
async def scripted_scheduler() -> AsyncIterator[ScriptedScheduler]:
    scheduler = ScriptedScheduler()
    await scheduler.listen()
    try:
        yield scheduler
    finally:
        await scheduler.stop()
