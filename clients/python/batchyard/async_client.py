"""The client for asyncio. `client.py` has its twin for code without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, Unpack

import grpc

from batchyard import tracing
from batchyard.async_admin import AsyncAdmin
from batchyard.calls import Call, StreamCall, UnaryCall
from batchyard.channel import Tls, address_of, admin_address_of, metadata_of, open_channel
from batchyard.deadlines import DeadlineWheel
from batchyard.durations import Duration, parse_duration, write_duration
from batchyard.errors import BatchyardError, Cancelled, DeadlineExceeded, InvalidRequest
from batchyard.multiplexer import Multiplexer, MultiplexerSettings
from batchyard.request import Message, RequestOptions, fill_request
from batchyard.results import Result
from batchyard.retry import OnRetry, Retry, RetryPolicy
from batchyard.rpc import call_unary
from batchyard.status import from_result, is_failure
from batchyard.stream import AsyncStream
from batchyard.unary import UnaryTransport
from batchyard.v1 import (
    CancelRequestsRequest,
    GetServerInfoRequest,
    GetServerInfoResponse,
    InferenceRequest,
    ListModelsRequest,
    ModelInfo,
    MultiplexRequest,
    SchedulerServiceStub,
)

__all__ = ["AsyncClient", "Transport"]

Transport = Literal["auto", "multiplex", "unary"]


class AsyncClient:
    """A client of one scheduler, for one event loop. It connects when it is first used.

        async with AsyncClient("localhost:7611") as client:
            result = await client.generate("Summarise ...", model="small", timeout="30s")
            print(result.text, result.usage.output_tokens)
            async for event in client.stream("Tell me a story", model="small"):
                print(event.text, end="")

    All calls of a client share one stream to the scheduler, so `asyncio.gather` over a thousand
    `generate` costs a few messages. Create clients after a fork, never before.

    - `address`: "host:port"; absent: BATCHYARD_ADDRESS, else 127.0.0.1:7611.
    - `api_key`: sent as a bearer token. `tls`: True, root certificates (path or bytes), or
      grpc.ChannelCredentials.
    - `tenant`, `model`: for requests that name none.
    - `transport`: "auto" shares a stream and falls back to one RPC per call where the server
      cannot; "multiplex" and "unary" insist.
    - `retries`: how often a call may be sent again, where the server allows it; 0: never.
      `on_retry` hears of each.
    - `deadline_grace`: a call with a `timeout` fails here that long after the server should have
      answered.
    - `detach_grace`: how long the server goes on with the work when the connection breaks, so that
      a reconnect finds it. It is also how long the work of a killed client goes on. "0s": not.
    - `reconnect_timeout`: how long calls in flight wait for a lost scheduler.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        model: str | None = None,
        tls: Tls = None,
        transport: Transport = "auto",
        admin_address: str | None = None,
        retries: int = 3,
        on_retry: OnRetry | None = None,
        deadline_grace: Duration = "500ms",
        detach_grace: Duration = "500ms",
        reconnect_timeout: Duration = "15s",
    ) -> None:
        if transport not in ("auto", "multiplex", "unary"):
            raise InvalidRequest(
                f'must be "auto", "multiplex" or "unary", not {transport!r}', field="transport"
            )
        if type(retries) is not int or retries < 0:
            raise InvalidRequest(f"must be 0 or more, not {retries!r}", field="retries")
        self.address = address_of(address)
        self._admin_address = admin_address_of(admin_address)
        self._metadata = metadata_of(api_key)
        self._api_key = api_key
        self._tls = tls
        self._mode: Transport = transport
        self._on_retry = on_retry
        self._policy = RetryPolicy(retries)
        self._grace_s = parse_duration(deadline_grace, "deadline_grace")
        self._detach_s = parse_duration(detach_grace, "detach_grace") if retries else 0.0
        self._reconnect_s = parse_duration(reconnect_timeout, "reconnect_timeout")
        self._defaults = {
            name: value for name, value in (("tenant", tenant), ("model", model)) if value
        }
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel: grpc.aio.Channel | None = None
        self._transport: Multiplexer | UnaryTransport | None = None
        self._wheel: DeadlineWheel | None = None
        self._calls: dict[Call, int] = {}  # begun and not ended, with the key in the wheel
        self._admin: AsyncAdmin | None = None
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client holds a connection and cannot be pickled; create one in each process"
        )

    # Requests.

    async def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        request: InferenceRequest | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """One request, its whole answer. Cancelling the task cancels it on the server.

            await client.generate("Why?", model="small", priority=8, max_wait="2s", timeout="60s")
            await client.generate(messages=[{"role": "user", "content": "hi"}], max_tokens=20)

        Give `prompt`, `messages` or, for other inputs, a whole `request`. Options: RequestOptions.
        Raises a BatchyardError.
        """
        loop = self._usable()
        frame = self._frame(prompt, messages, request, options)
        call = UnaryCall(frame, _deadline(loop, frame), loop.create_future())
        self.trace(call, stream=False)
        try:
            self.begin(call)
            result = await self._answer(call, loop)
        except BaseException as failure:
            call.cancel()
            self.end(call, failure)
            raise
        self.end(call, result)
        return result

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        request: InferenceRequest | None = None,
        restarts: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncStream:
        """One request, its output as it comes. Options as of `generate`.

            async for event in client.stream("Why?", model="small"):
                print(event.text, end="")

        Leaving the loop cancels. `restarts=True` shows when an output starts anew
        (`event.restarted`); False hides it; else it is an error once text has been seen, unless
        `resume="restart"` asked for it.
        """
        loop = self._usable()
        frame = self._frame(prompt, messages, request, options)
        call = StreamCall(frame, _deadline(loop, frame))
        if restarts is None and options.get("resume") == "restart":
            restarts = True
        return AsyncStream(self, call, restarts)

    # Other RPCs.

    async def list_models(self) -> AsyncIterator[ModelInfo]:
        """What the scheduler serves, page by page."""
        stub = self._stub()
        request = ListModelsRequest()
        while True:
            page = await call_unary(stub.ListModels, request, self._metadata, self.address)
            for model in page.models:
                yield model
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def server_info(self) -> GetServerInfoResponse:
        """Versions, features and limits."""
        response: GetServerInfoResponse = await call_unary(
            self._stub().GetServerInfo, GetServerInfoRequest(), self._metadata, self.address
        )
        return response

    async def cancel(
        self, request_ids: str | Iterable[str], *, reason: str = "", tenant: str | None = None
    ) -> list[str]:
        """Cancels requests by id; returns those that were found and not yet finished."""
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        if not ids:
            raise InvalidRequest("must name at least one request", field="request_ids")
        chosen = tenant if tenant is not None else self._defaults.get("tenant", "")
        request = CancelRequestsRequest(request_ids=ids, tenant=chosen, reason=reason)
        response = await call_unary(
            self._stub().CancelRequests, request, self._metadata, self.address
        )
        return list(response.request_ids)

    @property
    def admin(self) -> AsyncAdmin:
        """What operators call, at the admin address."""
        self._usable()
        if self._admin is None:
            self._admin = AsyncAdmin(self._admin_address, api_key=self._api_key, tls=self._tls)
        return self._admin

    async def flush(self) -> None:
        """Returns when cancels that were asked for have been written."""
        if self._transport is not None:
            await self._transport.flush()

    async def close(self) -> None:
        """Cancels what is in flight, on the server too, and closes the connection. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for call in list(self._calls):
            call.cancel()
            call.fail(Cancelled("the client was closed", request_id=call.request_id))
        if self._wheel is not None:
            self._wheel.close()
        if self._transport is not None:
            await self._transport.close()
        if self._admin is not None:
            await self._admin.close()
        if self._channel is not None:
            await self._channel.close()

    # For the streams of this client, and its synchronous twin.

    def trace(self, call: Call, *, stream: bool) -> None:
        """Begins the call's span, below the caller's."""
        call.span = tracing.begin(call.proto.request, stream=stream, address=self.address)

    def begin(self, call: Call) -> None:
        """Sends a call for the first time."""
        if self._closed:
            raise RuntimeError("the client is closed")
        transport = self._carrier()
        self._policy.call_began()
        key = 0
        if call.deadline is not None and self._wheel is not None:
            key = self._wheel.add(call, call.deadline + self._grace_s)
        self._calls[call] = key
        transport.start(call)

    def resend(self, call: Call) -> None:
        """Sends a call again, with what is left of its time."""
        assert self._loop is not None
        call.prepare_again(self._loop.time())
        self._carrier().start(call)

    async def before_retry(self, call: Call, error: BatchyardError, attempt: int) -> None:
        """Waits until `call` may be sent again; raises `error` if it may not.

        `attempt` is the number of tries that ended with an answer; those that ended with their
        stream count too, so that no layer multiplies the other.
        """
        assert self._loop is not None
        left_s = float("inf") if call.deadline is None else call.deadline - self._loop.time()
        delay_s = self._policy.delay_s(error, attempt + call.breaks, left_s)
        if delay_s is None or self._closed:
            raise error
        if self._on_retry is not None:
            self._on_retry(Retry(error, attempt, delay_s, call.request_id))
        if call.span is not None:
            call.span.retrying(error, attempt, delay_s)
        await asyncio.sleep(delay_s)

    def end(self, call: Call, outcome: Result | BaseException) -> None:
        """The caller has its answer, or has gone."""
        key = self._calls.pop(call, 0)
        if key and self._wheel is not None:
            self._wheel.remove(call, key)
        if call.span is not None:
            span, call.span = call.span, None
            if isinstance(outcome, Result):
                span.end_ok(outcome)
            else:
                span.end_error(outcome)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Runs `action` in the client's loop, from any thread; not at all when that has ended."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(action)

    def _usable(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        if self._closed:
            raise RuntimeError("the client is closed")
        return loop

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("gRPC does not survive a fork; create clients after it")
        if self._loop is not None:
            raise RuntimeError("a client belongs to one event loop; create one in each")
        self._loop = loop
        self._wheel = DeadlineWheel(loop, self._expire)

    async def _answer(self, call: UnaryCall, loop: asyncio.AbstractEventLoop) -> Result:
        attempt = 1
        while True:
            try:
                proto = await call.future
                if not is_failure(proto):
                    return Result.from_proto(proto)
                error = from_result(proto)
            except BatchyardError as failure:
                error = failure
            await self.before_retry(call, error, attempt)
            attempt += 1
            call.future = loop.create_future()
            self.resend(call)

    def _frame(
        self,
        prompt: str | None,
        messages: Sequence[Message] | None,
        request: InferenceRequest | None,
        options: Mapping[str, Any],
    ) -> MultiplexRequest:
        frame = MultiplexRequest()
        call = frame.calls.add()
        target = call.request
        fill_request(target, prompt, messages, request, options)
        for name, value in self._defaults.items():
            if not getattr(target, name):
                setattr(target, name, value)
        if not target.request_id:
            target.request_id = os.urandom(16).hex()
        if self._detach_s:
            write_duration(call.detach_grace, self._detach_s)
        return frame

    def _expire(self, call: Call) -> None:
        call.cancel()
        call.fail(
            DeadlineExceeded(
                "no answer came within the timeout",
                reason="DEADLINE_EXCEEDED",
                request_id=call.request_id,
            )
        )

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = open_channel(self.address, self._tls)
        return self._channel

    def _stub(self) -> Any:
        self._usable()
        stub: Any = SchedulerServiceStub
        return stub(self._open_channel())

    def _carrier(self) -> Multiplexer | UnaryTransport:
        if self._transport is None:
            if self._mode == "unary":
                self._transport = self._unary_transport()
            else:
                self._transport = Multiplexer(
                    self._open_channel(),
                    MultiplexerSettings(
                        peer=self.address,
                        metadata=self._metadata,
                        policy=self._policy,
                        reconnect_timeout_s=self._reconnect_s,
                        fall_back=self._fall_back if self._mode == "auto" else None,
                    ),
                )
        return self._transport

    def _unary_transport(self) -> UnaryTransport:
        return UnaryTransport(
            self._open_channel(),
            peer=self.address,
            metadata=self._metadata,
            deadline_grace_s=self._grace_s,
        )

    def _fall_back(self, calls: list[Call]) -> None:
        """The server has no Multiplex."""
        if not isinstance(self._transport, UnaryTransport):
            self._transport = self._unary_transport()
        for call in calls:
            self._transport.start(call)


def _deadline(loop: asyncio.AbstractEventLoop, frame: MultiplexRequest) -> float | None:
    request = frame.calls[0].request
    if not request.HasField("timeout"):
        return None
    return loop.time() + request.timeout.seconds + request.timeout.nanos / 1e9
