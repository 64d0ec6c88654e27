"""What happens on one stream to a scheduler, from the dial to its end?

Hello goes out, Welcome (or a Goodbye) comes in; then one reader and one writer run side by side
until either ends. Messages come and go as raw bytes: what a batch carries is parsed item by item.
The session decides nothing about work: it posts events and writes what the core commands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from batchyard.wire.v1 import wire_pb2 as wire
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.driver import Driver
from node_agent.rpc import convert, durations
from node_agent.rpc.dial import Dialer, DialError, plain_dialer
from node_agent.rpc.errors import reason_name
from node_agent.rpc.outbox import DEFAULT_MESSAGE_BYTES
from node_agent.rpc.report import application_utilization
from node_agent.rpc.settings import timing_of
from node_agent.rpc.writer import Writer

log = logging.getLogger("node_agent.session")

CLOSE_S = 1.0  # for a scheduler to answer our half-close


@dataclass(slots=True, kw_only=True)
class SessionEnd:
    """How a session ended, and what is to be done next."""

    why: str  # for people
    reason: str = ""  # an ErrorReason without its prefix, or a gRPC code; empty: a normal end
    good: bool = False  # it had been welcomed
    reconnect: bool = True
    reconnect_after_s: float | None = None  # None: by the back-off
    redirect: str = ""


class Session:
    """One stream. Use it once."""

    def __init__(
        self,
        *,
        address: str,
        driver: Driver,
        make_hello: Callable[[cmd.SendHello], node.Hello],
        on_command: Callable[[node.Command, Callable[[node.CommandResult], None]], None],
        on_up: Callable[[node.Welcome], None],
        welcome_timeout_s: float,
        dialer: Dialer | None = None,
    ) -> None:
        self._address = address
        self._dialer = dialer or plain_dialer()
        self._driver = driver
        self._make_hello = make_hello
        self._on_command = on_command
        self._on_up = on_up
        self._welcome_timeout_s = welcome_timeout_s
        self._welcomed = False
        self._over = False

    async def run(self) -> SessionEnd:
        """Dial, work until the stream ends, and say how it ended. Cancel it to half-close."""
        try:
            async with self._dialer.stream(self._address) as call:
                end = await self._on(call)
        except DialError as fault:
            return SessionEnd(why=str(fault), reason="UNAUTHENTICATED")
        end.good = self._welcomed
        return end

    async def _on(self, call: Any) -> SessionEnd:
        try:
            return await self._talk(call)
        except (grpc.RpcError, asyncio.InvalidStateError) as fault:
            return await _status(call, fault)
        finally:
            self._over = True
            self._driver.outbox.detach()
            self._driver.post(ev.SessionClosed())

    async def _talk(self, call: Any) -> SessionEnd:
        back = self._driver.open_session()
        hello = node.ConnectRequest(hello=self._make_hello(back))
        await call.write(hello.SerializeToString())
        try:
            async with asyncio.timeout(self._welcome_timeout_s):
                first = await call.read()
        except TimeoutError:
            return SessionEnd(why="the scheduler did not answer the Hello", reason="TIMEOUT")
        if first is grpc.aio.EOF:
            return await _status(call)
        message = _parse(first)
        if message is None or not (message.HasField("welcome") or message.HasField("goodbye")):
            return _violation("its first message is neither a Welcome nor a Goodbye")
        if message.HasField("goodbye"):
            return _goodbye(message.goodbye)
        return await self._work(call, message)

    async def _work(self, call: Any, first: wire.PackedConnectResponse) -> SessionEnd:
        welcome = first.welcome
        outbox = self._driver.outbox
        utilization = lambda: application_utilization(self._driver.core)  # noqa: E731
        writer = Writer(outbox, call.write, timing_of(welcome), utilization)
        outbox.max_message_bytes = welcome.max_message_bytes or DEFAULT_MESSAGE_BYTES
        outbox.attach(writer.wake)
        refusal = self._driver.welcome(convert.welcomed(welcome))
        if refusal is not None:
            return SessionEnd(why=refusal.message, reason=refusal.reason)
        self._welcomed = True
        self._on_up(welcome)
        goodbye = self._handle(first)
        if goodbye is not None:
            return goodbye
        return await self._read_and_write(call, writer)

    async def _read_and_write(self, call: Any, writer: Writer) -> SessionEnd:
        reading = asyncio.create_task(self._read(call), name="session reader")
        writing = asyncio.create_task(writer.run(), name="session writer")
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                # The writer broke: the reader gets the stream's end, and its true status, soon.
                await asyncio.wait((reading,), timeout=CLOSE_S)
            if reading.done():
                return reading.result()
            writing.result()  # not the stream's fault: ours, and not to be hidden
            return await _status(call)
        except asyncio.CancelledError:
            # A write that is cancelled would end the stream, and its message might be the Drain.
            writer.finish()
            await asyncio.wait((writing,), timeout=CLOSE_S)
            await _cancel(writing)
            await self._half_close(call, reading)
            raise
        finally:
            await _cancel(reading, writing)

    async def _read(self, call: Any) -> SessionEnd:
        while True:
            data = await call.read()
            if data is grpc.aio.EOF:
                return await _status(call)
            message = _parse(data)
            if message is None:
                return _violation("a message of it cannot be parsed")
            end = self._handle(message)
            if end is not None:
                return end

    def _handle(self, message: wire.PackedConnectResponse) -> SessionEnd | None:
        """Take in one message; an end if it says goodbye."""
        if message.HasField("ping"):
            self._driver.outbox.add_pong(message.ping.nonce)
        events = convert.events(message)
        if events:
            self._driver.received(events)
        for command in message.commands:
            self._on_command(command, self._answer)
        return _goodbye(message.goodbye) if message.HasField("goodbye") else None

    def _answer(self, result: node.CommandResult) -> None:
        """A command is done; its number means something in this session only."""
        if not self._over:
            self._driver.outbox.add_command_result(result)

    async def _half_close(self, call: Any, reading: asyncio.Task[SessionEnd]) -> None:
        """Leave in good order: the scheduler sees a clean end, not a broken stream."""
        try:
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            return
        await asyncio.wait((reading,), timeout=CLOSE_S)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """End tasks and take in what they raise, so that nothing is left unobserved."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _status(call: Any, fault: BaseException | None = None) -> SessionEnd:
    """The end as the scheduler's status tells it, which outranks what a write or read raised."""
    try:
        async with asyncio.timeout(CLOSE_S):
            code, details = await call.code(), await call.details()
    except TimeoutError:
        return SessionEnd(why=f"the stream broke: {fault!r}", reason="UNKNOWN")
    if code is grpc.StatusCode.OK:
        return SessionEnd(why="the scheduler closed the stream")
    end = SessionEnd(why=f"{code.name}: {details}", reason=code.name)
    if code is grpc.StatusCode.ALREADY_EXISTS:
        end.reason, end.reconnect = "NODE_ID_IN_USE", False
    return end


def _parse(data: bytes) -> wire.PackedConnectResponse | None:
    try:
        return wire.PackedConnectResponse.FromString(data)
    except DecodeError:
        return None


def _violation(what: str) -> SessionEnd:
    return SessionEnd(why=f"the scheduler broke the protocol: {what}", reason="PROTOCOL_VIOLATION")


def _goodbye(goodbye: node.Goodbye) -> SessionEnd:
    has_error = goodbye.HasField("error")
    again = goodbye.HasField("reconnect_after")
    reason = reason_name(goodbye.error.reason) if has_error else ""
    if goodbye.error.reason == types.ERROR_REASON_NODE_ID_IN_USE:
        again = False
    return SessionEnd(
        why=goodbye.error.message if has_error else "the scheduler said goodbye",
        reason=reason,
        reconnect=again,
        reconnect_after_s=durations.to_s(goodbye.reconnect_after) if again else None,
        redirect=goodbye.redirect,
    )
