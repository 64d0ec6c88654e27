"""What an agent must not send: each ends where it does the least harm, and no client notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from batchyard.v1 import node_service_pb2 as pb
from batchyard.v1 import types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core.outcomes import Reason
from tests.integration.scheduler.node_world import TERM, Agent, World, dialled, running_world


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


BROKEN_ROWS: dict[str, dict[str, Any]] = {
    "deltas.offsets": {"offsets": [9]},
    "deltas.texts": {"offsets": [1], "texts": ["x中"]},
    "deltas.choice_indexes": {"offsets": [0], "choice_indexes": [9999]},
    "deltas.channels": {"offsets": [0], "channels": [7]},
}


@pytest.mark.parametrize("field", BROKEN_ROWS)
async def test_item_whose_output_broke_a_rule_does_not_break_the_next_session(
    world: World, agent: Agent, field: str
) -> None:
    """It is its node's failure, and its neighbour goes on when the agent is back."""
    await agent.join()
    bad, good = world.submit("bad", max_attempts=1), world.submit("good")
    items = {item.request_id: item.dispatch_id for item in await agent.items(2)}
    await agent.say(items["bad"], "abcd")
    columns = {"ids": [items["bad"]], "texts": ["x"], **BROKEN_ROWS[field]}
    await agent.send(deltas=types_pb2.TokenDeltas(**columns))
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert goodbye.error.field == field
    assert all(message.results_acked == 0 for message in agent.messages), "it sent no result"
    assert bad.context.rows == [(0, 0, 0, "abcd")]
    async with dialled(world) as again:
        running = [pb.RunningItem(dispatch_id=i, attempt=1, model="m") for i in items.values()]
        welcome = await again.join(running_items=running)
        assert list(welcome.abandon_dispatch_ids) == [items["bad"]]
        await again.say(items["good"], "text")
        await again.finish(items["good"])
        await world.until(lambda: len(world.finished) == 2)
    assert world.finished["bad"].metadata["lastReason"] == "ENGINE_ERROR"
    assert "its node broke the protocol" in bad.attempts[0].message
    assert world.finished["good"].reason is Reason.NONE
    assert good.context.rows == [(0, 0, 0, "text")]
    assert len(good.attempts) == 1


async def test_more_items_received_than_were_sent_end_the_session(
    world: World, agent: Agent
) -> None:
    """One that counts over sessions would have the work on its way called lost."""
    await agent.join()
    request = world.submit("r1")
    (item,) = await agent.items(1)
    load = pb.EngineLoad(engine_id="e1", running_dispatch_ids=[item.dispatch_id] * 2)
    await agent.send(report=pb.NodeReport(items_received=1, engines=[load, load]))
    await agent.send(report=pb.NodeReport(items_received=2, engines=[load]))
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert goodbye.error.field == "report.items_received"
    assert world.driver.scheduler.state.totals.healed == 0
    assert list(request.live) == [item.dispatch_id]


TOO_MANY = (1 << 16) + 1
LONG_LISTS = {
    "updates": pb.ConnectRequest(updates=[pb.ItemUpdate()] * TOO_MANY),
    "results": pb.ConnectRequest(results=[pb.ItemResult()] * TOO_MANY),
    "credits": pb.ConnectRequest(credits=[pb.Credit()] * TOO_MANY),
    "command_results": pb.ConnectRequest(command_results=[pb.CommandResult()] * TOO_MANY),
    "deltas.offsets": pb.ConnectRequest(
        deltas=types_pb2.TokenDeltas(ids=[1] * TOO_MANY, offsets=[0] * TOO_MANY)
    ),
}


@pytest.mark.parametrize("field", LONG_LISTS)
async def test_message_that_would_hold_up_everybody_ends_its_session(
    world: World, agent: Agent, field: str
) -> None:
    """Millions of empty results in one message took ten seconds in which nobody was served."""
    await agent.join()
    await agent.send_raw(LONG_LISTS[field].SerializeToString())
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert goodbye.error.field == field


async def test_agent_that_brings_back_a_thousand_items_keeps_those_that_are_wanted(
    world: World, agent: Agent
) -> None:
    """However often it names them, each of the others is abandoned once."""
    await agent.join()
    for number in range(8):
        world.submit(f"r{number}")
    items = {item.dispatch_id: item.request_id for item in await agent.items(8)}
    await agent.call.done_writing()  # it leaves without a drain: a broken session
    await world.until(world.breaks)
    strangers = [TERM << 40 | 1 << 20 | number for number in range(1_000)]
    held = [*strangers[:500], *items, *strangers, *items]
    async with dialled(world) as again:
        running = [
            pb.RunningItem(dispatch_id=i, attempt=1, engine_id="e1", model="m") for i in held
        ]
        welcome = await again.join(running_items=running)
        assert list(welcome.abandon_dispatch_ids) == strangers
        for dispatch_id in items:
            await again.finish(dispatch_id)
        await world.until(lambda: len(world.finished) == 8)
    assert all(ended.reason is Reason.NONE for ended in world.finished.values())
    assert all(len(ended.request.attempts) == 1 for ended in world.finished.values())
