"""Ports, health and reflection: where the scheduler answers."""

from __future__ import annotations

import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scheduler_service.rpc.node import SERVICE as NODE_SERVICE
from scheduler_service.rpc.scheduler import SERVICE
from scheduler_service.servers import BindError, Servers, Service
from tests.integration.scheduler.harness import prompt, running_world


async def test_health_and_reflection_answer_on_every_port() -> None:
    async with running_world() as world:
        for service, port in world.servers.ports.items():
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                for name in ("", "liveness", "readiness", SERVICE, NODE_SERVICE):
                    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
                    assert answer.status == health_pb2.HealthCheckResponse.SERVING
                wanted = reflection_pb2.ServerReflectionRequest(list_services="")
                call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
                await call.write(wanted)
                listed = (await call.read()).list_services_response.service
                assert service in {found.name for found in listed}
                call.cancel()


async def test_not_serving_is_told_to_who_watches() -> None:
    async with running_world() as world:
        await world.servers.set_serving(False)
        stub = health_pb2_grpc.HealthStub(world.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service="readiness"))
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_taken_port_is_named_with_what_to_do() -> None:
    async with running_world() as world:
        taken = Service(SERVICE, world.port.handlers(), world.servers.ports[SERVICE])
        with pytest.raises(
            BindError, match=rf"127\.0\.0\.1:{taken.port} cannot be had for {SERVICE}"
        ):
            await Servers().start("127.0.0.1", [taken], 1 << 20)


async def test_services_of_one_port_share_a_server() -> None:
    async with running_world() as world:
        await world.add_agent()
        with socket.create_server(("127.0.0.1", 0)) as spare:
            port: int = spare.getsockname()[1]
        shared = Servers()
        await shared.start(
            "127.0.0.1",
            [
                Service(SERVICE, world.port.handlers(), port),
                Service(NODE_SERVICE, world.node_port.handlers(), port),
            ],
            1 << 20,
        )
        assert set(shared.ports.values()) == {port}
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            world.channel, former = channel, world.channel
            assert (await world.ask("generate", prompt())).error is None
            world.channel = former
        await shared.stop(None)
