"""What is sent to an agent, message by message: `AgentSession` with a written-down stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.v1 import node_service_pb2 as pb
from batchyard.wire.v1 import wire_pb2
from scheduler_service.clock import Clock
from scheduler_service.core.commands import CloseSession, DrainNode
from scheduler_service.core.outcomes import EngineMode, Reason, RequestClass
from scheduler_service.core.relay import Output, Relay
from scheduler_service.core.types import (
    NEVER,
    SECOND,
    Attempt,
    Batch,
    Engine,
    EngineSpec,
    Node,
    NodeSpec,
    Request,
)
from scheduler_service.rpc.node_items import ItemWriter
from scheduler_service.rpc.node_settings import Identity, NodePortSettings
from scheduler_service.rpc.node_writer import ACKS_AT_ONCE, AgentSession
from scheduler_service.rpc.ports import NoTracer

SPEC = EngineSpec("e1", EngineMode.STATIC, 64)
NODE = Node("n1", "b1", 1, NodeSpec((SPEC,)), 0, 0)
ENGINE = Engine(NODE, SPEC, {})


class Entry:
    def __init__(self, size: int = 10) -> None:
        self.request_bytes = inference_pb2.InferenceRequest(model="x" * size).SerializeToString()
        self.traceparent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        self.tracestate = "k=v"
        self.sampled = True

    def delivered_text(self, channel: int) -> str:
        return ("said", "thought")[channel]

    def delivered_token_ids(self) -> list[int]:
        return [4, 2]


class Tracer(NoTracer):
    """Batches are traced, too."""

    def batch_context(self, batch: Batch, items: Sequence[bytes]) -> types_pb2.TraceContext:
        return types_pb2.TraceContext(traceparent=batch.batch_id)


class Counter:
    value = 0

    @classmethod
    def next(cls) -> int:
        cls.value += 1
        return cls.value


def attempt_of(batch: Batch, size: int = 10, **fields: Any) -> Attempt:
    number = Counter.next()
    request = Request(number, f"r{number}", "m", context=Entry(size), **fields)
    made = Attempt(number, 1, request, ENGINE, "m", batch, 1, 0)
    batch.attempts.append(made)
    return made


def batch_of(*sizes: int, atomic: bool = False) -> Batch:
    batch = Batch(f"b{Counter.next()}", ENGINE, "m", atomic, "size", 0)
    for size in sizes:
        attempt_of(batch, size)
    return batch


def ids(batch: Batch) -> list[int]:
    return [attempt.dispatch_id for attempt in batch.attempts]


class Stream:
    """What the session wrote, one message per turn of the writer."""

    def __init__(self, relay: Relay | None = None) -> None:
        self.messages: list[pb.ConnectResponse] = []
        self.closed: list[Any] = []
        self.session = AgentSession(
            settings=NodePortSettings(max_message_bytes=1 << 20),
            identity=Identity("c", 1),
            clock=Clock(),
            tracer=Tracer(),
            relay=lambda: relay or Relay(),
            version="1",
            peer="ipv4:127.0.0.1:1",
            on_close=self.closed.append,
        )
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, data: bytes) -> None:
        self.messages.append(pb.ConnectResponse.FromString(data))
        await self.gate.wait()

    async def settle(self, *, welcome: bool = True) -> list[pb.ConnectResponse]:
        """Run the writer until nothing waits; the messages without the welcome."""
        if welcome:
            self.session.welcome([], [])
        writer = asyncio.create_task(self.session.run(self.write))
        for _ in range(20):
            await asyncio.sleep(0)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        return self.messages


def items(message: pb.ConnectResponse) -> list[int]:
    return [item.dispatch_id for batch in message.batches for item in batch.items]


async def test_all_that_waits_goes_into_one_message() -> None:
    stream = Stream()
    one, two = batch_of(10, 10), batch_of(10)
    stream.session.dispatch(one)
    stream.session.acknowledge(2)
    stream.session.dispatch(two)
    stream.session.acknowledge(1)
    stream.session.cancel([1, 2], Reason.PREEMPTED)
    stream.session.ping()
    (message,) = await stream.settle()
    assert message.welcome.cluster_id == "c"
    assert message.results_acked == 3
    assert [batch.batch_id for batch in message.batches] == [one.batch_id, two.batch_id]
    assert items(message) == ids(one) + ids(two)
    (cancel,) = message.cancels
    assert (list(cancel.dispatch_ids), cancel.reason) == ([1, 2], Reason.PREEMPTED)
    assert message.ping.nonce == 1
    assert message.batches[0].trace.traceparent == one.batch_id


async def test_acknowledgements_ride_on_other_messages() -> None:
    stream = Stream()
    await stream.settle()
    stream.session.acknowledge(3)
    assert len(await stream.settle(welcome=False)) == 1
    stream.session.dispatch(batch_of(10))
    assert [m.results_acked for m in await stream.settle(welcome=False)] == [0, 3]
    stream.session.acknowledge(ACKS_AT_ONCE)
    *_, last = await stream.settle(welcome=False)
    assert last.results_acked == 3 + ACKS_AT_ONCE


async def test_acknowledgements_that_nothing_takes_along_leave_by_themselves() -> None:
    stream = Stream()
    await stream.settle()
    stream.session.acknowledge(3)
    written: asyncio.Queue[bytes] = asyncio.Queue()
    writer = asyncio.create_task(stream.session.run(written.put))
    async with asyncio.timeout(5):
        message = pb.ConnectResponse.FromString(await written.get())
    writer.cancel()
    assert message.results_acked == 3


async def test_an_agent_that_leaves_is_told_at_once_that_its_results_came() -> None:
    stream = Stream()
    await stream.settle()
    stream.session.acknowledge(1)
    stream.session.drain(DrainNode("n1", 1, NEVER, terminate=True, reason=""))
    _, message = await stream.settle(welcome=False)
    assert (message.drain.terminate, message.results_acked) == (True, 1)
    stream.session.acknowledge(1)
    *_, message = await stream.settle(welcome=False)
    assert message.results_acked == 2


async def test_nothing_but_a_goodbye_leaves_before_the_welcome() -> None:
    stream = Stream()
    stream.session.acknowledge(1)
    assert await stream.settle(welcome=False) == []
    stream.session.close(CloseSession("n1", 1, Reason.NODE_ID_IN_USE, "taken", reconnect=False))
    (message,) = await stream.settle(welcome=False)
    assert message.goodbye.error.message == "taken"


async def test_what_gathers_during_a_write_shares_the_next_message() -> None:
    stream = Stream()
    stream.gate.clear()
    stream.session.welcome([], [])
    writer = asyncio.create_task(stream.session.run(stream.write))
    await asyncio.sleep(0)
    batches = [batch_of(10) for _ in range(3)]
    for batch in batches:
        stream.session.dispatch(batch)
        await asyncio.sleep(0)
    assert len(stream.messages) == 1
    stream.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert [items(message) for message in stream.messages] == [[], list(chain(*map(ids, batches)))]
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)


async def test_message_holds_256_items_at_most() -> None:
    stream = Stream()
    batch = batch_of(*[10] * 300)
    stream.session.dispatch(batch)
    messages = await stream.settle()
    assert [len(items(message)) for message in messages] == [256, 44]
    assert list(chain(*map(items, messages))) == ids(batch)
    assert {message.batches[0].batch_id for message in messages} == {batch.batch_id}


async def test_message_holds_64_kib_unless_one_item_is_larger() -> None:
    stream = Stream()
    stream.session.dispatch(batch_of(30_000, 30_000, 30_000, 200_000, 10, 10))
    messages = await stream.settle()
    assert [len(items(message)) for message in messages] == [2, 1, 1, 2]


async def test_atomic_batch_is_never_cut() -> None:
    stream = Stream()
    small, large = batch_of(10), batch_of(*[30_000] * 5, atomic=True)
    stream.session.dispatch(small)
    stream.session.dispatch(large)
    messages = await stream.settle()
    assert [items(message) for message in messages] == [ids(small), ids(large)]
    assert messages[1].batches[0].atomic


async def test_atomic_batch_that_fits_into_no_message_is_cut_after_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stream()
    batch = batch_of(*[400_000] * 4, atomic=True)  # the session's limit is 1 MiB
    stream.session.dispatch(batch)
    messages = await stream.settle()
    assert list(chain(*map(items, messages))) == ids(batch)
    assert len(messages) > 1
    assert "is cut" in caplog.text


async def test_cancel_waits_for_the_items_before_it() -> None:
    stream = Stream()
    batch = batch_of(60_000, 60_000)
    stream.session.dispatch(batch)
    stream.session.cancel([batch.attempts[1].dispatch_id], Reason.REVOKED)
    first, second = await stream.settle()
    assert (len(first.cancels), len(second.cancels)) == (0, 1)
    assert items(second) == [batch.attempts[1].dispatch_id]


async def test_batch_after_a_drain_stays_behind_it() -> None:
    stream = Stream()
    before, after = batch_of(10), batch_of(10)
    stream.session.dispatch(before)
    stream.session.drain(DrainNode("n1", 1, 5 * SECOND, terminate=False, reason="upgrade"))
    stream.session.dispatch(after)
    first, second = await stream.settle()
    assert (items(first), items(second)) == (ids(before), ids(after))
    assert first.drain == pb.Drain(grace={"seconds": 5}, reason="upgrade")
    assert not second.HasField("drain")


async def test_drain_without_limit_names_no_grace() -> None:
    stream = Stream()
    stream.session.drain(DrainNode("n1", 1, NEVER, terminate=True, reason=""))
    (message,) = await stream.settle()
    assert message.HasField("drain")
    assert not message.drain.HasField("grace")
    assert stream.session.drained


async def test_goodbye_is_last_and_said_once() -> None:
    stream = Stream()
    stream.session.welcome([], [])
    stream.session.dispatch(batch_of(10))
    stream.session.acknowledge(4)
    stream.session.close(CloseSession("n1", 1, Reason.NODE_LOST, "silent", reconnect=True))
    stream.session.close(CloseSession("n1", 1, Reason.INTERNAL, "other", reconnect=False))
    async with asyncio.timeout(5):
        await stream.session.run(stream.write)  # ends by itself
    (message,) = stream.messages
    assert message.goodbye.error.reason == Reason.NODE_LOST
    assert message.goodbye.reconnect_after.nanos == 200_000_000
    assert message.results_acked == 4
    assert not message.batches
    assert len(stream.closed) == 1


async def test_welcome_names_the_offsets_of_adopted_items() -> None:
    relay = Relay()
    output = Output(77, None)
    relay.open(5, output, None, sole=True)
    relay.lanes[5].accept(0, 0, 0, 12, 3)
    relay.lanes[5].accept(1, 16, 0, 4, 1)
    stream = Stream(relay)
    stream.session.welcome([8], [5, 6])  # 6 does not stream
    (message,) = await stream.settle(welcome=False)
    assert list(message.welcome.abandon_dispatch_ids) == [8]
    (point,) = message.welcome.resume_points
    assert point.dispatch_id == 5
    found = [(o.choice_index, o.channel, o.offset) for o in point.offsets]
    assert found == [(0, 0, 12), (1, 16, 4)]


async def test_pong_tells_round_trip_and_clock_offset() -> None:
    stream, clock = Stream(), Clock()
    stream.session.ping()
    await stream.settle()
    sent = clock.now()
    pong = pb.Pong(nonce=1)
    pong.receive_time.CopyFrom(clock.timestamp(sent + 3 * SECOND))
    stream.session.take_pong(pong, sent + SECOND // 5)
    assert stream.session.round_trip_s == pytest.approx(0.2, abs=0.1)
    assert stream.session.clock_offset_us == pytest.approx(2_900_000, abs=100_000)
    stream.session.take_pong(pb.Pong(nonce=99), sent + 9 * SECOND)  # of no ping
    assert stream.session.round_trip_s == pytest.approx(0.2, abs=0.1)


# Items.


def packed(attempt: Attempt, now: int = 0) -> wire_pb2.PackedDispatchItem:
    return wire_pb2.PackedDispatchItem.FromString(ItemWriter(Tracer()).write(attempt, now))


def test_item_says_what_was_decided() -> None:
    attempt = attempt_of(
        batch_of(), tenant="t", priority=9, stream=True, deadline=5 * SECOND,
        request_class=RequestClass.JOB,
    )  # fmt: skip
    attempt.inputs, attempt.output_id, attempt.number = 3, 88, 2
    item = packed(attempt, now=SECOND + 1)
    assert (item.dispatch_id, item.attempt, item.output_id) == (attempt.dispatch_id, 2, 88)
    assert item.request == attempt.request.context.request_bytes
    assert (item.request_class, item.priority, item.tenant) == (2, 9, "t")
    assert (item.remaining.seconds, item.remaining.nanos) == (3, 999_999_999)
    assert (item.charge.inputs, item.charge.tokens) == (3, 0)
    assert item.trace.tracestate == "k=v"
    assert item.stream
    assert item.max_tokens == 0
    assert item.cookie == b"\x01\x02\x09t"
    assert not item.HasField("continuation")


def test_items_of_one_writer_say_what_each_would_alone() -> None:
    batch, writer = batch_of(), ItemWriter(Tracer())
    attempts = [
        attempt_of(batch, **fields)
        for fields in (
            {}, {}, {"tenant": "a"}, {"tenant": "b"}, {"priority": 2}, {"stream": True},
            {"deadline": SECOND}, {"deadline": 2 * SECOND}, {"request_class": RequestClass.JOB},
            {},
        )
    ]  # fmt: skip
    attempts[1].inputs = attempts[4].number = 7
    attempts[2].output_id = 5
    for attempt in attempts:
        item = wire_pb2.PackedDispatchItem.FromString(writer.write(attempt, 0))
        assert item == packed(attempt)
        assert item.dispatch_id == attempt.dispatch_id


def test_no_deadline_is_absent_and_a_missed_one_is_zero() -> None:
    assert not packed(attempt_of(batch_of())).HasField("remaining")
    late = packed(attempt_of(batch_of(), deadline=SECOND), now=2 * SECOND)
    assert late.HasField("remaining")
    assert (late.remaining.seconds, late.remaining.nanos) == (0, 0)


def test_continued_item_brings_what_the_client_has() -> None:
    attempt = attempt_of(batch_of(), stream=True)
    output = Output(1, None)
    output.offsets[0] = 4
    output.tokens = 2
    attempt.request.output, attempt.request.continuing = output, True
    assert packed(attempt).continuation == pb.Continuation(
        text="said", reasoning="thought", token_ids=[4, 2], output_tokens=2
    )


def test_item_whose_request_has_ended_is_sent_without_it() -> None:
    """It counts as sent, and its cancel is right behind."""
    attempt = attempt_of(batch_of())
    attempt.request.context = None
    item = packed(attempt)
    assert (item.dispatch_id, item.request) == (attempt.dispatch_id, b"")


def test_item_that_cannot_be_built_is_sent_empty(caplog: pytest.LogCaptureFixture) -> None:
    attempt = attempt_of(batch_of())
    attempt.request.context = object()
    assert packed(attempt) == wire_pb2.PackedDispatchItem(dispatch_id=attempt.dispatch_id)
    assert "is sent empty" in caplog.text


def test_cookie_stays_within_its_limit() -> None:
    assert packed(attempt_of(batch_of(), tenant="t" * 999)).cookie == b"\x01\x01\x05"
