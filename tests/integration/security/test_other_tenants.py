"""Every RPC that names a tenant, called by a principal of another one.

Reflection of the contract finds them, so a new RPC, or a new field with a tenant, is under test on
the day it comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message

from batchyard.v1 import (
    AdminServiceStub,
    DrainNodeRequest,
    GetNodeRequest,
    GetPolicyRequest,
    ListNodesRequest,
    MultiplexOpen,
    MultiplexRequest,
    MultiplexResponse,
    Policy,
    UpdatePolicyRequest,
    types_pb2,
)
from tests.integration.security.secured import MODEL, Secured, bearer, secured, until

pytestmark = pytest.mark.slow
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
SERVICES = ("client", "batchyard.v1.SchedulerService"), ("admin", "batchyard.v1.AdminService")
# RPCs without a tenant in their request, and why that is right.
SHARED = {
    "ListModels": "models are no tenant's; the principal's list of models bounds it",
    "GetServerInfo": "about the scheduler and the caller",
    "GetReport": "shows the caller's tenants only, see test_tenants.py",
    "WatchReport": "likewise",
    "ListEvents": "likewise",
    "WatchEvents": "likewise",
    "ListNodes": "nodes are no tenant's; see the test of a drain here",
    "GetNode": "likewise",
    "CordonNode": "likewise",
    "UncordonNode": "likewise",
    "DrainNode": "likewise",
    "LoadModel": "likewise",
    "UnloadModel": "likewise",
    "PausePool": "pools are no tenant's",
    "ResumePool": "likewise",
    "FreezeAutoscale": "likewise",
    "UnfreezeAutoscale": "likewise",
    "GetPolicy": "one for all; shares of other tenants are left out, see the last test here",
    "UpdatePolicy": "takes a credential that is bound to no tenant",
    "SetLogLevel": "of a process",
}
# What a request needs before anybody looks at its tenant.
FILL = {
    "request_ids": ["r"], "request_id": "r", "job_id": "j", "model": MODEL,
    "custom_id": "c", "call_id": 1,
}  # fmt: skip


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        yield world


def methods() -> Iterator[tuple[str, MethodDescriptor]]:
    pool = descriptor_pool.Default()
    for port, name in SERVICES:
        for method in pool.FindServiceByName(name).methods:
            yield port, method


def paths_of(kind: Descriptor, depth: int = 4) -> Iterator[tuple[str, ...]]:
    """Where a tenant can be named in such a message."""
    for field in kind.fields:
        if field.name == "tenant":
            yield (field.name,)
            continue
        inner = field.message_type
        if inner is not None and depth and inner.full_name.startswith("batchyard."):
            for path in paths_of(inner, depth - 1):
                yield (field.name, *path)


def with_tenant(message: Any, path: tuple[str, ...], tenant: str) -> None:
    """Name the tenant there, and fill in what else is needed on the way."""
    for name, value in FILL.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and field.is_repeated:
            getattr(message, name).extend(value)
        elif field is not None:
            setattr(message, name, value)
    if "text" in message.DESCRIPTOR.fields_by_name:
        message.text.prompt = "x"
    if len(path) == 1:
        message.tenant = tenant
        return
    inner = getattr(message, path[0])
    repeated = message.DESCRIPTOR.fields_by_name[path[0]].is_repeated
    with_tenant(inner.add() if repeated else inner, path[1:], tenant)


def cases() -> list[Any]:
    found = []
    for port, method in methods():
        for path in paths_of(method.input_type):
            case_id = f"{method.name}-{'.'.join(path)}"
            found.append(pytest.param(port, method, path, id=case_id))
    return found


async def ask(
    world: Secured, port: str, method: MethodDescriptor, message: Message, token: str
) -> tuple[grpc.StatusCode, str]:
    """How the RPC ends, and the reason in a result of Multiplex."""
    kind = ("stream" if method.client_streaming else "unary",
            "stream" if method.server_streaming else "unary")  # fmt: skip
    name = f"/{method.containing_service.full_name}/{method.name}"
    async with world.channel(port) as channel:
        make: Any = getattr(channel, "_".join(kind))(name)
        if method.client_streaming:
            call = make(metadata=bearer(token), timeout=10)
            await call.write(MultiplexRequest(open=MultiplexOpen()).SerializeToString())
            await call.write(message.SerializeToString())
            while True:
                heard = MultiplexResponse.FromString(await call.read())
                if heard.results:
                    call.cancel()
                    reason = heard.results[0].result.error.reason
                    return grpc.StatusCode.OK, types_pb2.ErrorReason.Name(reason)
        try:
            call = make(message.SerializeToString(), metadata=bearer(token), timeout=10)
            if method.server_streaming:
                await call.read()
                return await call.code(), ""
            await call
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize(("port", "method", "path"), cases())
async def test_the_tenant_of_another_is_denied_wherever_it_can_be_named(
    world: Secured, port: str, method: MethodDescriptor, path: tuple[str, ...]
) -> None:
    token = world.files.token(
        "a", tenants=["a"], rights=["use", "jobs", "read", "operate", "admin"]
    )
    world.access.refresh()
    message = message_factory.GetMessageClass(method.input_type)()
    with_tenant(message, path, "b")
    code, detail = await ask(world, port, method, message, token)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return  # not built: nobody gets anything
    if method.client_streaming:
        assert detail == "ERROR_REASON_PERMISSION_DENIED"
    elif len(path) > 1 and "tenant" in method.input_type.fields_by_name:
        # What is inside belongs to the tenant of the whole, which is the principal's own.
        own = (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND, PERMISSION_DENIED)
        assert code in own, detail
    else:
        assert code is PERMISSION_DENIED, detail
    assert not [each for each in world.state.requests.values() if each.tenant != "a"]


def test_every_rpc_names_its_tenant_or_says_why_not() -> None:
    """A new RPC fails here until somebody has thought about whose things it shows."""
    silent = {method.name for _, method in methods() if not list(paths_of(method.input_type))}
    assert silent == set(SHARED)


async def test_a_drain_names_no_requests_of_others(world: Secured) -> None:
    join, all_of_it = world.files.token(kind="join"), world.files.token("ops", rights=["operate"])
    bound = world.files.token("op-a", rights=["operate"], tenants=["a"])
    world.access.refresh()
    world.start_agent("n1", token=join, slots=4, latency_per_token="20ms")
    await world.joined("n1")
    async with world.channel("admin") as channel:
        stub: Any = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        drained = DrainNodeRequest(node_id="n1", reason="x")
        await stub.DrainNode(drained, metadata=bearer(bound))
        await until(lambda: world.state.nodes["n1"].drain)
        world.state.nodes["n1"].drain.finished.append("of-b")
        for token, seen in ((all_of_it, ["of-b"]), (bound, [])):
            how = {"metadata": bearer(token)}
            one = (await stub.GetNode(GetNodeRequest(node_id="n1"), **how)).node
            every = (await stub.ListNodes(ListNodesRequest(), **how)).nodes
            for node in (one, *every):
                assert list(node.drain.finished_request_ids) == seen
                assert node.drain.finished == 1


async def test_the_policy_names_no_shares_of_others_and_is_not_theirs_to_change(
    world: Secured,
) -> None:
    boss = world.files.token("boss", rights=["admin"])
    bound = world.files.token("admin-a", rights=["admin"], tenants=["a"])
    world.access.refresh()
    text = "queue: {weights: {a: 2, b: 3}}"
    async with world.channel("admin") as channel:
        stub: Any = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        request = UpdatePolicyRequest(policy=Policy(yaml=text))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.UpdatePolicy(request, metadata=bearer(bound))
        assert caught.value.code() is PERMISSION_DENIED
        await stub.UpdatePolicy(request, metadata=bearer(boss))
        for token, seen in ((boss, {"a": 2.0, "b": 3.0}), (bound, {"a": 2.0})):
            found = (await stub.GetPolicy(GetPolicyRequest(), metadata=bearer(token))).policy
            assert yaml.safe_load(found.yaml)["queue"]["weights"] == seen
