"""Certificates of clients: who may come in, as whom, and for how long; agents' on other ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool

from scheduler_service.security import access, tokens_commands
from scheduler_service.security.authority import Authority
from tests.integration.security.secured import Secured, bearer, now, secured, try_method

pytestmark = pytest.mark.slow
LIST_MODELS = "/batchyard.v1.SchedulerService/ListModels"
LIST_NODES = "/batchyard.v1.AdminService/ListNodes"
CHECK = "/grpc.health.v1.Health/Check"
CODE = grpc.StatusCode
NO_HANDSHAKE = CODE.UNAVAILABLE
# Unary ones of clients and operators; any valid credential may ask GetServerInfo.
OF_OTHERS = [
    f"/{service.full_name}/{method.name}"
    for service in map(
        descriptor_pool.Default().FindServiceByName,
        ("batchyard.v1.SchedulerService", "batchyard.v1.AdminService"),
    )
    for method in service.methods
    if not (method.client_streaming or method.server_streaming)
]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    """Every port asks for a certificate."""
    async with secured(tmp_path, "tls.client_certificates=true") as world:
        yield world


async def code(
    world: Secured, certificate: str, method: str = LIST_MODELS, *, port: str = "", token: str = ""
) -> CODE:
    port = port or ("admin" if "Admin" in method else "client")
    async with world.channel(port, certificate=certificate) as channel:
        given = bearer(token) if token else ()
        return await try_method(channel, method, (False, False), given)


async def test_a_certificate_is_worth_what_its_name_was_granted(world: Secured) -> None:
    for name in ("team", "ops", "nobody"):
        world.files.issue_client(name)
    world.files.allow_certificate("team", rights=["use"])
    world.files.allow_certificate("ops", rights=["operate"])
    world.access.refresh()
    assert await code(world, "client-team") is CODE.OK
    assert await code(world, "client-team", LIST_NODES) is CODE.PERMISSION_DENIED
    assert await code(world, "client-ops") is CODE.PERMISSION_DENIED
    assert await code(world, "client-ops", LIST_NODES) is CODE.OK
    assert await code(world, "client-nobody") is CODE.UNAUTHENTICATED
    assert await code(world, "client-nobody", CHECK) is CODE.OK
    assert await code(world, "") is NO_HANDSHAKE


async def test_an_expired_and_a_foreign_certificate_do_not_get_through_the_handshake(
    world: Secured, tmp_path: Path
) -> None:
    files = world.files
    files.allow_certificate("team", rights=["use"])
    world.access.refresh()
    past = now() - timedelta(days=2)
    files.put("client-late", *files.authority.issue_client("team", 1.0, past))
    other = Authority.create("another", now())
    files.put("client-foreign", *other.issue_client("team", 1.0, now()))
    assert await code(world, "client-late") is NO_HANDSHAKE
    assert await code(world, "client-foreign") is NO_HANDSHAKE


async def test_a_revoked_certificate_is_refused_and_another_of_that_name_is_not(
    world: Secured,
) -> None:
    files = world.files
    files.issue_client("team")
    files.put("client-new", *files.authority.issue_client("team", 1.0, now()))
    files.allow_certificate("team", rights=["use"])
    world.access.refresh()
    assert await code(world, "client-team") is CODE.OK
    fingerprint = access.fingerprint_of(files.pair("client-team")[1])
    tokens_commands.revoke_certificate(files.grants, fingerprint)
    world.access.refresh()
    assert await code(world, "client-team") is CODE.UNAUTHENTICATED
    assert await code(world, "client-new") is CODE.OK


async def test_an_agents_certificate_opens_nothing_for_clients_and_operators(
    world: Secured,
) -> None:
    """Not even with a token beside it: a machine of the cluster is no user."""
    files = world.files
    files.issue_node("n1")
    token = files.token("boss", rights=["use", "jobs", "admin"])
    world.access.refresh()
    for given in ("", token):
        for method in OF_OTHERS:
            wanted = CODE.OK if method.endswith("GetServerInfo") else CODE.PERMISSION_DENIED
            assert await code(world, "node-n1", method, token=given) is wanted, method


async def test_a_clients_certificate_opens_no_session(world: Secured) -> None:
    world.files.issue_client("team")
    world.files.allow_certificate("team", rights=["use", "jobs", "admin"])
    world.access.refresh()
    async with world.channel("node", certificate="client-team") as channel:
        name = "/batchyard.v1.NodeService/Connect"
        assert await try_method(channel, name, (True, True)) is CODE.PERMISSION_DENIED
