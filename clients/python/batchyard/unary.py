"""The transport where a server has no Multiplex: one RPC, and one task, per call.

Simple and slow (see `link.py` for the fast way). A call that may be attached to again survives
its RPC's end on the server, so cancelling it says so by CancelRequests as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Any

import grpc

from batchyard.calls import Call, StreamCall
from batchyard.channel import Metadata
from batchyard.errors import BatchyardError, Cancelled, ProtocolError, Unavailable
from batchyard.output import read_deltas
from batchyard.status import from_rpc_error
from batchyard.tracing import RpcSpan
from batchyard.v1 import (
    CancelRequestsRequest,
    GenerateRequest,
    GenerateStreamRequest,
    GenerateStreamResponse,
    SchedulerServiceStub,
)

__all__ = ["UnaryTransport"]

_SERVICE = "batchyard.v1.SchedulerService"
_CANCEL_TIMEOUT_S = 5.0
_IDS_MAX = 1000  # of one CancelRequests


class UnaryTransport:
    """Carries each call by Generate or GenerateStream."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        peer: str,
        metadata: Metadata,
        deadline_grace_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        stub: Any = SchedulerServiceStub
        self._stub = stub(channel)
        self._peer = peer
        self._metadata = metadata
        self._grace_s = deadline_grace_s
        self._tasks: dict[Call, asyncio.Task[None]] = {}
        self._to_cancel: dict[str, list[str]] = defaultdict(list)  # request ids by tenant
        self._cancelling: set[asyncio.Task[None]] = set()

    def start(self, call: Call) -> None:
        call.carrier = self
        self._tasks[call] = self._loop.create_task(self._carry(call), name="batchyard-call")

    def cancel(self, call: Call) -> None:
        task = self._tasks.pop(call, None)
        if task is None:
            return
        task.cancel()
        if call.proto.HasField("detach_grace"):
            self._to_cancel[call.proto.request.tenant].append(call.request_id)
            if len(self._to_cancel) == 1:
                sending = self._loop.create_task(self._send_cancels(), name="batchyard-cancel")
                self._cancelling.add(sending)
                sending.add_done_callback(self._cancelling.discard)

    async def close(self) -> None:
        for call, task in list(self._tasks.items()):
            task.cancel()
            call.fail(Cancelled("the client was closed"))
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        if self._cancelling:
            await asyncio.wait(list(self._cancelling))

    async def _send_cancels(self) -> None:
        await asyncio.sleep(0)  # those of the same moment go together
        pending, self._to_cancel = self._to_cancel, defaultdict(list)
        for tenant, ids in pending.items():
            for start in range(0, len(ids), _IDS_MAX):
                request = CancelRequestsRequest(
                    request_ids=ids[start : start + _IDS_MAX], tenant=tenant
                )
                # Where the server cannot be told, the end of `detach_grace` cancels.
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self._stub.CancelRequests(
                        request, timeout=_CANCEL_TIMEOUT_S, metadata=self._metadata or None
                    )

    async def _carry(self, call: Call) -> None:
        method = "GenerateStream" if isinstance(call, StreamCall) else "Generate"
        span: RpcSpan | None = None
        if call.span is not None:
            span = call.span.begin_rpc(call.proto.request, f"{_SERVICE}/{method}", self._peer)
        code = "CANCELLED"
        try:
            metadata = (*self._metadata, *(span.metadata if span is not None else ()))
            if isinstance(call, StreamCall):
                await self._carry_stream(call, metadata)
            else:
                await self._carry_unary(call, metadata)
            code = "OK"
        except BatchyardError as error:
            code = error.code
            call.fail(error)
        except grpc.aio.AioRpcError as rpc_error:
            code = rpc_error.code().name
            failure = from_rpc_error(rpc_error, peer=self._peer)
            failure.request_id = failure.request_id or call.request_id
            failure.__cause__ = rpc_error
            call.fail(failure)
        except asyncio.CancelledError:
            # By us (the call is forgotten), or the server ended it with CANCELLED.
            call.fail(Cancelled("the server cancelled the call", request_id=call.request_id))
        finally:
            self._tasks.pop(call, None)
            if span is not None:
                span.end(code)

    async def _carry_unary(self, call: Call, metadata: Metadata) -> None:
        request = GenerateRequest(request=call.proto.request)
        if call.proto.HasField("detach_grace"):
            request.detach_grace.CopyFrom(call.proto.detach_grace)
        response = await self._stub.Generate(
            request, timeout=self._time_left_s(call), metadata=metadata or None
        )
        call.finish(response.result)

    async def _carry_stream(self, call: StreamCall, metadata: Metadata) -> None:
        request = GenerateStreamRequest(request=call.proto.request)
        if call.proto.HasField("detach_grace"):
            request.detach_grace.CopyFrom(call.proto.detach_grace)
        if call.proto.HasField("attach"):
            request.attach.CopyFrom(call.proto.attach)
        rpc = self._stub.GenerateStream(
            request, timeout=self._time_left_s(call), metadata=metadata or None
        )
        try:
            async for response in rpc:
                _take(call, response)
        except ProtocolError:
            rpc.cancel()
            raise
        except grpc.aio.AioRpcError:
            if not call.settled:  # a failure's result came before its status
                raise
        if not call.settled:
            raise Unavailable(f"{self._peer} ended the stream without a result", retryable=True)

    def _time_left_s(self, call: Call) -> float | None:
        if call.deadline is None:
            return None
        return max(call.deadline - self._loop.time(), 0.0) + self._grace_s


def _take(call: StreamCall, response: GenerateStreamResponse) -> None:
    match response.WhichOneof("event"):
        case "accepted":
            call.accepted(response.accepted)
        case "started":
            call.started(response.started)
        case "deltas":
            for extra in response.deltas.extras:
                call.extra(extra)
            for delta in read_deltas(response.deltas):
                call.delta(delta)
        case "result":
            call.finish(response.result)
        case _:
            pass  # a later protocol's event
