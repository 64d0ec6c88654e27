"""The client for asyncio. `client.py` has its twin for code without an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Unpack

from google.protobuf.duration_pb2 import Duration as ProtoDuration

from batchyard.async_admin import AsyncAdmin
from batchyard.async_jobs import AsyncJobs
from batchyard.calls import StreamCall, UnaryCall
from batchyard.channel import (
    Tls,
    address_of,
    admin_address_of,
    check_token_stays_secret,
    metadata_of,
)
from batchyard.dispatcher import Dispatcher, DispatcherSettings, Transport
from batchyard.durations import Duration, parse_duration, write_duration
from batchyard.errors import BatchyardError, InvalidRequest
from batchyard.request import Message, RequestOptions, fill_request
from batchyard.results import Result
from batchyard.retry import OnRetry, RetryPolicy
from batchyard.rpc import call_unary
from batchyard.status import from_result, is_failure
from batchyard.stream import AsyncStream
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

__all__ = ["AsyncClient"]


class AsyncClient:
    """A client of one scheduler, for one event loop. It connects when it is first used.

        async with AsyncClient("localhost:7611") as client:
            result = await client.generate("Summarise ...", model="small", timeout="30s")
            print(result.text, result.usage.output_tokens)
            async for event in client.stream("Tell me a story", model="small"):
                print(event.text, end="")

    All calls of a client share one stream to the scheduler, so `asyncio.gather` over a thousand
    `generate` costs a few messages. Create clients after a fork, never before: gRPC works in no
    child that was forked while a client was in use (RuntimeError), and may crash it as it starts,
    unless GRPC_ENABLE_FORK_SUPPORT=0 is in the environment.

    - `address`: "host:port"; absent: BATCHYARD_ADDRESS, else 127.0.0.1:7611. `admin_address`:
      absent: BATCHYARD_ADMIN_ADDRESS, else two ports above.
    - `api_key`: sent as a bearer token. `tls`: True, root certificates (path or bytes), or
      grpc.ChannelCredentials. None: plain text, but never with a token to another machine; False:
      plain text, since the network encrypts.
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
        self._admin_address = admin_address_of(admin_address, self.address)
        check_token_stays_secret(self.address, api_key, tls)
        self._metadata = metadata_of(api_key)
        self._api_key = api_key
        self._tls = tls
        self._detach_grace = ProtoDuration()
        if retries:
            write_duration(self._detach_grace, parse_duration(detach_grace, "detach_grace"))
        self._detaches = self._detach_grace.ToNanoseconds() > 0
        self._defaults = {
            name: value for name, value in (("tenant", tenant), ("model", model)) if value
        }
        self._admin: AsyncAdmin | None = None
        self._dispatcher = Dispatcher(
            DispatcherSettings(
                address=self.address,
                metadata=self._metadata,
                tls=tls,
                transport=transport,
                policy=RetryPolicy(retries),
                on_retry=on_retry,
                deadline_grace_s=parse_duration(deadline_grace, "deadline_grace"),
                reconnect_timeout_s=parse_duration(reconnect_timeout, "reconnect_timeout"),
            )
        )

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
        dispatcher = self._dispatcher
        loop = dispatcher.loop()
        frame = self._frame(prompt, messages, request, options)
        call = UnaryCall(frame, _deadline(loop, frame), loop.create_future())
        dispatcher.trace(call, stream=False)
        try:
            dispatcher.begin(call)
            result = await self._answer(call, loop)
        except BaseException as failure:
            call.cancel()
            dispatcher.end(call, failure)
            raise
        dispatcher.end(call, result)
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
        loop = self._dispatcher.loop()
        frame = self._frame(prompt, messages, request, options)
        call = StreamCall(frame, _deadline(loop, frame))
        if restarts is None and options.get("resume") == "restart":
            restarts = True
        return AsyncStream(self._dispatcher, call, restarts)

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
    def jobs(self) -> AsyncJobs:
        """Stored work: many requests that nobody waits for."""
        tenant = self._defaults.get("tenant", "")
        return AsyncJobs(self._stub, self._metadata, self.address, tenant)

    @property
    def admin(self) -> AsyncAdmin:
        """What operators call, at the admin address."""
        self._dispatcher.loop()
        if self._admin is None:
            self._admin = AsyncAdmin(self._admin_address, api_key=self._api_key, tls=self._tls)
        return self._admin

    async def close(self) -> None:
        """Cancels what is in flight, on the server too, and closes the connection. Idempotent."""
        await self._dispatcher.close()
        if self._admin is not None:
            await self._admin.close()

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
            await self._dispatcher.before_retry(call, error, attempt)
            attempt += 1
            call.future = loop.create_future()
            self._dispatcher.resend(call)

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
        if self._detaches:
            call.detach_grace.CopyFrom(self._detach_grace)
        return frame

    def _stub(self) -> Any:
        stub: Any = SchedulerServiceStub
        return stub(self._dispatcher.channel())


def _deadline(loop: asyncio.AbstractEventLoop, frame: MultiplexRequest) -> float | None:
    request = frame.calls[0].request
    if not request.HasField("timeout"):
        return None
    return loop.time() + request.timeout.seconds + request.timeout.nanos / 1e9
