"""AdminService: load and unload models, by commands to an agent that a script plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from batchyard.v1 import admin_service_pb2, types_pb2
from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1.admin_service_pb2_grpc import AdminServiceStub
from scheduler_service.core.types import SECOND
from scheduler_service.eventlog import EventLog
from scheduler_service.report.statistics import Statistics
from scheduler_service.rpc.admin import AdminPort
from scheduler_service.security.gate import Gate
from tests.integration.cluster import until
from tests.integration.scheduler.admin_world import refusal
from tests.integration.scheduler.node_world import Agent, dialled, hello, running_world

ABLE = ["load_model", "unload_model"]
LOADING, ACTIVE = types_pb2.MODEL_STATE_LOADING, types_pb2.MODEL_STATE_ACTIVE


@dataclass
class Site:
    """An agent with a session, and an operator."""

    agent: Agent
    stub: Any

    async def events(self) -> list[tuple[str, str]]:
        """Of models, oldest first: name and message."""
        found = await self.stub.ListEvents(admin_service_pb2.ListEventsRequest())
        rows = [(e.event, e.message) for e in found.events if e.event.startswith("model_")]
        return rows[::-1]

    async def has_events(self, count: int) -> bool:
        return len(await self.events()) == count

    async def report(self, **states: types_pb2.ModelState) -> None:
        """The agent tells of its models, a description first."""
        described = hello().descriptor
        described.engines[0].models.extend(
            pb.ModelDescriptor(model=name) for name in states if name != "m"
        )
        loads = [pb.ModelLoad(model=name, state=state) for name, state in states.items()]
        report = pb.NodeReport(engines=[pb.EngineLoad(engine_id="e1", health=2, models=loads)])
        await self.agent.send(descriptor=described, report=report)


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with running_world() as world, dialled(world) as agent:
        port = AdminPort(
            driver=world.driver,
            eventlog=EventLog(),
            statistics=Statistics(world.clock, window=60 * SECOND),
            sessions=world.port,
            clock=world.clock,
            version="1.2.3",
        )
        server = grpc.aio.server(interceptors=[Gate()])
        server.add_generic_rpc_handlers([port.handlers()])
        number = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as channel:
            await agent.join(features=getattr(request, "param", ABLE))
            yield Site(agent, AdminServiceStub(channel))
        port.close()
        await server.stop(1)


def load(**fields: Any) -> admin_service_pb2.LoadModelRequest:
    return admin_service_pb2.LoadModelRequest(**{"node_id": "n1", "model": "late", **fields})


async def test_a_load_is_answered_once_the_agent_has_begun(site: Site) -> None:
    asked = load(options_json='{"file": "x"}', reason="a task")
    call = asyncio.ensure_future(site.stub.LoadModel(asked))
    (command,) = await site.agent.expect("commands")
    assert command.command_id == 1
    assert command.load_model == pb.LoadModel(
        engine_id="e1", model="late", options_json='{"file": "x"}'
    )
    await site.report(m=ACTIVE)
    await site.report(m=ACTIVE, late=LOADING)
    node = (await call).node
    assert [m.state for m in node.report.engines[0].models] == [ACTIVE, LOADING]
    assert list(node.summary.models) == ["m"]
    assert await site.events() == [("model_load", "e1 of n1 is to load late")]
    await site.report(m=ACTIVE, late=ACTIVE)
    await site.agent.send(command_results=[pb.CommandResult(command_id=1)])
    await until(lambda: site.has_events(2))
    assert (await site.events())[1] == ("model_loaded", "e1 of n1 has loaded late")
    node = (await site.stub.GetNode(admin_service_pb2.GetNodeRequest(node_id="n1"))).node
    assert list(node.summary.models) == ["late", "m"]


async def test_what_the_agent_refuses_is_the_callers_error(site: Site) -> None:
    asked = admin_service_pb2.UnloadModelRequest(node_id="n1", engine_id="e1", model="m")
    call = asyncio.ensure_future(refusal(site.stub.UnloadModel(asked)))
    (command,) = await site.agent.expect("commands")
    assert command.unload_model == pb.UnloadModel(engine_id="e1", model="m")
    error = types_pb2.Error(
        reason=types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE,
        message="it cannot",
        metadata={"feature": "unload_model"},
    )
    await site.agent.send(command_results=[pb.CommandResult(command_id=1, error=error)])
    code, reason, metadata, _ = await call
    assert (code, reason) == (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED_FEATURE")
    assert metadata["feature"] == "unload_model"
    assert [name for name, _ in await site.events()] == ["model_unload", "model_failed"]


async def test_a_session_that_ends_ends_what_was_asked_in_it(site: Site) -> None:
    call = asyncio.ensure_future(refusal(site.stub.LoadModel(load())))
    await site.agent.expect("commands")
    site.agent.call.cancel()
    assert (await call)[:2] == (grpc.StatusCode.ABORTED, "NODE_LOST")
    assert (await refusal(site.stub.LoadModel(load())))[0] is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"node_id": "nobody"}, grpc.StatusCode.NOT_FOUND, ""),
        ({"engine_id": "e9"}, grpc.StatusCode.NOT_FOUND, "engine_id"),
        ({"model": ""}, grpc.StatusCode.INVALID_ARGUMENT, "model"),
        ({"model": "x" * 257}, grpc.StatusCode.INVALID_ARGUMENT, "model"),
        ({"options_json": "{"}, grpc.StatusCode.INVALID_ARGUMENT, "options_json"),
        ({"options_json": "[]"}, grpc.StatusCode.INVALID_ARGUMENT, "options_json"),
        ({"options_json": "{" * 70_000}, grpc.StatusCode.INVALID_ARGUMENT, "options_json"),
        ({"reason": "x" * 257}, grpc.StatusCode.INVALID_ARGUMENT, "reason"),
    ],
)
async def test_a_wrong_wish_reaches_no_agent(
    site: Site, fields: dict[str, str], code: grpc.StatusCode, field: str
) -> None:
    got, _, _, named = await refusal(site.stub.LoadModel(load(**fields)))
    assert got is code
    assert field in ("", named) or code is grpc.StatusCode.NOT_FOUND
    assert await site.events() == []


@pytest.mark.parametrize("site", [["set_slots"]], indirect=True, ids=["old agent"])
async def test_an_agent_that_cannot_is_not_asked(site: Site) -> None:
    code, reason, metadata, _ = await refusal(site.stub.LoadModel(load()))
    assert (code, reason) == (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED_FEATURE")
    assert metadata["feature"] == "load_model"


@pytest.mark.parametrize("site", [["set_log_level"]], indirect=True, ids=["can"])
async def test_the_log_level_of_an_agent_is_set_and_what_it_refuses_is_told(site: Site) -> None:
    asked = admin_service_pb2.SetLogLevelRequest(
        node_id="n1", level="debug", logger="node_agent.core", reason="a look"
    )
    call = asyncio.ensure_future(site.stub.SetLogLevel(asked))
    (command,) = await site.agent.expect("commands")
    assert command.set_log_level == pb.SetLogLevel(level="debug", logger="node_agent.core")
    await site.agent.send(command_results=[pb.CommandResult(command_id=command.command_id)])
    await call
    wanted = admin_service_pb2.ListEventsRequest(events=["log_level_set"])
    (event,) = (await site.stub.ListEvents(wanted)).events
    assert event.message == "log level of node_agent.core on n1: debug"
    assert event.reason == "a look"
    gone = asyncio.ensure_future(site.stub.SetLogLevel(asked))
    await site.agent.expect("commands")
    gone.cancel()  # the agent does it all the same
    assert len((await site.stub.ListEvents(wanted)).events) == 2
    call = asyncio.ensure_future(refusal(site.stub.SetLogLevel(asked)))
    (command,) = await site.agent.expect("commands")
    no = types_pb2.Error(reason=types_pb2.ERROR_REASON_INVALID_ARGUMENT, message="no")
    await site.agent.send(
        command_results=[pb.CommandResult(command_id=command.command_id, error=no)]
    )
    assert (await call)[0] is grpc.StatusCode.INVALID_ARGUMENT
