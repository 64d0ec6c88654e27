"""Every RPC, found by reflection, and every HTTP path, with every kind of credential.

A method that has no rule fails here, whoever adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scheduler_service.security.principals import Right
from scheduler_service.security.rules import RPCS
from tests.integration.security.secured import Secured, bearer, secured, try_method

pytestmark = pytest.mark.slow
PORTS = ("client", "node", "admin")
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
Methods = dict[str, tuple[bool, bool]]  # by full name: whether requests and responses stream


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    """Join tokens on the node port, so that callers without a certificate reach it."""
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        yield world


async def reflected(channel: grpc.aio.Channel, token: str) -> Methods:
    """All methods that a port tells of."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[no-untyped-call]
    call = stub.ServerReflectionInfo(metadata=bearer(token))
    request = reflection_pb2.ServerReflectionRequest
    await call.write(request(list_services=""))
    services = [s.name for s in (await call.read()).list_services_response.service]
    methods: Methods = {}
    for service in services:
        await call.write(request(file_containing_symbol=service))
        answer = (await call.read()).file_descriptor_response
        for raw in answer.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(raw)
            for described in file.service:
                full_name = f"{file.package}.{described.name}"
                if full_name != service:
                    continue  # of another port, in a file that this one imports
                for m in described.method:
                    methods[f"/{full_name}/{m.name}"] = (m.client_streaming, m.server_streaming)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return methods


async def test_every_method_of_every_port_has_a_rule(world: Secured) -> None:
    """A new RPC without a rule fails here."""
    token = world.files.token("reader", rights=["read"])
    world.access.refresh()
    seen: Methods = {}
    for port in PORTS:
        async with world.channel(port) as channel:
            seen |= await reflected(channel, token)
    assert len(seen) > 35
    assert sorted(seen) == sorted(RPCS)


async def codes(
    world: Secured, port: str, methods: Methods, token: str | None
) -> dict[str, grpc.StatusCode]:
    metadata = () if token is None else bearer(token)
    async with world.channel(port) as channel:
        found = await asyncio.gather(
            *(try_method(channel, name, streams, metadata) for name, streams in methods.items())
        )
    return dict(zip(methods, found, strict=True))


async def methods_by_port(world: Secured) -> dict[str, Methods]:
    token = world.files.token("reader", rights=["read"])
    world.access.refresh()
    found = {}
    for port in PORTS:
        async with world.channel(port) as channel:
            found[port] = await reflected(channel, token)
    return found


async def test_no_method_answers_callers_that_nobody_knows(world: Secured) -> None:
    """Behaviour 123: all refuse but the listed one; streams, health watch and reflection, too."""
    files = world.files
    expired, revoked = files.token(expires=1), files.token()
    files.revoke(revoked)
    world.access.refresh()
    forged = files.token()[:-4] + "AAAA"
    every = await methods_by_port(world)
    for token in (None, "", "nonsense", "batchyard_000000000000_" + "A" * 43, forged, expired,
                  revoked):  # fmt: skip
        for port, methods in every.items():
            for name, code in (await codes(world, port, methods, token)).items():
                if RPCS[name].open and token is None:
                    assert code not in (UNAUTHENTICATED, PERMISSION_DENIED), name
                else:
                    assert code is UNAUTHENTICATED, (name, port, token)


@pytest.mark.parametrize("right", ["use", "jobs", "read", "operate", "admin", "agent"])
async def test_a_right_opens_its_methods_and_no_others(world: Secured, right: str) -> None:
    """Client tokens on the node port and join tokens on the others are among them."""
    files = world.files
    if right == "agent":
        token, rights = files.token(kind="join"), Right.AGENT
    else:
        token = files.token("limited", rights=[right], tenants=["a"])
        implied = {"operate": Right.READ, "admin": Right.READ | Right.OPERATE}
        rights = Right[right.upper()] | implied.get(right, Right.NONE)
    world.access.refresh()
    for port, methods in (await methods_by_port(world)).items():
        for name, code in (await codes(world, port, methods, token)).items():
            rule = RPCS[name]
            allowed = rule.open or rule.right in rights
            assert (code is not PERMISSION_DENIED) == allowed, (name, port, code)
            assert code is not UNAUTHENTICATED, (name, port)


async def test_a_method_of_another_port_is_not_there(world: Secured) -> None:
    """The documented exception: UNIMPLEMENTED, whoever asks."""
    join, use = world.files.token(kind="join"), world.files.token()
    world.access.refresh()
    async with world.channel("client") as channel:
        name = "/batchyard.v1.NodeService/Connect"
        assert await try_method(channel, name, (True, True), bearer(join)) is UNIMPLEMENTED
    async with world.channel("node") as channel:
        name = "/batchyard.v1.SchedulerService/Generate"
        assert await try_method(channel, name, (False, False), bearer(use)) is UNIMPLEMENTED


async def test_a_method_without_a_rule_is_refused_to_everybody(
    world: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "/batchyard.v1.SchedulerService/GetServerInfo"
    monkeypatch.delitem(RPCS, name)
    token = world.files.token("boss", rights=["admin", "use", "jobs"])
    world.access.refresh()
    async with world.channel("client") as channel:
        assert await try_method(channel, name, (False, False), bearer(token)) is PERMISSION_DENIED
