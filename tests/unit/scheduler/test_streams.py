"""What waits for a client's stream, and the order in which it leaves."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.rpc.deltas import MAX_EXTRAS, MAX_ITEMS, Deltas
from scheduler_service.rpc.streams import MultiplexWriter, SingleWriter

Response = scheduler_service_pb2.MultiplexResponse
RESULT = inference_pb2.InferenceResult(request_id="r").SerializeToString()


class Reader:
    """A client that takes a message when it is told to."""

    def __init__(self, kind: Any = Response, *, eager: bool = True) -> None:
        self.messages: list[Any] = []
        self._kind = kind
        self._may = asyncio.Semaphore(0)
        self._eager = eager

    def allow(self, count: int = 1) -> None:
        for _ in range(count):
            self._may.release()

    async def write(self, data: bytes) -> None:
        if not self._eager:
            await self._may.acquire()
        self.messages.append(self._kind.FromString(data))


async def written(writer: MultiplexWriter) -> list[Any]:
    reader = Reader()
    writer.close()
    await writer.run(reader.write)
    return reader.messages


def taken(deltas: Deltas, **options: bool) -> types_pb2.TokenDeltas:
    columns = types_pb2.TokenDeltas()
    deltas.take(columns, **options)
    return columns


# Deltas.


def test_adjacent_deltas_of_a_channel_merge() -> None:
    deltas = Deltas()
    deltas.add(1, 0, 0, 5, "ab", 1, ())
    deltas.add(1, 0, 0, 7, "cd", 2, ())
    deltas.add(2, 0, 0, 0, "x", 0, ())
    columns = taken(deltas)
    assert list(columns.ids) == [1, 2]
    assert list(columns.offsets) == [5, 0]
    assert list(columns.texts) == ["abcd", "x"]
    assert list(columns.token_counts) == [3, 0]
    assert not deltas


def test_sums_of_tokens_that_no_column_holds_are_cut_down() -> None:
    """Whatever its node says, a client's stream is not ended for it."""
    deltas = Deltas()
    most = (1 << 32) - 1
    for offset in range(2):
        deltas.add(1, 0, 0, offset, "a", most, ())
    deltas.add(2, 0, 0, 0, "x", 7, ())
    assert list(taken(deltas).token_counts) == [most, 7]


def test_columns_that_say_nothing_are_left_out() -> None:
    deltas = Deltas()
    deltas.add(1, 0, 0, 0, "ab", 0, ())
    columns = taken(deltas)
    names = {descriptor.name for descriptor, _ in columns.ListFields()}
    assert names == {"ids", "offsets", "texts"}
    deltas.add(1, 0, 0, 2, "", 0, [7])
    deltas.add(2, 1, 16, 0, "", 0, ())
    columns = taken(deltas, with_ids=False)
    assert not columns.ids
    assert not columns.texts
    assert list(columns.token_id_counts) == [1, 0]
    assert list(columns.token_ids) == [7]
    assert list(columns.choice_indexes) == [0, 1]
    assert list(columns.channels) == [0, 16]


def test_message_takes_whole_calls_oldest_first_until_it_is_full() -> None:
    deltas = Deltas()
    for call_id in range(1, 601):
        deltas.add(call_id, 0, 0, 0, "x", 0, ())
    sizes = []
    while deltas:
        columns = taken(deltas)
        assert len(columns.ids) <= MAX_ITEMS
        sizes.append((columns.ids[0], len(columns.ids)))
    assert sizes == [(1, 256), (257, 256), (513, 88)]
    deltas.add(1, 0, 0, 0, "x" * 70_000, 0, ())
    deltas.add(2, 0, 0, 0, "y", 0, ())
    assert list(taken(deltas).ids) == [1]
    assert 2 in deltas


def test_extras_are_bounded_and_go_before_the_deltas_of_their_call() -> None:
    deltas = Deltas()
    deltas.add(1, 0, 0, 0, "x", 0, ())
    for _ in range(MAX_EXTRAS + 10):
        deltas.add_extra(1, types_pb2.DeltaExtra(id=1))
    first = taken(deltas)
    assert (len(first.extras), len(first.ids)) == (MAX_EXTRAS, 0)
    second = taken(deltas)
    assert (len(second.extras), list(second.ids)) == (10, [1])
    assert not deltas


def test_dropping_a_call_leaves_the_others() -> None:
    deltas = Deltas()
    deltas.add(1, 0, 0, 0, "x", 0, ())
    deltas.add_extra(1, types_pb2.DeltaExtra(id=1))
    deltas.add(2, 0, 0, 0, "y", 0, ())
    deltas.drop(1)
    deltas.drop(99)
    columns = taken(deltas)
    assert list(columns.ids) == [2]
    assert not columns.extras


def test_what_waits_is_counted_until_it_is_taken() -> None:
    deltas = Deltas()
    assert deltas.add(1, 0, 0, 0, "x" * 100, 0, ()) == 0
    before = deltas.add(1, 0, 1, 0, "", 0, [1, 2])
    assert before >= 100
    assert deltas.add(1, 0, 0, 100, "x", 0, ()) > before + 8
    taken(deltas)
    assert deltas.add(1, 0, 0, 101, "x", 0, ()) == 0


def test_deltas_leave_alike_whether_or_not_they_were_sorted_on_the_way() -> None:
    chance, asis, sorted_ = random.Random(3), Deltas(), Deltas(most=-1)
    for _ in range(300):
        for _ in range(chance.choice([1, 5, 40, 300])):
            call_id, choice = chance.randrange(1, 400), int(chance.random() < 0.1)
            text = "x" * chance.choice([0, 3, 3, 900])
            ids = [1, 2] if chance.random() < 0.01 else []
            for deltas in (asis, sorted_):
                deltas.add(call_id, choice, 0, 7, text, 1, ids)
        gone = chance.randrange(1, 4_000)
        for deltas in (asis, sorted_):
            deltas.drop(gone)
        while sorted_:
            assert taken(asis) == taken(sorted_)
        assert not asis


def test_slow_readers_limit_is_kept_exactly_however_small_it_is() -> None:
    deltas = Deltas(most=100)
    assert deltas.add(1, 0, 0, 0, "x" * 90, 0, ()) <= 100
    assert deltas.add(2, 0, 0, 0, "y" * 90, 0, ()) == 0  # what waits of another is not its fault
    assert deltas.add(3, 0, 0, 0, "z", 0, ()) == 0
    assert deltas.add(1, 0, 0, 90, "x", 0, ()) == 106


# The writer of a Multiplex stream.


def accepted(call_id: int) -> scheduler_service_pb2.Accepted:
    return scheduler_service_pb2.Accepted(call_id=call_id)


def started(call_id: int, **fields: Any) -> scheduler_service_pb2.Started:
    return scheduler_service_pb2.Started(call_id=call_id, **fields)


def seen(messages: list[Any], call_id: int) -> list[str]:
    """What one call saw, in the order that the protocol gives to the parts of a message."""
    order = []
    for message in messages:
        order += ["accepted" for part in message.accepted if part.call_id == call_id]
        order += ["started" for part in message.started if part.call_id == call_id]
        order += ["delta" for part in message.deltas.ids if part == call_id]
        order += ["result" for part in message.results if part.call_id == call_id]
    return order


async def test_all_that_waits_leaves_in_one_message() -> None:
    writer = MultiplexWriter(1000, 1000)
    writer.opened(scheduler_service_pb2.MultiplexOpened(stream_id="s"), 9)
    for call_id in range(1, 51):
        writer.accepted(accepted(call_id))
        writer.started(started(call_id))
        writer.delta(call_id, 0, 0, 0, "x", 1, ())
        writer.result(call_id, RESULT)
    (message,) = await written(writer)
    assert message.opened.stream_id == "s"
    assert message.max_outstanding == 9
    assert [len(part) for part in (message.accepted, message.started, message.results)] == [50] * 3
    assert seen([message], 7) == ["accepted", "started", "delta", "result"]


async def test_no_result_overtakes_its_text_and_none_waits_for_anothers() -> None:
    """Behind 600 calls with output, one without any has its result with the first message."""
    writer = MultiplexWriter(1000, 1000)
    for call_id in range(1, 601):
        writer.accepted(accepted(call_id))
        writer.started(started(call_id))
        writer.delta(call_id, 0, 0, 0, "x", 1, ())
    writer.result(600, RESULT)
    writer.result(1, RESULT)
    writer.result(1000, RESULT)
    messages = await written(writer)
    assert [[r.call_id for r in message.results] for message in messages] == [[1, 1000], [], [600]]
    for call_id in (1, 600):
        assert seen(messages, call_id) == ["accepted", "started", "delta", "result"]


async def test_results_of_a_message_are_bounded_in_number_and_bytes() -> None:
    writer = MultiplexWriter(1000, 1000)
    for call_id in range(1, 301):
        writer.result(call_id, RESULT)
    large = inference_pb2.InferenceResult(degrade_reason="x" * 60_000).SerializeToString()
    for call_id in range(301, 305):
        writer.result(call_id, large)
    messages = await written(writer)
    assert [len(message.results) for message in messages] == [256, 45, 1, 1, 1]
    assert [r.call_id for m in messages for r in m.results] == list(range(1, 305))


async def test_voided_output_is_not_sent() -> None:
    writer = MultiplexWriter(1000, 1000)
    writer.delta(1, 0, 0, 0, "old", 1, ())
    writer.started(started(1, restarted=True))
    writer.delta(1, 0, 0, 0, "new", 1, ())
    (message,) = await written(writer)
    assert list(message.deltas.texts) == ["new"]


async def test_slow_reader_is_told_by_call() -> None:
    writer = MultiplexWriter(100, 1000)
    assert writer.delta(1, 0, 0, 0, "x" * 5000, 1, ()), "however much comes at once"
    assert not writer.delta(1, 0, 0, 5000, "x", 1, ())
    assert writer.delta(2, 0, 0, 0, "x", 1, ())
    assert not writer.extra(types_pb2.DeltaExtra(id=1))
    writer.drop(1)
    assert writer.extra(types_pb2.DeltaExtra(id=1))


async def test_what_gathers_while_a_write_is_awaited_leaves_together() -> None:
    reader = Reader(eager=False)
    writer = MultiplexWriter(1000, 1000)
    running = asyncio.create_task(writer.run(reader.write))
    writer.delta(1, 0, 0, 0, "a", 1, ())
    await asyncio.sleep(0)
    for offset, text in enumerate("bcd", 1):
        writer.delta(1, 0, 0, offset, text, 1, ())
    writer.result(1, RESULT)
    writer.going_away()
    writer.close()
    reader.allow(2)
    await running
    assert [list(message.deltas.texts) for message in reader.messages] == [["a"], ["bcd"]]
    assert reader.messages[1].going_away
    assert writer.written == 2


async def test_room_is_given_when_results_are_read() -> None:
    reader = Reader(eager=False)
    writer = MultiplexWriter(1000, 3)
    running = asyncio.create_task(writer.run(reader.write))
    for call_id in range(1, 400):
        writer.result(call_id, RESULT)
    waiting = asyncio.create_task(writer.room())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    reader.allow(1)
    await waiting
    await writer.room()  # at once
    writer.close()
    reader.allow(9)
    await running


# The writer of a GenerateStream.


async def single(writer: SingleWriter, error: types_pb2.Error | None = None) -> list[Any]:
    reader = Reader(scheduler_service_pb2.GenerateStreamResponse)
    writer.finish(RESULT, error)
    await writer.run(reader.write)
    return reader.messages


def never() -> None:
    pytest.fail("it is not slow")


async def test_one_event_a_message_in_order() -> None:
    writer = SingleWriter(1000, never)
    writer.accepted(scheduler_service_pb2.Accepted())
    writer.started(scheduler_service_pb2.Started(attempt=1))
    writer.delta(0, 0, 0, "ab", 1, ())
    writer.started(scheduler_service_pb2.Started(attempt=2))
    writer.delta(0, 0, 2, "cd", 1, ())
    writer.extra(types_pb2.DeltaExtra(id=77, usage={"output_tokens": 2}))
    writer.delta(0, 0, 4, "ef", 1, ())
    messages = await single(writer)
    kinds = [message.WhichOneof("event") for message in messages]
    assert kinds == ["accepted", "started", "deltas", "started", "deltas", "result"]
    assert list(messages[4].deltas.texts) == ["cdef"]
    assert messages[4].deltas.extras[0].id == 0
    assert not messages[4].deltas.ids
    assert messages[5].result.request_id == "r"


async def test_restart_voids_what_was_not_sent() -> None:
    writer = SingleWriter(1000, never)
    writer.delta(0, 0, 0, "old", 1, ())
    writer.started(scheduler_service_pb2.Started(restarted=True))
    writer.delta(0, 0, 0, "new", 1, ())
    messages = await single(writer)
    assert [message.WhichOneof("event") for message in messages] == ["started", "deltas", "result"]
    assert list(messages[1].deltas.texts) == ["new"]


async def test_slow_reader_is_cut_off_once() -> None:
    told: list[bool] = []
    writer = SingleWriter(100, lambda: told.append(True))
    writer.delta(0, 0, 0, "x" * 5000, 1, ())
    for offset in range(5000, 5010):
        writer.delta(0, 0, offset, "x", 1, ())
    writer.extra(types_pb2.DeltaExtra())
    assert told == [True]
    (message,) = await single(writer, types_pb2.Error(code=1))
    assert message.WhichOneof("event") == "result"
