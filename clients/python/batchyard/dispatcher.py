"""Who carries a client's calls, until when, and is it tried again?

Every call goes `begin` -> any number of `before_retry`, `resend` -> `end`. AsyncClient and
AsyncStream are its users; transports (`multiplexer.py`, `unary.py`) do the carrying.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import grpc

from batchyard import tracing
from batchyard.calls import Call
from batchyard.channel import Metadata, Tls, open_channel
from batchyard.deadlines import DeadlineWheel
from batchyard.errors import BatchyardError, Cancelled, DeadlineExceeded
from batchyard.multiplexer import Multiplexer, MultiplexerSettings
from batchyard.results import Result
from batchyard.retry import OnRetry, Retry, RetryPolicy
from batchyard.unary import UnaryTransport

__all__ = ["Dispatcher", "DispatcherSettings", "Transport"]

Transport = Literal["auto", "multiplex", "unary"]


@dataclass(slots=True, frozen=True)
class DispatcherSettings:
    """What AsyncClient was told, parsed."""

    address: str
    metadata: Metadata
    tls: Tls
    transport: Transport
    policy: RetryPolicy
    on_retry: OnRetry | None
    deadline_grace_s: float
    reconnect_timeout_s: float


class Dispatcher:
    """The calls of one client, in one event loop."""

    def __init__(self, settings: DispatcherSettings) -> None:
        self._settings = settings
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel: grpc.aio.Channel | None = None
        self._transport: Multiplexer | UnaryTransport | None = None
        self._wheel: DeadlineWheel | None = None
        self._calls: dict[Call, int] = {}  # begun and not ended, with the key in the wheel
        self._closed = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, which is the client's own; RuntimeError where it cannot be used."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        if self._closed:
            raise RuntimeError("the client is closed")
        return loop

    def channel(self) -> grpc.aio.Channel:
        """The one channel; made when it is first asked for."""
        self.loop()
        if self._channel is None:
            self._channel = open_channel(self._settings.address, self._settings.tls)
        return self._channel

    def trace(self, call: Call, *, stream: bool) -> None:
        """Begins the call's span, below the caller's."""
        call.span = tracing.begin(call.proto.request, stream=stream, address=self._settings.address)

    def begin(self, call: Call) -> None:
        """Sends a call for the first time."""
        self.loop()
        transport = self._carrier()
        self._settings.policy.call_began()
        key = 0
        if call.deadline is not None and self._wheel is not None:
            key = self._wheel.add(call, call.deadline + self._settings.deadline_grace_s)
        self._calls[call] = key
        transport.start(call)

    async def before_retry(self, call: Call, error: BatchyardError, attempt: int) -> None:
        """Waits until `call` may be sent again; raises `error` if it may not.

        `attempt` is the number of tries that ended with an answer; those that ended with their
        stream count too, so that no layer multiplies the other.
        """
        assert self._loop is not None
        left_s = float("inf") if call.deadline is None else call.deadline - self._loop.time()
        delay_s = self._settings.policy.delay_s(error, attempt + call.breaks, left_s)
        if delay_s is None or self._closed:
            raise error
        if self._settings.on_retry is not None:
            self._settings.on_retry(Retry(error, attempt, delay_s, call.request_id))
        if call.span is not None:
            call.span.retrying(error, attempt, delay_s)
        await asyncio.sleep(delay_s)

    def resend(self, call: Call) -> None:
        """Sends a call again, with what is left of its time."""
        call.prepare_again(self.loop().time())
        self._carrier().start(call)

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

    async def close(self) -> None:
        """Cancels what is in flight, on the server too, and closes the channel. Idempotent."""
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
        if self._channel is not None:
            await self._channel.close()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("gRPC does not survive a fork; create clients after it")
        if self._loop is not None:
            raise RuntimeError("a client belongs to one event loop; create one in each")
        self._loop = loop
        self._wheel = DeadlineWheel(loop, _expire)

    def _carrier(self) -> Multiplexer | UnaryTransport:
        if self._transport is None:
            settings = self._settings
            if settings.transport == "unary":
                self._transport = self._unary_transport()
            else:
                self._transport = Multiplexer(
                    self.channel(),
                    MultiplexerSettings(
                        peer=settings.address,
                        metadata=settings.metadata,
                        policy=settings.policy,
                        reconnect_timeout_s=settings.reconnect_timeout_s,
                        fall_back=self._fall_back if settings.transport == "auto" else None,
                    ),
                )
        return self._transport

    def _unary_transport(self) -> UnaryTransport:
        return UnaryTransport(
            self.channel(),
            peer=self._settings.address,
            metadata=self._settings.metadata,
            deadline_grace_s=self._settings.deadline_grace_s,
        )

    def _fall_back(self, calls: list[Call]) -> None:
        """The server has no Multiplex."""
        if not isinstance(self._transport, UnaryTransport):
            self._transport = self._unary_transport()
        for call in calls:
            self._transport.start(call)


def _expire(call: Call) -> None:
    call.cancel()
    call.fail(
        DeadlineExceeded(
            "no answer came within the timeout",
            reason="DEADLINE_EXCEEDED",
            request_id=call.request_id,
        )
    )
