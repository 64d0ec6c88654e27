"""Node sessions over a real stream: who is let in, what travels, and how sessions end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.v1 import node_service_pb2 as pb
from scheduler_service.core.events import (
    DrainRequested,
    NodeDescribed,
    NodesHeard,
    OutputsBegun,
    RequestsCancelled,
)
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth, Outcome, Reason
from scheduler_service.core.types import MILLISECOND, SECOND
from tests.integration.scheduler.node_world import (
    TERM,
    Agent,
    Entry,
    World,
    dialled,
    hello,
    running_world,
)

UNKNOWN_FIELD = b"\x9a\xf1\x01\x05later"  # number 3859, of a newer client


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with running_world(**getattr(request, "param", {})) as running:
        yield running


def times(**shorter: int) -> pytest.MarkDecorator:
    """A world in which these times are so short that a test can wait for them."""
    return pytest.mark.parametrize("world", [shorter], indirect=True, ids=["short"])


@pytest.fixture
async def agent(world: World) -> AsyncIterator[Agent]:
    async with dialled(world) as dialled_agent:
        yield dialled_agent


def rows(request_context: object) -> list[tuple[int, int, int, str]]:
    assert isinstance(request_context, Entry)
    return request_context.rows


# Joining.


async def test_agent_is_welcomed_with_term_epoch_and_times(world: World, agent: Agent) -> None:
    welcome = await agent.join()
    assert welcome.session_epoch == TERM << 40 | 1
    assert (welcome.cluster_id, welcome.term) == ("cluster-1", TERM)
    assert (welcome.scheduler_version, welcome.protocol_version) == ("1.2.3", 1)
    assert welcome.heartbeat_interval == Duration(seconds=1)
    assert welcome.session_timeout == Duration(seconds=3)
    assert welcome.resume_window == Duration(seconds=2)
    assert welcome.coalesce == Duration(nanos=5_000_000)
    assert welcome.max_message_bytes == 64 << 20
    session = world.session()
    assert (session.boot_id, session.agent_version) == ("boot-1", "9.9")
    assert session.peer.startswith("ipv4:127.0.0.1:")
    assert session.descriptor is not None
    assert session.descriptor.hostname == "n1"
    assert session.connect_time.seconds > 0


async def test_stream_without_hello_first_is_turned_away(world: World, agent: Agent) -> None:
    await agent.send(credits=[pb.Credit(engine_id="e1", total_inputs=8)])
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert goodbye.error.field == "hello"
    assert not world.events


@times(hello_timeout=100 * MILLISECOND)
async def test_silent_stream_is_turned_away(world: World, agent: Agent) -> None:
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION


async def test_bad_hello_is_told_which_field_is_wrong(agent: Agent) -> None:
    await agent.send(hello=hello("no spaces, please"))
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert goodbye.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert goodbye.error.field == "hello.node_id"
    assert not goodbye.HasField("reconnect_after")


async def test_second_hello_ends_the_session(world: World, agent: Agent) -> None:
    await agent.join()
    await agent.send(hello=hello())
    assert (await agent.goodbye()).error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert len(world.breaks()) == 1


async def test_duplicate_node_id_is_refused_while_its_holder_answers(
    world: World, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Behaviour 52: the second live agent is refused with ALREADY_EXISTS; the log names both."""
    await agent.join()
    async with dialled(world) as newcomer:
        answering = asyncio.create_task(agent.expect("goodbye"))
        await newcomer.send(hello=hello(boot_id="boot-2"))
        goodbye = await newcomer.goodbye()
        answering.cancel()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_NODE_ID_IN_USE
    assert goodbye.error.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    assert goodbye.error.field == "hello.node_id"
    assert not goodbye.HasField("reconnect_after")
    assert world.node().boot_id == "boot-1"
    clash = next(r.getMessage() for r in caplog.records if "holds it" in r.getMessage())
    assert world.session().peer in clash
    assert clash.count("127.0.0.1") == 2


@times(ping_timeout=100 * MILLISECOND)
async def test_holder_that_does_not_answer_is_replaced(world: World, agent: Agent) -> None:
    await agent.join()
    agent.answers = False
    async with dialled(world) as newcomer:
        await newcomer.send(hello=hello(boot_id="boot-2"))
        welcome = await newcomer.expect("welcome")  # the holder reads nothing meanwhile
        assert welcome.session_epoch == TERM << 40 | 2
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_NODE_LOST
    assert goodbye.HasField("reconnect_after")


async def test_agent_of_a_newer_term_is_sent_on(agent: Agent) -> None:
    await agent.send(hello=hello(cluster_id="cluster-1", highest_term=TERM + 1))
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_STALE_TERM
    assert goodbye.error.metadata["term"] == str(TERM + 1)


async def test_items_of_another_cluster_are_abandoned(world: World, agent: Agent) -> None:
    held = pb.RunningItem(dispatch_id=TERM << 40 | 9, attempt=1)
    welcome = await agent.join(cluster_id="other", highest_term=99, running_items=[held])
    assert list(welcome.abandon_dispatch_ids) == [TERM << 40 | 9]


# Dispatch.


async def test_request_bytes_arrive_untouched(world: World, agent: Agent) -> None:
    await agent.join()
    data = inference_pb2.InferenceRequest(request_id="mine", model="m").SerializeToString()
    data += UNKNOWN_FIELD
    deadline = world.clock.now() + 60 * SECOND
    world.submit("r1", data=data, tenant="t1", priority=8, deadline=deadline)
    (batch,) = await agent.expect("batches")
    (item,) = batch.items
    assert item.request.SerializeToString() == data
    assert (batch.engine_id, batch.model, batch.atomic) == ("e1", "m", False)
    assert (item.request_id, item.tenant, item.priority, item.attempt) == ("r1", "t1", 8, 1)
    assert item.request_class == types_pb2.REQUEST_CLASS_INTERACTIVE
    assert item.charge == pb.Charge(inputs=1)
    assert 50 < item.remaining.seconds < 60
    assert item.dispatch_id >> 40 == TERM
    assert item.output_id >> 40 == TERM
    assert item.stream
    assert not item.HasField("continuation")
    assert not item.HasField("trace")
    assert 0 < len(item.cookie) <= 256


async def test_cancel_follows_its_item(world: World, agent: Agent) -> None:
    """Both are posted in one iteration, so they share a message, batches first by the protocol."""
    await agent.join()
    request = world.submit("r1")
    await world.until(lambda: request.live)
    world.driver.post(RequestsCancelled([request.rid]))
    (item,) = await agent.items(1)
    while not agent.messages[-1].cancels:
        await agent.read()
    (cancel,) = agent.messages[-1].cancels
    assert list(cancel.dispatch_ids) == [item.dispatch_id]
    assert cancel.reason == types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT
    assert world.finished["r1"].outcome is Outcome.CANCELLED


async def test_results_are_acknowledged_by_their_total(world: World, agent: Agent) -> None:
    await agent.join()
    for name in ("r1", "r2"):
        world.submit(name)
    first, second = await agent.items(2)
    await agent.finish(first.dispatch_id, usage=types_pb2.Usage(output_tokens=3))
    assert await agent.expect("results_acked") == 1
    await agent.finish(second.dispatch_id)
    assert await agent.expect("results_acked") == 2
    assert world.finished["r1"].outcome is Outcome.SUCCEEDED
    assert world.finished["r1"].payload.usage.output_tokens == 3


async def test_failed_item_carries_its_reason(world: World, agent: Agent) -> None:
    await agent.join()
    world.submit("r1")
    (item,) = await agent.items(1)
    error = types_pb2.Error(
        code=3, reason=types_pb2.ERROR_REASON_CONTEXT_TOO_LONG, metadata={"promptTokens": "9"}
    )
    finish = types_pb2.FINISH_REASON_ERROR
    await agent.finish(item.dispatch_id, finish_reason=finish, error=error)
    await world.until(lambda: "r1" in world.finished)
    assert world.finished["r1"].reason is Reason.CONTEXT_TOO_LONG
    assert world.finished["r1"].metadata == {"promptTokens": "9"}


async def test_slow_reading_agent_does_not_stall_others(world: World, agent: Agent) -> None:
    """One agent never reads what is sent to it; another works at its usual pace."""
    await agent.send(hello=hello("slow", model="slow-model"))
    await agent.expect("welcome")
    await agent.send(credits=[pb.Credit(engine_id="e1", total_inputs=8)])
    await world.until(lambda: "slow" in world.driver.scheduler.state.nodes)
    for number in range(8):
        world.submit(
            f"s{number}", model="slow-model", data=b"\x0a" + b"\xff\xff\x7f" + bytes(2**21)
        )
    async with dialled(world) as quick:
        await quick.join("quick")
        for number in range(50):
            world.submit(f"q{number}")
            (item,) = await quick.items(1)
            await quick.send(credits=[pb.Credit(engine_id="e1", total_inputs=9 + number)])
            await quick.finish(item.dispatch_id)
        await world.until(lambda: "q49" in world.finished)
    assert not any(name.startswith("s") for name in world.finished)


# Output.


async def test_output_reaches_its_sink_in_order(world: World, agent: Agent) -> None:
    await agent.join()
    request = world.submit("r1")
    (item,) = await agent.items(1)
    await agent.send(
        updates=[pb.ItemUpdate(dispatch_id=item.dispatch_id, state=pb.ITEM_STATE_RUNNING)]
    )
    await agent.say(item.dispatch_id, "One ", "zwei ", "三 ")
    await agent.say(item.dispatch_id, "vier", offset=13)
    await world.until(lambda: len(rows(request.context)) == 4)
    assert rows(request.context) == [
        (0, 0, 0, "One "), (0, 0, 4, "zwei "), (0, 0, 9, "三 "), (0, 0, 13, "vier"),
    ]  # fmt: skip
    begun = [event for event in world.events if isinstance(event, OutputsBegun)]
    assert begun == [OutputsBegun([item.dispatch_id])]
    assert request.attempts[0].running
    assert request.attempts[0].spoke


async def test_what_the_client_has_is_trimmed(world: World, agent: Agent) -> None:
    await agent.join()
    request = world.submit("r1")
    (item,) = await agent.items(1)
    await agent.say(item.dispatch_id, "一二")
    await agent.say(item.dispatch_id, "一二三", offset=0)
    await agent.say(item.dispatch_id, "二", offset=3)
    await agent.say(item.dispatch_id, "四", offset=9)
    await world.until(lambda: len(rows(request.context)) == 3)
    assert [row[2:] for row in rows(request.context)] == [(0, "一二"), (6, "三"), (9, "四")]


async def test_output_of_dead_ids_is_dropped_and_counted(world: World, agent: Agent) -> None:
    await agent.join()
    request = world.submit("r1")
    (item,) = await agent.items(1)
    relay = world.driver.scheduler.relay
    await agent.say(12345, "nobody's")
    world.driver.post(RequestsCancelled([request.rid]))
    await world.until(lambda: "r1" in world.finished)
    await agent.say(item.dispatch_id, "too late")
    await agent.finish(item.dispatch_id)
    await agent.expect("results_acked")
    assert relay.stale == 2
    assert rows(request.context) == []


async def test_one_node_cannot_speak_for_another(world: World, agent: Agent) -> None:
    await agent.join()
    request = world.submit("r1")
    (item,) = await agent.items(1)
    async with dialled(world) as other:
        await other.join("n2", model="other")
        await other.say(item.dispatch_id, "not mine")
        await other.send(drain=pb.Drain(reason="handled after the deltas"))
        await world.until(lambda: isinstance(world.events[-1], DrainRequested))
    assert rows(request.context) == []
    assert world.driver.scheduler.relay.stale == 1


@times(resume_window=100 * MILLISECOND)
async def test_gap_ends_the_session_and_moves_the_work(world: World, agent: Agent) -> None:
    await agent.join()
    request = world.submit("r1")
    (item,) = await agent.items(1)
    deltas = types_pb2.TokenDeltas(
        ids=[item.dispatch_id] * 2, offsets=[0, 9], texts=["good", "gap"]
    )
    await agent.send(deltas=deltas)
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert goodbye.error.field == "deltas.offsets"
    assert goodbye.HasField("reconnect_after")
    assert rows(request.context) == [(0, 0, 0, "good")]
    assert request.attempts[0].spoke  # so nobody starts it from the top
    async with dialled(world) as second:
        await second.join("n2")
        (again,) = await second.items(1)  # once the resume window is over
        assert again.continuation.text == "good"
        await second.say(again.dispatch_id, "bye", offset=4)
        await second.finish(again.dispatch_id)
        await world.until(lambda: "r1" in world.finished)
    assert [row[2:] for row in rows(request.context)] == [(0, "good"), (4, "bye")]


@pytest.mark.parametrize("column", ["ids", "texts", "token_counts", "choice_indexes", "channels"])
async def test_unequal_columns_end_the_session(world: World, agent: Agent, column: str) -> None:
    await agent.join()
    world.submit("r1")
    (item,) = await agent.items(1)
    deltas = types_pb2.TokenDeltas(ids=[item.dispatch_id] * 2, offsets=[0, 1], texts=["a", "b"])
    deltas.ClearField(column)
    getattr(deltas, column).append({"ids": 1, "texts": "x"}.get(column, 0))
    await agent.send(deltas=deltas)
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
    assert goodbye.error.field == f"deltas.{column}"


async def test_broken_sink_stops_nobody_else(world: World, agent: Agent) -> None:
    await agent.join()
    broken, sound = world.submit("r1"), world.submit("r2")
    broken.context.fails = True
    first, second = await agent.items(2)
    await agent.say(first.dispatch_id, "lost")
    await agent.say(second.dispatch_id, "kept")
    await agent.finish(first.dispatch_id)
    await world.until(lambda: "r1" in world.finished)
    assert rows(sound.context) == [(0, 0, 0, "kept")]
    assert world.port.faults == 1


# Reconnecting.


async def test_reconnecting_agent_keeps_its_work_and_is_told_where_to_go_on(
    world: World, agent: Agent
) -> None:
    await agent.join()
    request, silent = world.submit("r1"), world.submit("r2", stream=False)
    first, second = await agent.items(2)
    await agent.say(first.dispatch_id, "一二")
    await world.until(lambda: rows(request.context))
    agent.call.cancel()
    await world.until(world.breaks)
    async with dialled(world) as again:
        held = [
            pb.RunningItem(dispatch_id=first.dispatch_id, attempt=1, state=pb.ITEM_STATE_RUNNING),
            pb.RunningItem(dispatch_id=second.dispatch_id, state=pb.ITEM_STATE_FINISHED),
            pb.RunningItem(dispatch_id=TERM << 40 | 999, attempt=1),
        ]
        welcome = await again.join(cluster_id="cluster-1", highest_term=TERM, running_items=held)
        assert list(welcome.abandon_dispatch_ids) == [TERM << 40 | 999]
        offset = types_pb2.StreamOffset(choice_index=0, channel=0, offset=6)
        assert list(welcome.resume_points) == [
            pb.ResumePoint(dispatch_id=first.dispatch_id, offsets=[offset])
        ]
        await again.finish(second.dispatch_id)
        await again.say(first.dispatch_id, "三", offset=6)
        await again.finish(first.dispatch_id)
        await world.until(lambda: len(world.finished) == 2)
    assert [row[2:] for row in rows(request.context)] == [(0, "一二"), (6, "三")]
    assert len(silent.attempts) == len(request.attempts) == 1


async def test_old_stream_is_replaced_by_a_new_one_of_the_same_process(
    world: World, agent: Agent
) -> None:
    await agent.join()
    world.submit("r1")
    (item,) = await agent.items(1)
    async with dialled(world) as again:
        held = [pb.RunningItem(dispatch_id=item.dispatch_id, attempt=1)]
        await again.join(cluster_id="cluster-1", running_items=held)
        goodbye = await agent.goodbye()
        assert goodbye.error.reason == types_pb2.ERROR_REASON_SESSION_REPLACED
        assert [event.epoch for event in world.breaks()] == [TERM << 40 | 1]
        await again.finish(item.dispatch_id)
        await world.until(lambda: "r1" in world.finished)


# The end of a session.


@times(resume_window=100 * MILLISECOND)
async def test_broken_session_is_told_once(world: World, agent: Agent) -> None:
    await agent.join()
    await agent.channel.close()
    await world.until(world.breaks)
    await world.until(lambda: world.node().health is NodeHealth.LOST)
    assert [(e.node_id, e.epoch, e.goodbye) for e in world.breaks()] == [
        ("n1", TERM << 40 | 1, False)
    ]
    assert world.sessions == {}


async def test_half_close_without_a_drain_is_a_broken_session(world: World, agent: Agent) -> None:
    await agent.join()
    agent.answers = False
    await agent.call.done_writing()
    while await agent.read() is not None:
        pass
    assert await agent.call.code() is grpc.StatusCode.OK
    assert [event.goodbye for event in world.breaks()] == [False]


async def test_drained_agent_leaves_in_good_order(world: World, agent: Agent) -> None:
    await agent.join()
    world.submit("r1")
    (item,) = await agent.items(1)
    await agent.send(drain=pb.Drain(grace=Duration(seconds=5), reason="SIGTERM", terminate=True))
    await world.until(lambda: world.node().availability is NodeAvailability.DRAINING)
    assert world.node().drain is not None
    assert world.node().drain.grace == 5 * SECOND  # type: ignore[union-attr]
    await agent.finish(item.dispatch_id)
    await agent.expect("results_acked")
    await agent.call.done_writing()
    assert await agent.read() is None
    assert [event.goodbye for event in world.breaks()] == [True]
    assert world.node().health is NodeHealth.LOST
    assert world.node().state_reason == "it left: SIGTERM"


async def test_price_of_a_node_is_known_when_it_is_gone(world: World, agent: Agent) -> None:
    """Reports count what ran there."""
    first = hello("n1")
    first.descriptor.price_per_hour.micros = 2_000_000
    await agent.send(hello=first)
    await agent.expect("welcome")
    assert world.port.last_price("n1") is None, "its session tells it"
    await agent.call.done_writing()
    await world.until(lambda: bool(world.breaks()))
    assert world.port.last_price("n1") == types_pb2.Money(micros=2_000_000)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"\xff\xff\xff\xff", ""),
        (b"\x22\x04\x0a\x02\xff\xfe", "descriptor.hostname"),
        (pb.ConnectRequest(report=pb.NodeReport(items_received=1)).SerializeToString()[:-1], ""),
    ],
    ids=["garbage", "utf-8", "cut"],
)
async def test_unreadable_message_ends_only_its_session(
    world: World, agent: Agent, data: bytes, field: str
) -> None:
    await agent.join()
    async with dialled(world) as other:
        await other.join("n2", model="other")
        await agent.send_raw(data)
        goodbye = await agent.goodbye()
        assert goodbye.error.reason == types_pb2.ERROR_REASON_PROTOCOL_VIOLATION
        assert goodbye.error.field == field
        world.submit("r1", model="other")
        (item,) = await other.items(1)
        await other.finish(item.dispatch_id)
        await world.until(lambda: "r1" in world.finished)
    assert world.breaks()[0].node_id == "n1"


async def test_closed_session_is_over_at_once_even_if_its_peer_does_not_read(
    world: World, agent: Agent
) -> None:
    """What waits unread fills gRPC's windows; the goodbye comes when the peer reads at last."""
    await agent.join()
    agent.answers = False
    request = world.submit("r1", data=b"\x0a" + b"\x80\x80\x80\x0c" + b"x" * (24 << 20))
    await world.until(lambda: request.live)
    await world.until(lambda: not world.session()._batches)  # the writer has packed it
    async with asyncio.timeout(2):
        await world.port.close(Reason.SCHEDULER_DRAINING, "going down", reconnect=True)
    assert len(world.breaks()) == 1
    assert world.sessions == {}
    assert world.port._streams, "the window was not full: nothing was tested"
    goodbye = await agent.goodbye()
    assert goodbye.error.reason == types_pb2.ERROR_REASON_SCHEDULER_DRAINING


async def test_stream_ends_though_its_peer_ignores_the_goodbye(world: World, agent: Agent) -> None:
    await agent.join()
    async with asyncio.timeout(1):
        await world.port.close(Reason.SCHEDULER_DRAINING, "going down", reconnect=True)
    assert not world.port._streams
    agent.answers = False
    await agent.expect("goodbye")
    assert await agent.read() is None


async def test_closing_port_says_goodbye_to_all_and_to_those_that_come(
    world: World, agent: Agent
) -> None:
    """Behaviour 79: streams are told to end."""
    await agent.join()
    async with dialled(world) as other:
        await other.join("n2")
        closing = asyncio.create_task(
            world.port.close(Reason.SCHEDULER_DRAINING, "going down", reconnect=True)
        )
        for each in (agent, other):
            goodbye = await each.goodbye()
            assert goodbye.error.reason == types_pb2.ERROR_REASON_SCHEDULER_DRAINING
            assert goodbye.error.code == grpc.StatusCode.UNAVAILABLE.value[0]
            assert goodbye.HasField("reconnect_after")
        await closing
    async with dialled(world) as late:
        assert (await late.goodbye()).error.reason == types_pb2.ERROR_REASON_SCHEDULER_DRAINING


@times(resume_window=100 * MILLISECOND)
async def test_aborted_streams_leave_no_trace_in_the_logs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Behaviour 75: no ExecuteBatchError, however a stream ends while messages are under way."""
    for number in range(20):
        async with dialled(world) as agent:
            await agent.join(f"n{number}")
            world.submit(f"r{number}")
            if number % 2:
                await agent.items(1)
            agent.call.cancel()
    await world.until(lambda: len(world.breaks()) == 20)
    await world.until(lambda: not world.port._streams)
    assert not [r.getMessage() for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")]


# Reports and measuring.


async def test_report_is_kept_and_a_new_profile_reaches_the_core(
    world: World, agent: Agent
) -> None:
    await agent.join()
    point = pb.ServicePoint(concurrency=1, time=Duration(nanos=1_000_000))
    load = pb.EngineLoad(
        engine_id="e1",
        health=pb.ENGINE_HEALTH_SERVING,
        models=[pb.ModelLoad(model="m", profile=pb.ServiceProfile(points=[point]))],
    )
    for _ in range(2):
        await agent.send(report=pb.NodeReport(engines=[load], cpu_utilization=0.25))
    load.health = pb.ENGINE_HEALTH_STALLED
    await agent.send(report=pb.NodeReport(engines=[load], cpu_utilization=0.5))
    await world.until(lambda: not world.node().engines["e1"].spec.healthy)
    assert world.node().engines["e1"].models["m"].configured_service == 128_000_000
    assert len([e for e in world.events if isinstance(e, NodeDescribed)]) == 1
    report = world.session().report
    assert report is not None
    assert report.cpu_utilization == 0.5


async def test_changed_descriptor_reaches_the_core(world: World, agent: Agent) -> None:
    await agent.join()
    await agent.send(descriptor=hello(slots=3).descriptor)
    await world.until(lambda: world.node().engines["e1"].spec.slots == 3)
    await agent.send(descriptor=pb.NodeDescriptor(hostname="empty"))
    goodbye = await agent.goodbye()
    assert goodbye.error.field == "descriptor.engines"


async def test_round_trip_is_measured_and_heartbeats_are_heard(world: World, agent: Agent) -> None:
    await agent.join()
    await agent.send()
    await agent.expect("ping")  # the script answers
    await world.until(lambda: world.session().round_trip_s is not None)
    assert 0 < (world.session().round_trip_s or 0) < 1
    assert world.session().clock_offset_us is None  # the script names no time
    agent.answers = False
    world.session().ping()
    ping = await agent.expect("ping")
    world.session().round_trip_s = None
    far = {"seconds": (1 << 63) - 1}
    await agent.send(pong=pb.Pong(nonce=ping.nonce, receive_time=far))
    await world.until(lambda: world.session().round_trip_s is not None)
    assert world.session().clock_offset_us is None, "no report holds such an offset"
    assert any(isinstance(event, NodesHeard) for event in world.events)
