"""A tenant sees and stops only its own, and stays within its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from batchyard import AsyncClient, errors
from batchyard.v1 import (
    AdminServiceStub,
    CancelMatchingRequest,
    GetReportRequest,
    GetRequestRequest,
    ListEventsRequest,
    ListRequestsRequest,
    RequestFilter,
)
from tests.integration.security.secured import MODEL, Secured, bearer, code_of, secured, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(40)]
DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        join = world.files.token(kind="join")
        world.access.refresh()
        world.start_agent("n1", token=join, slots=8, latency_per_token="20ms")
        await world.joined("n1")
        yield world


def client(world: Secured, token: str, **options: Any) -> AsyncClient:
    return AsyncClient(world.addresses.client, api_key=token, tls=world.files.ca, **options)


@pytest.mark.parametrize("transport", ["unary", "multiplex"])
async def test_tenant_model_and_priority_are_checked_per_call(
    world: Secured, transport: str
) -> None:
    token = world.files.token(tenants=["a"], models=[MODEL], max_priority=6)
    world.access.refresh()
    async with client(world, token, transport=transport) as asked:
        assert (await asked.generate("x", model=MODEL)).node_id
        for wrong in ({"tenant": "b"}, {"model": "other"}, {"priority": 7}):
            with pytest.raises(errors.PermissionDenied) as caught:
                await asked.generate("x", **{"model": MODEL, **wrong})
            assert caught.value.field.endswith(next(iter(wrong)))
    assert {r.tenant for r in world.state.finished} == {"a"}


async def test_operators_of_a_tenant_see_and_stop_only_its_requests(world: Secured) -> None:
    files = world.files
    a, b = files.token("a", tenants=["a"]), files.token("b", tenants=["b"])
    operator = files.token("op-a", rights=["operate"], tenants=["a"])
    world.access.refresh()
    async with client(world, a) as of_a, client(world, b) as of_b:
        await of_b.generate("x", model=MODEL, request_id="old-b")
        await of_a.generate("x", model=MODEL, request_id="old-a")
        open_a = asyncio.create_task(of_a.generate("[[stall]]", model=MODEL, request_id="open-a"))
        open_b = asyncio.create_task(
            of_b.generate("[[tokens=60]]", model=MODEL, request_id="open-b")
        )
        await until(lambda: len(world.state.requests) == 2)
        async with world.channel("admin") as channel:
            stub: Any = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
            how = {"metadata": bearer(operator)}
            listed = await stub.ListRequests(ListRequestsRequest(), **how)
            assert {r.request_id for r in listed.requests} == {"old-a", "open-a"}
            events = await stub.ListEvents(ListEventsRequest(), **how)
            assert events.events
            assert {e.tenant for e in events.events} == {"a"}
            report = (await stub.GetReport(GetReportRequest(), **how)).report
            assert {e.tenant for e in report.events} == {"a"}
            assert {row.tenant for row in [*report.costs, *report.slowest]} <= {"a"}
            hidden = stub.GetRequest(GetRequestRequest(request_id="old-b"), **how)
            assert await code_of(hidden) is grpc.StatusCode.NOT_FOUND
            foreign = GetRequestRequest(request_id="old-b", tenant="b")
            assert await code_of(stub.GetRequest(foreign, **how)) is DENIED
            filtered = ListRequestsRequest(filter=RequestFilter(tenant="b"))
            assert await code_of(stub.ListRequests(filtered, **how)) is DENIED
            every = CancelMatchingRequest(filter=RequestFilter(max_priority=10))
            done = await stub.CancelMatching(every, **how)
            assert list(done.request_ids) == ["open-a"]
        assert await of_a.cancel("open-b") == []
        with pytest.raises(errors.Cancelled, match="op-a"):
            await open_a
        assert (await open_b).node_id


async def test_limits_are_refused_with_a_hint_and_cost_nothing(tmp_path: Path) -> None:
    limits = "tenants.named={a: {in_flight: 2, requests_per_minute: 4}}"
    async with secured(tmp_path, "tls.agent_certificates=false", limits) as world:
        join, a = world.files.token(kind="join"), world.files.token("a", tenants=["a"])
        b = world.files.token("b", tenants=["b"])
        world.access.refresh()
        world.start_agent("n1", token=join, slots=8, latency_per_token="20ms")
        await world.joined("n1")
        async with client(world, a, retries=0) as of_a, client(world, b, retries=0) as of_b:
            running = [
                asyncio.create_task(of_a.generate("[[tokens=30]]", model=MODEL)) for _ in range(2)
            ]
            await until(lambda: len(world.state.requests) == 2)
            for _ in range(20):
                with pytest.raises(errors.BatchyardError) as caught:
                    await of_a.generate("x", model=MODEL)
                assert caught.value.reason == "QUOTA_EXCEEDED"
                assert caught.value.retry_after is not None
            assert (await of_b.generate("x", model=MODEL)).node_id
            await asyncio.gather(*running)
            for _ in range(2):
                assert (await of_a.generate("x", model=MODEL)).node_id
            with pytest.raises(errors.BatchyardError, match="requests per minute"):
                await of_a.generate("x", model=MODEL)
        assert world.app._guard.quotas.usage("a") == (0, 0)
