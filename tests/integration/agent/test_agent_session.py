"""An agent with a simulated engine against a scripted scheduler, over a real stream."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import node_service_pb2 as node
from batchyard.v1 import types_pb2 as types
from tests.integration.agent.conftest import StartAgent
from tests.integration.agent.scripted_scheduler import (
    TERM,
    ScriptedScheduler,
    cancel,
    dispatch_id,
    text_item,
)

SLOW = {"latency_per_token": "20ms"}


async def test_a_batch_goes_in_and_deltas_and_results_come_out(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    agent = await start_agent(slots=2)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 2)
    assert agent.lines
    assert "n1 is up" in agent.lines[0]
    session.dispatch(text_item(1, "one [[tokens=5]]"), text_item(2, "two", stream=False))
    await session.until(lambda: len(session.results) == 2)
    streamed, whole = session.result(1), session.result(2)
    assert streamed is not None
    assert whole is not None
    assert session.text(1)
    assert not streamed.outputs  # its output went out as deltas
    assert whole.outputs[0].text
    assert session.text(2) == ""
    assert streamed.usage.output_tokens == 5
    assert not streamed.usage.partial
    assert streamed.timings.HasField("total")
    await session.until(lambda: session.credits["simulated"] == 4)


async def test_hello_says_who_the_node_is_and_what_it_has(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    await start_agent(slots=3, look_ahead=1)
    session = await scheduler.session()
    hello = session.hello
    assert hello.node_id == "n1"
    assert 1 <= len(hello.boot_id) <= 64
    assert hello.protocol_version == 1
    assert set(hello.features) == {
        "load_model", "unload_model", "set_slots", "set_log_level", "lift_drain",
    }  # fmt: skip
    engine = hello.descriptor.engines[0]
    assert (engine.engine_id, engine.kind, engine.slots) == ("simulated", "simulated", 3)
    assert [m.model for m in engine.models] == ["simulated"]
    assert not hello.running_items
    assert (hello.cluster_id, hello.highest_term) == ("", 0)
    await session.until(lambda: session.credits.get("simulated") == 4)
    report = await session.until(lambda: session.reports and session.reports[-1])
    assert report.engines[0].engine_id == "simulated"
    await session.until(lambda: session.reports[-1].cpu_utilization == 0.5)


async def test_an_idle_agent_sends_heartbeats_and_answers_pings(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 81: an idle agent stays heard of, in the same session."""
    await start_agent()
    session = await scheduler.session(report_interval=Duration(seconds=60))
    await session.until(lambda: len([m for m in session.messages if not m.ByteSize()]) >= 3)
    session.send(ping=node.Ping(nonce=77))
    await session.until(lambda: any(m.pong.nonce == 77 for m in session.messages))
    assert scheduler.sessions.empty()


async def test_reports_list_what_is_held_and_how_many_items_came(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    await start_agent(slots=1, look_ahead=1)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 2)
    session.dispatch(text_item(1, "[[stall]]"), text_item(2, "[[stall]]"))
    report = await session.until(
        lambda: next((r for r in session.reports if r.items_received == 2), None)
    )
    assert list(report.engines[0].running_dispatch_ids) == [dispatch_id(1)]
    assert list(report.engines[0].waiting_dispatch_ids) == [dispatch_id(2)]
    assert report.application_utilization == 2.0


async def test_a_bad_item_fails_alone_and_names_its_field(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    await start_agent(slots=4)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 4)
    good = text_item(1, "ab")
    bad_request = text_item(2, "XYZ")
    bad_item = text_item(3, "fine", tenant="TENANT")
    batch = node.DispatchBatch(
        batch_id="b", engine_id="simulated", model="simulated", items=[good, bad_request, bad_item]
    )
    data = node.ConnectResponse(batches=[batch]).SerializeToString()
    session.send_raw(data.replace(b"XYZ", b"X\xff\xfe").replace(b"TENANT", b"TEN\xc3\x28T"))
    await session.until(lambda: len(session.results) == 3)
    assert session.result(1).finish_reason == types.FINISH_REASON_STOP  # type: ignore[union-attr]
    for counter, field in ((2, "request.text.prompt"), (3, "tenant")):
        result = session.result(counter)
        assert result is not None
        assert result.attempt == 1
        assert result.error.reason == types.ERROR_REASON_INVALID_ARGUMENT
        assert result.error.field == field
        assert not result.refused
    await session.until(lambda: session.credits["simulated"] == 7)


async def test_an_over_send_comes_back_as_refused(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 2: the agent never holds more than slots + look-ahead."""
    await start_agent(slots=1)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    session.dispatch(text_item(1, "[[stall]]"), text_item(2))
    result = await session.until(lambda: session.result(2))
    assert result.refused
    assert result.error.reason == types.ERROR_REASON_ENGINE_BUSY
    assert session.result(1) is None


async def test_a_cancel_frees_the_slot_and_says_what_was_made(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 38: cancel reaches the engine. Behaviour 135: usage of cut-off work is told."""
    await start_agent(slots=1)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    session.dispatch(text_item(1, "[[stall=3]] [[tokens=30]]", stream=False))
    await session.until(lambda: any(u.dispatch_id for m in session.messages for u in m.updates))
    session.send(cancels=[cancel(1, reason=types.ERROR_REASON_PREEMPTED)])
    result = await session.until(lambda: session.result(1))
    assert result.finish_reason == types.FINISH_REASON_CANCELLED
    assert result.error.reason == types.ERROR_REASON_PREEMPTED
    assert result.usage.partial
    await session.until(lambda: session.credits["simulated"] == 2)


async def test_a_deadline_fires_by_timer_on_the_node(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 21: the engine's slot is free again when the time of the request is up."""
    await start_agent(slots=1)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    session.dispatch(text_item(1, "[[stall]]", remaining=Duration(nanos=150_000_000)))
    result = await session.until(lambda: session.result(1))
    assert result.finish_reason == types.FINISH_REASON_EXPIRED
    assert result.error.reason == types.ERROR_REASON_DEADLINE_EXCEEDED
    assert result.error.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
    await session.until(lambda: session.credits["simulated"] == 2)


async def test_a_reconnect_hands_back_running_items_and_goes_on_at_the_named_offset(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 56: after a broken stream the joined text is the text, nothing twice."""
    await start_agent(slots=2, **SLOW)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 2)
    session.dispatch(text_item(1, "[[tokens=40]]", cookie=b"biscuit", tenant="t"))
    await session.until(lambda: len(session.text(1)) > 6)
    session.abort(grpc.StatusCode.UNAVAILABLE, "going down")
    point = node.ResumePoint(dispatch_id=dispatch_id(1), offsets=[types.StreamOffset(offset=4)])
    before = session.text(1)
    session = await scheduler.session(welcome=False)
    (item,) = session.hello.running_items
    assert (session.hello.cluster_id, session.hello.highest_term) == ("c", TERM)
    assert (item.dispatch_id, item.attempt, item.tenant) == (dispatch_id(1), 1, "t")
    assert (item.cookie, item.request_id) == (b"biscuit", "r1")
    assert item.output_id == dispatch_id(1001)
    assert (item.engine_id, item.model) == ("simulated", "simulated")
    assert item.state == node.ITEM_STATE_FIRST_TOKEN
    assert item.offsets[0].offset >= len(before)
    session.welcome(resume_points=[point])
    await session.until(lambda: session.result(1))
    assert session.credits["simulated"] >= 1
    assert session.deltas[0][1] == 4
    whole = before[:4] + session.text(1)
    assert whole.startswith(before)
    assert len(whole) > len(before)
    assert session.result(1).usage.output_tokens == 40  # type: ignore[union-attr]


async def test_unacknowledged_results_are_sent_again_and_acknowledged_ones_are_not(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    agent = await start_agent(slots=4)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 4)
    session.dispatch(text_item(1), text_item(2))
    await session.until(lambda: len(session.results) == 2)
    kept = session.results[1].dispatch_id
    session.send(results_acked=1)
    session.send(ping=node.Ping(nonce=1))
    await session.until(lambda: any(m.HasField("pong") for m in session.messages))
    session.hang_up()
    session = await scheduler.session()
    assert [i.dispatch_id for i in session.hello.running_items] == [kept]
    assert session.hello.running_items[0].state == node.ITEM_STATE_FINISHED
    await session.until(lambda: session.results)
    assert [r.dispatch_id for r in session.results] == [kept]
    session.send(results_acked=1)
    await session.until(lambda: not agent.app.core.items)


async def test_abandoned_items_are_stopped_in_the_engine_and_leave_no_result(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 47: when a failover happened, the old attempt's engine work is cancelled."""
    agent = await start_agent(slots=1)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    session.dispatch(text_item(1, "[[stall]]"))
    await session.until(lambda: agent.engine.load().running)
    session.hang_up()
    session = await scheduler.session(abandon_dispatch_ids=[dispatch_id(1)])
    await session.until(lambda: session.credits.get("simulated") == 1)
    assert agent.engine.load().running == 0
    session.dispatch(text_item(2))
    await session.until(lambda: session.result(2))
    assert session.result(1) is None
    assert session.text(1) == ""


async def test_a_scheduler_of_a_lower_term_is_refused_and_a_newer_one_gets_all(
    scheduler: ScriptedScheduler, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    await start_agent(slots=1)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 1)
    session.dispatch(text_item(1, "[[stall]]"))
    await session.until(lambda: any(m.updates for m in session.messages))
    session.hang_up()
    stale = await scheduler.session(term=TERM - 1)
    session = await scheduler.session(term=TERM + 1)
    assert [i.dispatch_id for i in session.hello.running_items] == [dispatch_id(1)]
    assert session.hello.highest_term == TERM
    assert not stale.messages
    await session.until(lambda: "simulated" in session.credits)
    session.dispatch(text_item(2))  # minted in the older term
    result = await session.until(lambda: session.result(2))
    assert result.refused
    assert result.error.reason == types.ERROR_REASON_STALE_TERM
    assert "STALE_TERM" in [getattr(r, "reason", "") for r in caplog.records]


async def test_a_node_id_in_use_ends_the_agent_with_3_and_says_what_to_do(
    scheduler: ScriptedScheduler, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Behaviour 52: the second agent of one id is refused and exits non-zero."""
    agent = await start_agent()
    session = await scheduler.session(welcome=False)
    error = types.Error(reason=types.ERROR_REASON_NODE_ID_IN_USE, message="held by 10.0.0.1")
    session.send(goodbye=node.Goodbye(error=error))
    assert await agent.exit_code() == 3
    assert "'n1' is in use by another live agent (held by 10.0.0.1)" in caplog.text
    assert "--node-id" in caplog.text


async def test_a_goodbye_without_a_time_stops_the_agent(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    agent = await start_agent()
    session = await scheduler.session()
    session.send(goodbye=node.Goodbye())
    assert await agent.exit_code() == 0


async def test_a_goodbye_with_a_time_is_honoured(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    await start_agent()
    session = await scheduler.session()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    session.send(goodbye=node.Goodbye(reconnect_after=Duration(nanos=300_000_000)))
    await scheduler.session()
    assert loop.time() - begun >= 0.3


@contextmanager
def told(field: str, value: str, event: asyncio.Event) -> Iterator[None]:
    """Set the event once the agent logs a line with this field."""

    def look(record: logging.LogRecord) -> bool:
        if getattr(record, field, None) == value:
            event.set()
        return True

    logger = logging.getLogger("node_agent.session")
    logger.addFilter(look)
    try:
        yield
    finally:
        logger.removeFilter(look)


async def test_an_agent_comes_back_by_itself_when_the_scheduler_was_down(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 73: a new channel, and a back-off of seconds at most."""
    await start_agent()
    await scheduler.session()
    port = int(scheduler.address.rpartition(":")[2])
    await scheduler.stop()
    refused = asyncio.Event()
    with told("count", "4", refused):  # in a row
        await asyncio.wait_for(refused.wait(), 20)
    await scheduler.start(port)
    session = await scheduler.session()
    await session.until(lambda: "simulated" in session.credits)


async def test_the_schedulers_status_is_logged_as_it_was_given(
    scheduler: ScriptedScheduler, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Behaviour 75: one writer, and the real status survives writes that come too late."""
    await start_agent(slots=8, latency_per_token="1ms")
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 8)
    session.dispatch(*[text_item(n, "[[tokens=500]]") for n in range(1, 9)])
    await session.until(lambda: len(session.deltas) > 20)
    session.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much of you")
    await scheduler.session()
    lost = [r for r in caplog.records if getattr(r, "event", "") == "session_lost"]
    assert [r.__dict__["reason"] for r in lost] == ["RESOURCE_EXHAUSTED"]
    assert "too much of you" in lost[0].getMessage()
    assert "ExecuteBatchError" not in caplog.text


async def test_commands_are_carried_out_or_refused_by_name(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    await start_agent(slots=4)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 4)
    session.send(
        commands=[
            node.Command(command_id=1, set_slots=node.SetSlots(engine_id="simulated", slots=2)),
            node.Command(command_id=2, set_slots=node.SetSlots(engine_id="simulated", slots=9)),
            node.Command(command_id=3, load_model=node.LoadModel(engine_id="x", model="m")),
            node.Command(command_id=4, set_log_level=node.SetLogLevel(level="loud")),
        ]
    )
    await session.until(lambda: sum(len(m.command_results) for m in session.messages) == 4)
    results = {r.command_id: r.error for m in session.messages for r in m.command_results}
    assert not results[1].reason
    assert results[2].field == "set_slots.slots"
    assert results[3].reason == types.ERROR_REASON_RESOURCE_NOT_FOUND
    assert results[4].field == "set_log_level.level"
    described = [m.descriptor for m in session.messages if m.HasField("descriptor")]
    assert described[-1].engines[0].slots == 2


async def test_an_engine_that_warms_up_gets_no_work_before_it_serves(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 111: ready means that it can serve."""
    await start_agent(warm_up="400ms")
    session = await scheduler.session()
    first = await session.until(lambda: session.reports and session.reports[0])
    assert first.engines[0].health == node.ENGINE_HEALTH_STARTING
    assert session.credits == {"simulated": 0}
    await session.until(lambda: session.credits["simulated"] == 8)
    await session.until(lambda: session.reports[-1].engines[0].health == node.ENGINE_HEALTH_SERVING)


async def test_a_drain_finishes_what_runs_and_then_exits(
    scheduler: ScriptedScheduler, start_agent: StartAgent
) -> None:
    """Behaviour 107: no new work after the drain, and the running stream completes."""
    agent = await start_agent(slots=1, look_ahead=1, **SLOW)
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated") == 2)
    session.dispatch(text_item(1, "[[tokens=20]]"), text_item(2))
    await session.until(lambda: session.text(1))
    agent.app.on_signal(signal.SIGTERM)
    await session.until(lambda: any(m.HasField("drain") for m in session.messages))
    session.dispatch(text_item(3))
    await session.until(lambda: len(session.results) == 3)
    assert session.result(1).usage.output_tokens == 20  # type: ignore[union-attr]
    for counter in (2, 3):
        result = session.result(counter)
        assert result is not None
        assert result.refused
        assert result.error.reason == types.ERROR_REASON_NODE_DRAINING
    session.send(results_acked=3)
    await session.until(lambda: session.closed)  # half-closed in good order
    assert await agent.exit_code() == 0


async def test_log_records_never_hold_prompts_or_outputs(
    scheduler: ScriptedScheduler, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "node_agent")
    await start_agent()
    session = await scheduler.session()
    await session.until(lambda: session.credits.get("simulated"))
    session.dispatch(text_item(1, "CANARY", stream=False))
    result = await session.until(lambda: session.result(1))
    logged = "\n".join(str(r.__dict__) for r in caplog.records if r.name.startswith("node_agent"))
    assert "item finished" in logged
    assert "CANARY" not in logged
    assert result.outputs[0].text not in logged
