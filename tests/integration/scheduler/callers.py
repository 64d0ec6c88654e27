"""Callers that speak the public messages: a call in any of the ways in, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.rpc.scheduler import SERVICE

WAIT_S = 5.0

Condition = Callable[[], object]


@dataclass
class Answer:
    """What a caller got of one call, in whichever way it was made."""

    order: list[str] = field(default_factory=list)  # accepted, started, delta, result
    accepted: list[scheduler_service_pb2.Accepted] = field(default_factory=list)
    started: list[scheduler_service_pb2.Started] = field(default_factory=list)
    rows: list[tuple[int, int, int, str]] = field(default_factory=list)  # choice, channel, ...
    token_ids: list[int] = field(default_factory=list)
    result: inference_pb2.InferenceResult | None = None
    error: types_pb2.Error | None = None  # None: it succeeded
    status: grpc.StatusCode | None = None  # of an RPC of its own
    details: list[Any] = field(default_factory=list)  # of a rich status
    trailers: dict[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Name of the error's reason; empty: it succeeded."""
        if self.error is None:
            return ""
        return types_pb2.ErrorReason.Name(self.error.reason).removeprefix("ERROR_REASON_")

    @property
    def code(self) -> int:
        return 0 if self.error is None else self.error.code

    @property
    def field(self) -> str:
        """The bad field, relative to the call."""
        return "" if self.error is None else self.error.field

    @property
    def text(self) -> str:
        """Of choice 0: what came as deltas, else the result's."""
        if self.rows:
            return "".join(text for choice, channel, _, text in self.rows if choice == channel == 0)
        if self.result is None or not self.result.outputs:
            return ""
        return self.result.outputs[0].text

    def add_deltas(self, deltas: types_pb2.TokenDeltas, index: int) -> None:
        """Take one row of the columns."""
        row = (
            deltas.choice_indexes[index] if deltas.choice_indexes else 0,
            deltas.channels[index] if deltas.channels else 0,
            deltas.offsets[index],
            deltas.texts[index] if deltas.texts else "",
        )
        if deltas.token_id_counts:
            start = sum(deltas.token_id_counts[:index])
            self.token_ids.extend(deltas.token_ids[start : start + deltas.token_id_counts[index]])
        self.rows.append(row)
        self.order.append("delta")


class Exchange:
    """One call on its way. `answer` grows while it goes on."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.request_id = ""
        self.ended = asyncio.Event()
        self.progressed = asyncio.Event()

    async def wait(self) -> Answer:
        """Its end."""
        async with asyncio.timeout(WAIT_S):
            await self.ended.wait()
        return self.answer

    async def until(self, condition: Condition) -> None:
        """Something that came made the condition true."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.progressed.clear()
                await self.progressed.wait()

    def note(self) -> None:
        self.progressed.set()

    async def cancel(self) -> None:
        """The client cancels it and stays."""
        raise NotImplementedError


class SingleExchange(Exchange):
    """A Generate or a GenerateStream."""

    def __init__(self, call: Any, streams: bool) -> None:
        super().__init__()
        self.call = call
        self.task = asyncio.create_task(self._stream() if streams else self._one())

    async def _one(self) -> None:
        try:
            self.answer.result = (await self.call).result
            self.answer.order.append("result")
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            pass
        await self._end()

    async def _stream(self) -> None:
        try:
            async for event in self.call:
                kind = event.WhichOneof("event")
                if kind == "deltas":
                    for index in range(len(event.deltas.offsets)):
                        self.answer.add_deltas(event.deltas, index)
                else:
                    self.answer.order.append(kind)
                if kind == "result":
                    self.answer.result = event.result
                elif kind in ("accepted", "started"):
                    getattr(self.answer, kind).append(getattr(event, kind))
                self.note()
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            pass
        await self._end()

    async def _end(self) -> None:
        self.answer.status = await self.call.code()
        self.answer.trailers = dict(await self.call.trailing_metadata() or ())
        packed = self.answer.trailers.get("grpc-status-details-bin")
        if packed is not None:
            self._read_details(status_pb2.Status.FromString(packed))
        elif self.answer.status is not grpc.StatusCode.OK:
            number: Any = self.answer.status.value[0]
            self.answer.error = types_pb2.Error(code=number)
        self.ended.set()

    def _read_details(self, rich: status_pb2.Status) -> None:
        answer = self.answer
        assert answer.status is not None
        number: Any = answer.status.value[0]
        assert rich.code == number
        error = answer.error = types_pb2.Error(code=rich.code, message=rich.message)
        kinds: tuple[Any, ...] = (
            error_details_pb2.ErrorInfo,
            error_details_pb2.RetryInfo,
            error_details_pb2.BadRequest,
            error_details_pb2.ResourceInfo,
            inference_pb2.InferenceResult,
        )
        for packed in rich.details:
            kind = next(kind for kind in kinds if packed.Is(kind.DESCRIPTOR))
            detail = kind()
            packed.Unpack(detail)
            answer.details.append(detail)
            if kind is error_details_pb2.ErrorInfo:
                error.reason = types_pb2.ErrorReason.Value(f"ERROR_REASON_{detail.reason}")
                error.metadata.update(detail.metadata)
            elif kind is error_details_pb2.BadRequest:
                error.field = detail.field_violations[0].field
            elif kind is error_details_pb2.RetryInfo:
                error.retry_after.CopyFrom(detail.retry_delay)
            elif kind is inference_pb2.InferenceResult and answer.result is None:
                answer.result = detail
                answer.order.append("result")

    async def cancel(self) -> None:
        self.call.cancel()


class MultiplexExchange(Exchange):
    """One call of a Multiplex stream."""

    def __init__(self, stream: Multiplex, call_id: int) -> None:
        super().__init__()
        self.stream = stream
        self.call_id = call_id

    def finish(self, result: inference_pb2.InferenceResult) -> None:
        assert self.answer.result is None, "two terminal results"
        self.answer.result = result
        self.answer.order.append("result")
        if result.HasField("error"):
            self.answer.error = types_pb2.Error()
            self.answer.error.CopyFrom(result.error)
            field = self.answer.error.field
            if field.startswith("calls["):
                self.answer.error.field = field.partition("].")[2]
        self.ended.set()

    async def cancel(self) -> None:
        await self.stream.send(cancel_call_ids=[self.call_id])


class Multiplex:
    """A client's end of one Multiplex stream."""

    def __init__(self, channel: grpc.aio.Channel, *, reads: bool = True) -> None:
        self.call: Any = channel.stream_stream(f"/{SERVICE}/Multiplex")()
        self.exchanges: dict[int, MultiplexExchange] = {}
        self.messages: list[scheduler_service_pb2.MultiplexResponse] = []
        self.status: grpc.StatusCode | None = None
        self.trailers: dict[str, Any] = {}
        self.ended = asyncio.Event()
        self.strange: list[inference_pb2.InferenceResult] = []  # results of no call of ours
        self._next = 0
        self._reads = asyncio.Event()
        self._turn = asyncio.Lock()  # a stream takes one write at a time
        if reads:
            self._reads.set()
        self.task = asyncio.create_task(self._read())

    async def open(self, **fields: Any) -> None:
        """The first message."""
        await self.send(open=scheduler_service_pb2.MultiplexOpen(**fields))

    async def send(self, **parts: Any) -> None:
        await self.send_raw(scheduler_service_pb2.MultiplexRequest(**parts).SerializeToString())

    async def send_raw(self, data: bytes) -> None:
        async with self._turn:
            await self.call.write(data)

    def new(
        self, request: inference_pb2.InferenceRequest | None = None, **fields: Any
    ) -> tuple[MultiplexExchange, scheduler_service_pb2.Call]:
        """A call that has not been sent yet."""
        self._next += 1
        exchange = self.exchanges[self._next] = MultiplexExchange(self, self._next)
        call = scheduler_service_pb2.Call(call_id=self._next, request=request, **fields)
        return exchange, call

    async def start(
        self, *requests: inference_pb2.InferenceRequest, **fields: Any
    ) -> list[MultiplexExchange]:
        """Send these in one message."""
        new = [self.new(request, **fields) for request in requests]
        await self.send(calls=[call for _, call in new])
        return [exchange for exchange, _ in new]

    async def done(self) -> None:
        await self.send(done=True)

    def read_on(self) -> None:
        """Start reading, where it was told not to."""
        self._reads.set()

    async def close(self) -> None:
        """Break the stream."""
        self.call.cancel()
        self._reads.set()
        await asyncio.gather(self.task, return_exceptions=True)

    async def wait(self) -> grpc.StatusCode:
        """The stream's own end."""
        async with asyncio.timeout(WAIT_S):
            await self.ended.wait()
        assert self.status is not None
        return self.status

    def error_reason(self) -> str:
        """Of a stream that ended with a rich status."""
        rich = status_pb2.Status.FromString(self.trailers["grpc-status-details-bin"])
        info = error_details_pb2.ErrorInfo()
        assert rich.details[0].Unpack(info)
        return info.reason

    async def _read(self) -> None:
        try:
            await self._reads.wait()
            async for data in self.call:
                message = scheduler_service_pb2.MultiplexResponse.FromString(data)
                self.messages.append(message)
                self._take(message)
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        self.status = await self.call.code()
        self.trailers = dict(await self.call.trailing_metadata() or ())
        self.ended.set()

    def _take(self, message: scheduler_service_pb2.MultiplexResponse) -> None:
        for kind in ("accepted", "started"):
            for part in getattr(message, kind):
                exchange = self.exchanges[part.call_id]
                getattr(exchange.answer, kind).append(part)
                exchange.answer.order.append(kind)
                exchange.note()
        deltas = message.deltas
        for index, call_id in enumerate(deltas.ids):
            self.exchanges[call_id].answer.add_deltas(deltas, index)
            self.exchanges[call_id].note()
        for result in message.results:
            if result.call_id in self.exchanges:
                self.exchanges[result.call_id].finish(result.result)
                self.exchanges[result.call_id].note()
            else:
                self.strange.append(result.result)
