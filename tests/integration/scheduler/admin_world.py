"""AdminService on a loopback port, over a real core, and the errors that its calls end with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from batchyard.v1 import node_service_pb2, types_pb2
from batchyard.v1.admin_service_pb2_grpc import AdminServiceStub
from scheduler_service.rpc.admin import AdminPort
from scheduler_service.security.gate import Gate
from tests.unit.scheduler.small_world import SmallWorld


@dataclass
class View:
    """What an agent's session would say."""

    descriptor: node_service_pb2.NodeDescriptor | None = None
    report: node_service_pb2.NodeReport | None = None
    agent_version: str = "0.1.0"
    round_trip_s: float | None = 0.002
    clock_offset_us: int | None = -5


class Views:
    """By node id."""

    def __init__(self) -> None:
        self.by_node: dict[str, View] = {}
        self.last_prices: dict[str, types_pb2.Money] = {}

    def session(self, node_id: str, epoch: int) -> View | None:
        return self.by_node.get(node_id)

    def last_price(self, node_id: str) -> types_pb2.Money | None:
        return self.last_prices.get(node_id)


@dataclass
class Served:
    """A world, and how operators see it."""

    world: SmallWorld
    views: Views
    port: AdminPort
    channel: grpc.aio.Channel
    stub: Any


@asynccontextmanager
async def serving(world: SmallWorld, **fields: Any) -> AsyncIterator[Served]:
    views = Views()
    port = AdminPort(
        driver=world.driver,
        eventlog=world.eventlog,
        statistics=world.statistics,
        sessions=views,
        clock=world.clock,
        version="1.2.3",
        **fields,
    )
    server = grpc.aio.server(interceptors=[Gate()])
    server.add_generic_rpc_handlers([port.handlers()])
    number = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as channel:
        yield Served(world, views, port, channel, AdminServiceStub(channel))
    port.close()
    await server.stop(1)


async def refusal(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str, dict[str, str], str]:
    """Code, reason, metadata and field of the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailers = dict(caught.value.trailing_metadata() or ())
    rich = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info, violation = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    field = ""
    for detail in rich.details:
        detail.Unpack(info)
        if detail.Unpack(violation):
            field = violation.field_violations[0].field
    return caught.value.code(), info.reason, dict(info.metadata), field
