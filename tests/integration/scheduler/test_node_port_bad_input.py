"""What an agent must not send: each ends where it does the least harm, and no client notices."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.outcomes import Reason
from tests.integration.scheduler.node_world import Agent, World, dialled, running_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as running:
        yield running


@pytest.fixture
async def agent(world: World) -> AsyncIterator[Agent]:
    async with dialled(world) as agent:
        yield agent


async def test_answer_that_is_no_message_fails_its_item_and_no_other(
    world: World, agent: Agent
) -> None:
    """Answers are passed on as bytes: a client could read nothing of the message it came in."""
    await agent.join()
    for request_id in ("outputs", "timings", "good"):
        world.submit(request_id, stream=False, max_attempts=1)
    items = {item.request_id: item.dispatch_id for item in await agent.items(3)}
    message = wire_pb2.PackedConnectRequest()
    for request_id, dispatch_id in items.items():
        result = message.results.add(dispatch_id=dispatch_id, attempt=1)
        result.finish_reason = types_pb2.FINISH_REASON_STOP
        result.outputs.append(b"\x12\x7f" if request_id == "outputs" else b"\x12\x01a")
        result.timings = b"\x0a\x7f" if request_id == "timings" else b""
    await agent.send_raw(message.SerializeToString())
    await world.until(lambda: len(world.finished) == 3)
    for bad in ("outputs", "timings"):
        ended = world.finished[bad]
        assert ended.metadata["lastReason"] == "ENGINE_ERROR"
        attempt = ended.request.attempts[-1]
        assert attempt.message.startswith(f"its node's answer is no valid protobuf at {bad}")
        assert ended.payload is None or not (ended.payload.outputs or ended.payload.timings)
    assert world.finished["good"].reason is Reason.NONE
    assert world.breaks() == []
