"""What a node says it holds corrects the scheduler's books: over the wire, told and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from batchyard import AsyncClient
from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from tests.integration.scheduler.node_world import Agent
from tests.integration.security.secured import MODEL, Secured, secured

pytestmark = pytest.mark.slow


class Liar(Agent):
    """A script that says what it holds, true or not."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(Any, channel)  # type: ignore[arg-type] # it reads nothing of the world

    async def report(self, received: int, *held: int) -> None:
        load = pb.EngineLoad(
            engine_id="e1", health=pb.ENGINE_HEALTH_SERVING, running_dispatch_ids=held
        )
        await self.send(report=pb.NodeReport(items_received=received, engines=[load]))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path, tls=False, auth=False) as world:
        yield world


@pytest.fixture
async def client(world: Secured) -> AsyncIterator[AsyncClient]:
    addresses = world.addresses
    async with AsyncClient(addresses.client, admin_address=addresses.admin) as client:
        yield client


async def healed(world: Secured) -> float:
    """By /metrics."""
    url = f"http://{world.addresses.http}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        lines = (await answer.text()).splitlines()
    return next(float(x.split()[1]) for x in lines if x.startswith("batchyard_ledger_healed_total"))


async def texts(client: AsyncClient, language: str) -> list[str]:
    report = await client.admin.report(language=language)
    return [event.message for event in report.events if event.event == "ledger_healed"]


async def test_each_difference_to_a_node_is_healed_counted_and_told(
    world: Secured, client: AsyncClient
) -> None:
    async with world.channel("node") as channel:
        liar = Liar(channel)
        await liar.join("liar", model=MODEL)
        call = asyncio.create_task(client.generate("hi", model=MODEL, request_id="r1"))
        (item,) = await liar.items(1)
        world.start_agent("honest")
        await world.joined("honest")
        await liar.report(1, item.dispatch_id)
        await liar.report(0)  # its sample was taken before the item came
        await liar.report(1, item.dispatch_id, 12345)  # one that nobody sent
        (cancel,) = await liar.expect("cancels")
        assert list(cancel.dispatch_ids) == [12345]
        assert cancel.reason == types_pb2.ERROR_REASON_REVOKED
        assert (await healed(world), call.done()) == (1, False)
        await liar.report(1)  # it has lost the item
        result = await call
        assert [a.node_id for a in result.attempts] == ["liar", "honest"]
        await liar.finish(item.dispatch_id)  # it had not: too late
        assert await healed(world) == 2
        (ledger,) = (await client.admin.node("liar")).ledgers
        assert (ledger.healed, ledger.in_flight) == (2, 0)
        events = [e async for e in client.admin.events(events=["ledger_healed"])]
        assert [e.attributes["what"] for e in events] == ["lost", "unknown"]
        assert events[1].attributes["dispatch_ids"] == "12345"
        stranger, lost = sorted(await texts(client, "en"), key=lambda text: "r1" in text)
        assert "none of ours (1)" in stranger
        assert "an attempt of r1, which goes elsewhere" in lost
        assert all("liar 的账目已更正" in text for text in await texts(client, "zh"))
        liar.call.cancel()


async def test_node_whose_credit_exceeds_its_slots_gets_no_more_than_these(
    world: Secured, client: AsyncClient
) -> None:
    """Sums of inputs that differ: what an agent grants beyond its slots is not taken."""
    async with world.channel("node") as channel:
        liar = Liar(channel)
        await liar.join("liar", model=MODEL, slots=2)
        await liar.send(credits=[pb.Credit(engine_id="e1", total_inputs=1000)])
        calls = [asyncio.create_task(client.generate("hi", model=MODEL)) for _ in range(5)]
        first = await liar.items(2)
        await liar.finish(first[0].dispatch_id)
        (third,) = await liar.items(1)
        node = world.state.nodes["liar"]
        assert len(node.in_flight) == 2
        for item in (first[1], third):
            await liar.finish(item.dispatch_id)
        for item in await liar.items(2):
            await liar.finish(item.dispatch_id)
        await asyncio.gather(*calls)
        assert (node.in_flight, world.state.totals.healed) == ({}, 0)
        liar.call.cancel()
