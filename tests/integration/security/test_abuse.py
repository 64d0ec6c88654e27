"""Slow, idle and greedy peers hold nothing for long, and nobody else up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from batchyard.v1 import SchedulerServiceStub, scheduler_service_pb2
from tests.integration.security.secured import (
    Secured,
    bearer,
    code_of,
    secured,
    try_method,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
LIST_MODELS = "/batchyard.v1.SchedulerService/ListModels"
MULTIPLEX = "/batchyard.v1.SchedulerService/Multiplex"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    limits = ("abuse.handshake=1s", "abuse.first_message=500ms", "abuse.idle_stream=500ms",
              "abuse.header_bytes=4096", "abuse.connections=6",
              "models=[later]", "queue.no_node_grace=60s")  # fmt: skip
    async with secured(tmp_path, *limits) as world:
        yield world


async def answers(world: Secured, token: str) -> bool:
    async with world.channel("client") as channel:
        call = try_method(channel, LIST_MODELS, (False, False), bearer(token))
        return await call is grpc.StatusCode.OK


async def raw(
    world: Secured, port: str = "client", tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, number = getattr(world.addresses, port).rpartition(":")
    return await asyncio.open_connection(host, int(number), ssl=tls)


async def test_a_connection_that_never_greets_is_closed(world: Secured) -> None:
    """Slow-loris before TLS: nothing at all, and one byte of a handshake; on every port."""

    async def closed(port: str, begun: bytes) -> bool:
        reader, writer = await raw(world, port)
        writer.write(begun)
        try:
            return await reader.read() == b""
        finally:
            writer.close()

    async with asyncio.timeout(15):
        tries = [closed(p, b) for p in ("client", "node", "admin", "http") for b in (b"", b"\x16")]
        assert all(await asyncio.gather(*tries))


async def test_more_connections_than_allowed_are_turned_away(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    host, _, port = world.addresses.client.rpartition(":")
    sockets = []
    for _ in range(30):
        connection = socket.create_connection((host, int(port)))
        connection.setblocking(False)
        sockets.append(connection)
    closed = 0
    async with asyncio.timeout(20):
        for connection in sockets:
            closed += await asyncio.get_running_loop().sock_recv(connection, 1) == b""
            connection.close()
    assert closed == len(sockets)
    async with asyncio.timeout(20):
        assert await answers(world, token)  # their places are free again


async def test_a_request_that_never_comes_holds_its_rpc_for_a_moment_only(world: Secured) -> None:
    """A unary RPC with headers and no message."""
    token = world.files.token()
    world.access.refresh()
    async with world.channel("client") as channel:
        call: Any = channel.stream_stream(LIST_MODELS)(metadata=bearer(token))
        async with asyncio.timeout(10):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_unknown_caller_is_refused_before_its_request(world: Secured) -> None:
    async with world.channel("client") as channel:
        call: Any = channel.stream_stream(LIST_MODELS)(metadata=bearer("nonsense"))
        async with asyncio.timeout(10):
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_an_idle_stream_is_ended_and_a_working_one_is_not(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    async with world.channel("client") as channel:
        stub: Any = SchedulerServiceStub(channel)  # type: ignore[no-untyped-call]
        mute = stub.Multiplex(metadata=bearer(token))
        request = scheduler_service_pb2.MultiplexRequest
        idle = stub.Multiplex(metadata=bearer(token))
        await idle.write(request(open=scheduler_service_pb2.MultiplexOpen()))
        assert (await idle.read()).HasField("opened")
        busy = stub.Multiplex(metadata=bearer(token))
        await busy.write(request(open=scheduler_service_pb2.MultiplexOpen()))
        call = scheduler_service_pb2.Call(call_id=1, stream=True)
        call.request.model, call.request.text.prompt = "later", "x"
        await busy.write(request(calls=[call]))
        await until(lambda: world.state.requests)
        async with asyncio.timeout(10):
            assert (await mute.read()).going_away
            assert await mute.code() is grpc.StatusCode.OK
            assert (await idle.read()).going_away
            assert await idle.code() is grpc.StatusCode.OK
        await until(lambda: len(world.app._client_port._streams) == 1)
        assert not busy.done()  # its call waits for a node
        busy.cancel()


async def test_a_reflection_stream_is_not_for_keeps(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    async with world.channel("client") as channel:
        name = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call = channel.stream_stream(name)(metadata=bearer(token))
        async with asyncio.timeout(10):
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_http_requests_that_never_come_whole_are_ended(world: Secured) -> None:
    """Slow-loris within TLS: nothing, a header a byte at a time, and after an answer."""
    tls = ssl.create_default_context(cadata=world.files.ca.decode())
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

    async def ended(first: bytes, trickle: bytes) -> bytes:
        reader, writer = await raw(world, "http", tls)
        writer.write(first)
        heard = asyncio.create_task(reader.read())
        while trickle and not heard.done() and not writer.is_closing():
            writer.write(trickle)
            await asyncio.wait((heard,), timeout=0.05)
        try:
            return await heard
        finally:
            writer.close()

    async with asyncio.timeout(15):
        tries = [ended(b"", b""), ended(whole[:30], b"x"), ended(whole, b"")]
        nothing, trickled, answered = await asyncio.gather(*tries, return_exceptions=True)
    assert nothing == b""
    assert trickled == b"" or isinstance(trickled, ConnectionError)
    assert isinstance(answered, bytes)
    assert answered.startswith(b"HTTP/1.1 200")


async def http_answers(world: Secured, tls: ssl.SSLContext) -> bool:
    try:
        reader, writer = await raw(world, "http", tls)
    except OSError:
        return False
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return (await reader.read()).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
    finally:
        await gone(writer)


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_more_http_connections_than_allowed_are_turned_away(tmp_path: Path) -> None:
    async with secured(tmp_path, "abuse.connections=6") as world:
        tls = ssl.create_default_context(cadata=world.files.ca.decode())
        kept = [await raw(world, "http", tls) for _ in range(6)]
        assert not await http_answers(world, tls)
        for _, writer in kept:
            await gone(writer)
        assert world.app._http is not None
        runner = world.app._http._runner
        await until(lambda: runner.server is not None and not runner.server.connections)
        assert await http_answers(world, tls)


async def test_open_rpcs_have_a_limit(tmp_path: Path) -> None:
    async with secured(tmp_path, "abuse.rpcs=2") as world:
        token = world.files.token()
        world.access.refresh()
        async with world.channel("client") as channel:
            stub: Any = SchedulerServiceStub(channel)  # type: ignore[no-untyped-call]
            open_ones = [stub.Multiplex(metadata=bearer(token)) for _ in range(2)]
            for each in open_ones:
                opening = scheduler_service_pb2.MultiplexOpen()
                await each.write(scheduler_service_pb2.MultiplexRequest(open=opening))
                assert (await each.read()).HasField("opened")
            call = channel.unary_unary(LIST_MODELS)(b"", metadata=bearer(token), timeout=10)
            assert await code_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
            for each in open_ones:
                each.cancel()


async def test_a_message_over_the_limit_ends_its_rpc_only(tmp_path: Path) -> None:
    limits = ("limits.max_message_bytes=1MiB", "limits.max_request_bytes=512KiB")
    async with secured(tmp_path, *limits) as world:
        token = world.files.token()
        world.access.refresh()
        async with world.channel("client") as channel:
            call = channel.unary_unary(LIST_MODELS)(
                bytes(2 << 20), metadata=bearer(token), timeout=10
            )
            assert await code_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
            again = channel.unary_unary(LIST_MODELS)(b"", metadata=bearer(token), timeout=10)
            assert await code_of(again) is grpc.StatusCode.OK


async def test_headers_have_a_limit(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    async with world.channel("client") as channel:
        headers = (*bearer(token), ("x", "y" * 8192))
        call = channel.unary_unary(LIST_MODELS)(b"", metadata=headers, timeout=10)
        assert await code_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = channel.unary_unary(LIST_MODELS)(b"", metadata=bearer(token), timeout=10)
        assert await code_of(call) is grpc.StatusCode.OK
