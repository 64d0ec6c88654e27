"""Every RPC, found by reflection, and every HTTP path, with every kind of credential.

A method that has no rule fails here, whoever adds it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scheduler_service import http
from scheduler_service.security.principals import Right
from scheduler_service.security.refusals import Place
from scheduler_service.security.rules import HTTP, RPCS
from tests.integration.security.secured import Secured, bearer, secured, try_method, until

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


# HTTP.


async def fetch(world: Secured, method: str, path: str, token: str | None) -> int:
    context = ssl.create_default_context(cadata=world.files.ca.decode())
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, f"https://{world.addresses.http}{path}", headers=headers, ssl=context
        ) as answer,
    ):
        return answer.status


async def test_every_http_path_has_a_rule_and_all_others_refuse(world: Secured) -> None:
    token = world.files.token()
    world.access.refresh()
    assert world.app._http is not None
    served = {
        (route.method, route.resource.canonical)
        for route in world.app._http._runner.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert served == set(HTTP)
    reader = world.files.token("reader", rights=["read"])
    world.access.refresh()
    for (method, path), rule in HTTP.items():
        if rule.open:
            assert await fetch(world, method, path, None) == 200
        else:
            assert await fetch(world, method, path, None) == 401
            assert await fetch(world, method, path, token) == 403
            found = 404 if path == "/api/explain/{request_id}" else 200  # nobody sent that one
            assert await fetch(world, method, path, reader) == found
    for path in ("/other", "/healthz/x"):
        assert await fetch(world, "GET", path, None) == 401
        assert await fetch(world, "GET", path, "nonsense") == 401
        assert await fetch(world, "GET", path, token) == 404
    assert await fetch(world, "POST", "/healthz", None) == 401
    assert await fetch(world, "POST", "/healthz", token) == 405


async def test_an_http_path_without_a_rule_is_refused(
    world: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(HTTP, ("GET", "/readyz"))
    token = world.files.token("boss", rights=["admin", "use"])
    world.access.refresh()
    assert await fetch(world, "GET", "/readyz", None) == 401
    assert await fetch(world, "GET", "/readyz", token) == 403


async def test_http_on_loopback_needs_nothing() -> None:
    port = await http.start_http("127.0.0.1", 0, ready=lambda: "")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port.port}/readyz") as answer,
    ):
        assert answer.status == 200
    await port.stop()


async def metric(world: Secured, name: str) -> float:
    """Sum of a metric on the page."""
    token = world.files.token("scraper", rights=["read"])
    world.access.refresh()
    context = ssl.create_default_context(cadata=world.files.ca.decode())
    url = f"https://{world.addresses.http}/metrics"
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context) as answer,
    ):
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


async def test_what_is_refused_is_counted_and_told(
    world: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.channel("client") as channel:
        name = "/batchyard.v1.SchedulerService/ListModels"
        await try_method(channel, name, (False, False))
    await until(lambda: world.refusals.counts[Place.RPC, "UNAUTHENTICATED"] == 1)
    assert await fetch(world, "GET", "/metrics", "nonsense") == 401
    assert world.refusals.total(Place.HTTP) == 1
    [told, at_http] = [r for r in caplog.records if getattr(r, "event", "") == "access_refused"]
    assert (told.method, told.reason) == (name, "UNAUTHENTICATED")  # type: ignore[attr-defined]
    assert "127.0.0.1" in told.address  # type: ignore[attr-defined]
    assert at_http.method == "GET /metrics"  # type: ignore[attr-defined]
    assert await metric(world, "batchyard_refusals_total") == 2
