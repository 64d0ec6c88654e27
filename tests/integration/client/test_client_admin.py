"""What operators call, in both styles."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from batchyard import Admin, AsyncAdmin, AsyncClient, Client, errors
from batchyard.v1 import (
    CordonNodeResponse,
    DrainNodeResponse,
    Event,
    GetNodeResponse,
    GetReportResponse,
    ListEventsResponse,
    ListNodesResponse,
    ListRequestsResponse,
    Node,
    Report,
    RequestFilter,
    RequestSummary,
    UncordonNodeResponse,
    WatchEventsResponse,
    WatchReportResponse,
)
from tests.integration.client.scripted_scheduler import ScriptedScheduler


class ScriptedAdmin(ScriptedScheduler):
    """Answers the admin RPCs and keeps what they were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []
        self.watchers = 0

    async def GetReport(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return GetReportResponse(report=Report(report_name="r", queue_size=3))

    async def WatchReport(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        self.watchers += 1
        try:
            for size in range(10_000):
                yield WatchReportResponse(report=Report(queue_size=size))
                await asyncio.sleep(0)
        finally:
            self.watchers -= 1
            self.changed()

    async def ListNodes(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        if request.page_token:
            return ListNodesResponse(nodes=[Node(node_id="c")])
        return ListNodesResponse(
            nodes=[Node(node_id="a"), Node(node_id="b")], next_page_token="next"
        )

    async def GetNode(self, request: Any, context: Any) -> Any:
        if request.node_id != "a":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node {request.node_id}")
        return GetNodeResponse(node=Node(node_id="a"))

    async def CordonNode(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return CordonNodeResponse(node=Node(node_id=request.node_id, availability=2))

    async def UncordonNode(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return UncordonNodeResponse(node=Node(node_id=request.node_id, availability=1))

    async def DrainNode(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return DrainNodeResponse(node=Node(node_id=request.node_id, availability=3))

    async def ListRequests(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return ListRequestsResponse(requests=[RequestSummary(request_id="r1")])

    async def ListEvents(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return ListEventsResponse(events=[Event(event="submit")])

    async def WatchEvents(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        yield WatchEventsResponse(events=[Event(event="node_lost")], gap=True)


@contextlib.asynccontextmanager
async def scripted_admin() -> Any:
    scheduler = ScriptedAdmin()
    await scheduler.listen()
    try:
        yield scheduler
    finally:
        await scheduler.stop()


async def test_async_admin_calls_everything() -> None:
    async with scripted_admin() as server, AsyncAdmin(server.address) as admin:
        report = await admin.report(window="10m", language="zh", omit_nodes=True, max_events=5)
        assert (report.report_name, report.queue_size) == ("r", 3)
        assert server.asked[-1].window.seconds == 600
        assert server.asked[-1].language == "zh"
        assert [node.node_id async for node in admin.nodes(pool="p")] == ["a", "b", "c"]
        assert server.asked[-1].pool == "p"
        assert (await admin.node("a")).node_id == "a"
        with pytest.raises(errors.NotFound, match="no node x"):
            await admin.node("x")
        assert (await admin.cordon("a", reason="why")).availability == 2
        assert server.asked[-1].reason == "why"
        assert (await admin.uncordon("a")).availability == 1
        assert (await admin.drain("a", grace="60s", terminate=True)).availability == 3
        assert (server.asked[-1].grace.seconds, server.asked[-1].terminate) == (60, True)
        await admin.drain("a", grace=0)
        assert server.asked[-1].HasField("grace")
        found = [r.request_id async for r in admin.requests(RequestFilter(model="m"))]
        assert (found, server.asked[-1].filter.model) == (["r1"], "m")
        since = datetime(2026, 1, 1, tzinfo=UTC)
        assert [e.event async for e in admin.events(events=["submit"], since=since)] == ["submit"]
        assert server.asked[-1].start_time.ToDatetime(tzinfo=UTC) == since
        batches = [batch async for batch in admin.watch_events(after_event_id="7")]
        assert (batches[0].events[0].event, batches[0].gap) == ("node_lost", True)


async def test_leaving_a_watch_ends_it_on_the_server() -> None:
    async with scripted_admin() as server, AsyncAdmin(server.address) as admin:
        watch = admin.watch_report(interval="1s", window="1m")
        async for report in watch:
            if report.queue_size == 2:
                break
        await watch.aclose()  # type: ignore[attr-defined]
        await server.until(lambda: server.watchers == 0)
        assert server.asked[0].report.window.seconds == 60


async def test_sync_admin_calls_everything() -> None:
    def work(address: str) -> None:
        with Admin(address) as admin:
            assert admin.report().queue_size == 3
            assert [node.node_id for node in admin.nodes()] == ["a", "b", "c"]
            assert admin.node("a").node_id == "a"
            assert admin.cordon("a").availability == 2
            assert admin.uncordon("a").availability == 1
            assert admin.drain("a", grace="1s").availability == 3
            assert [r.request_id for r in admin.requests()] == ["r1"]
            assert [e.event for e in admin.events()] == ["submit"]
            assert [b.gap for b in admin.watch_events()] == [True]
            for report in admin.watch_report():
                if report.queue_size == 2:
                    break
        with pytest.raises(RuntimeError):
            admin.report()

    async with scripted_admin() as server:
        await asyncio.to_thread(work, server.address)
        await server.until(lambda: server.watchers == 0)


async def test_client_has_an_admin_at_its_own_address() -> None:
    def work(address: str) -> None:
        with Client("127.0.0.1:1", admin_address=address, api_key="k") as client:
            assert client.admin.address == address
            assert client.admin.report().queue_size == 3

    async with scripted_admin() as server:
        await asyncio.to_thread(work, server.address)
        async with AsyncClient("127.0.0.1:1", admin_address=server.address) as client:
            assert (await client.admin.report()).queue_size == 3


async def test_async_other_rpcs(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address, tenant="acme") as client:
        assert [model.model async for model in client.list_models()] == ["a", "b"]
        assert (await client.server_info()).features == ["multiplex"]
        assert await client.cancel("x") == ["x"]
        assert scheduler.cancel_requests[0].tenant == "acme"
