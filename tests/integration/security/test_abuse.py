"""Slow, idle and greedy peers hold nothing for long, and nobody else up."""

from __future__ import annotations

import asyncio
import socket
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


async def raw(world: Secured) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = world.addresses.client.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def test_a_connection_that_never_greets_is_closed(world: Secured) -> None:
    """Slow-loris before TLS: nothing at all, and one byte of a handshake."""
    for begun in (b"", b"\x16"):
        reader, writer = await raw(world)
        writer.write(begun)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


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


async def test_headers_have_a_limit(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    async with world.channel("client") as channel:
        headers = (*bearer(token), ("x", "y" * 8192))
        call = channel.unary_unary(LIST_MODELS)(b"", metadata=headers, timeout=10)
        assert await code_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = channel.unary_unary(LIST_MODELS)(b"", metadata=bearer(token), timeout=10)
        assert await code_of(call) is grpc.StatusCode.OK
