"""Many calls share one stream: packing, order, cancelling, and streams that end under them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from batchyard import AsyncClient, errors
from batchyard.v1 import CallResult, Limits, MultiplexOpened, TokenDeltas
from tests.integration.client.scripted_scheduler import (
    ScriptedScheduler,
    ScriptedStream,
    answer,
)


def hold(stream: ScriptedStream, call: Any) -> None:
    """Answers nothing."""


async def test_many_calls_leave_in_few_messages(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address) as client:
        results = await asyncio.gather(*(client.generate(f"p{i}", model="m") for i in range(500)))
    assert [result.text for result in results] == [f"p{i}" for i in range(500)]
    (stream,) = scheduler.streams
    with_calls = [message for message in stream.messages if message.calls]
    assert len(with_calls) <= 4
    assert max(len(message.calls) for message in with_calls) == 256
    assert stream.messages[0].HasField("open")
    assert stream.messages[0].open.client_version.startswith("python/")
    assert not any(message.HasField("open") for message in stream.messages[1:])


async def test_a_message_stays_near_64_kib(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address) as client:
        await asyncio.gather(*(client.generate("x" * 10_000, model="m") for _ in range(40)))
        await client.generate("y" * 200_000, model="m")  # alone, it may be larger
    (stream,) = scheduler.streams
    assert max(m.ByteSize() for m in stream.messages if len(m.calls) > 1) <= 64 * 1024 + 100


async def test_answers_may_come_in_any_order(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = hold
    async with AsyncClient(scheduler.address) as client:
        tasks = [asyncio.create_task(client.generate(f"p{i}")) for i in range(20)]
        await scheduler.until(lambda: len(scheduler.calls) == 20)
        for call in reversed(scheduler.calls):
            scheduler.streams[0].result(call, answer(call.request))
        assert [result.text for result in await asyncio.gather(*tasks)] == [
            f"p{i}" for i in range(20)
        ]


async def test_window_of_the_server_is_kept(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = hold
    scheduler.max_outstanding = 3
    async with AsyncClient(scheduler.address) as client:
        first = asyncio.create_task(client.generate("first"))
        await scheduler.until(lambda: scheduler.calls)
        scheduler.streams[0].result(scheduler.calls[0], answer(scheduler.calls[0].request))
        await first  # the limit has been read by now
        tasks = [asyncio.create_task(client.generate(f"p{i}")) for i in range(7)]
        answered = 1
        while answered < 8:
            await scheduler.until(lambda: len(scheduler.calls) > answered)  # noqa: B023
            assert len(scheduler.calls) - answered <= 3
            call = scheduler.calls[answered]
            scheduler.streams[0].result(call, answer(call.request))
            answered += 1
        await asyncio.gather(*tasks)


async def test_cancelled_task_cancels_on_the_server(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = hold
    async with AsyncClient(scheduler.address) as client:
        gone = asyncio.create_task(client.generate("gone"))
        kept = asyncio.create_task(client.generate("kept"))
        await scheduler.until(lambda: len(scheduler.calls) == 2)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        (stream,) = scheduler.streams
        await scheduler.until(lambda: stream.cancelled == [stream.calls[0].call_id])
        # An answer that crosses the cancel is dropped and hurts nobody.
        stream.result(stream.calls[0], answer(stream.calls[0].request))
        stream.result(stream.calls[1], answer(stream.calls[1].request))
        assert (await kept).text == "kept"


async def test_call_cancelled_before_it_left_is_never_sent(scheduler: ScriptedScheduler) -> None:
    scheduler.max_outstanding = 1
    async with AsyncClient(scheduler.address) as client:
        await client.generate("first")  # the limit is known now
        scheduler.on_call = hold
        runs = asyncio.create_task(client.generate("runs"))
        gone = asyncio.create_task(client.generate("gone"))
        await scheduler.until(lambda: len(scheduler.calls) == 2)
        gone.cancel()
        scheduler.on_call = lambda stream, call: stream.result(call, answer(call.request))
        scheduler.streams[0].result(scheduler.calls[1], answer(scheduler.calls[1].request))
        await runs
        assert (await client.generate("kept")).text == "kept"
    assert [call.request.text.prompt for call in scheduler.calls] == ["first", "runs", "kept"]
    assert scheduler.streams[0].cancelled == []


async def test_answer_to_nobody_does_not_stop_the_reader(scheduler: ScriptedScheduler) -> None:
    def twice(stream: ScriptedStream, call: Any) -> None:
        stream.send(results=[CallResult(call_id=999_999, result=answer(call.request))])
        stream.send(deltas=TokenDeltas(ids=[888], offsets=[5], texts=["x"]))
        stream.result(call, answer(call.request))
        stream.result(call, answer(call.request))

    scheduler.on_call = twice
    async with AsyncClient(scheduler.address) as client:
        for _ in range(3):
            assert (await client.generate("p")).text == "p"
    assert len(scheduler.streams) == 1


async def test_close_cancels_what_is_in_flight_and_says_good_bye(
    scheduler: ScriptedScheduler,
) -> None:
    scheduler.on_call = hold
    client = AsyncClient(scheduler.address)
    task = asyncio.create_task(client.generate("p"))
    await scheduler.until(lambda: scheduler.calls)
    await client.close()
    with pytest.raises(errors.Cancelled, match="client was closed"):
        await task
    (stream,) = scheduler.streams
    assert stream.cancelled == [stream.calls[0].call_id]
    assert stream.done
    with pytest.raises(RuntimeError, match="closed"):
        await client.generate("p")
    await client.close()


async def test_nothing_is_left_running_after_close(scheduler: ScriptedScheduler) -> None:
    before = asyncio.all_tasks()
    async with AsyncClient(scheduler.address) as client:
        await asyncio.gather(*(client.generate("p", timeout="1h") for _ in range(20)))
        async for _ in client.stream("s"):
            break
        ours = [t for t in asyncio.all_tasks() - before if t.get_name().startswith("batchyard")]
        assert len(ours) == 2  # one reader, one writer
    left = [t for t in asyncio.all_tasks() - before if t.get_name().startswith("batchyard")]
    assert left == []


async def test_broken_stream_sends_unanswered_calls_again(scheduler: ScriptedScheduler) -> None:
    def first_stream_breaks(stream: ScriptedStream, call: Any) -> None:
        if stream is not scheduler.streams[0]:
            stream.result(call, answer(call.request))
        elif len(stream.calls) == 3:
            stream.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    scheduler.on_call = first_stream_breaks
    async with AsyncClient(scheduler.address) as client:
        await client.server_info()  # connected
        results = await asyncio.gather(*(client.generate(f"p{i}", timeout="60s") for i in range(3)))
    assert [result.text for result in results] == ["p0", "p1", "p2"]
    first, second = scheduler.streams
    assert [c.request.request_id for c in first.calls] == [
        c.request.request_id for c in second.calls
    ]
    assert all(call.HasField("detach_grace") for call in second.calls)
    assert all(call.request.timeout.seconds < 60 for call in second.calls)


async def test_stream_that_ends_early_counts_as_broken(scheduler: ScriptedScheduler) -> None:
    def end_first(stream: ScriptedStream, call: Any) -> None:
        if stream is scheduler.streams[0]:
            stream.end()
        else:
            stream.result(call, answer(call.request))

    scheduler.on_call = end_first
    async with AsyncClient(scheduler.address) as client:
        assert (await client.generate("p")).text == "p"


async def test_server_side_cancel_of_the_stream_counts_as_broken(
    scheduler: ScriptedScheduler,
) -> None:
    def cancel_first(stream: ScriptedStream, call: Any) -> None:
        if stream is scheduler.streams[0]:
            stream.abort(grpc.StatusCode.CANCELLED, "bye")
        else:
            stream.result(call, answer(call.request))

    scheduler.on_call = cancel_first
    async with AsyncClient(scheduler.address) as client:
        assert (await client.generate("p")).text == "p"


async def test_without_retries_a_break_is_an_error(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = lambda stream, _: stream.abort(grpc.StatusCode.UNAVAILABLE, "gone")
    async with AsyncClient(scheduler.address, retries=0) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.generate("p", request_id="mine")
    assert caught.value.request_id == "mine"
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
    assert not scheduler.calls[0].HasField("detach_grace")
    assert len(scheduler.streams) == 1


async def test_call_that_breaks_every_stream_gives_up(scheduler: ScriptedScheduler) -> None:
    """Behaviour 66: breaks and retries share one limit; they do not multiply."""
    scheduler.on_call = lambda stream, _: stream.abort(grpc.StatusCode.INTERNAL, "crash")
    async with AsyncClient(scheduler.address, retries=2) as client:
        with pytest.raises(errors.Unavailable, match="connection broke"):
            await client.generate("p")
    assert len(scheduler.streams) == 3


async def test_restarted_scheduler_gets_the_calls_again(scheduler: ScriptedScheduler) -> None:
    """Behaviour 73: back soon after the server is."""
    scheduler.on_call = hold
    async with AsyncClient(scheduler.address, reconnect_timeout="30s") as client:
        tasks = [asyncio.create_task(client.generate(f"p{i}")) for i in range(5)]
        await scheduler.until(lambda: len(scheduler.calls) == 5)
        port = int(scheduler.address.rpartition(":")[2])
        await scheduler.stop()
        late = asyncio.create_task(client.generate("late"))
        scheduler.on_call = lambda stream, call: stream.result(call, answer(call.request))
        await scheduler.listen(port)
        results = await asyncio.wait_for(asyncio.gather(*tasks, late), 10)
    assert [result.text for result in results] == ["p0", "p1", "p2", "p3", "p4", "late"]


async def test_outage_longer_than_the_limit_is_an_error(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = hold
    async with AsyncClient(scheduler.address, reconnect_timeout="200ms") as client:
        task = asyncio.create_task(client.generate("p"))
        await scheduler.until(lambda: scheduler.calls)
        await scheduler.stop()
        with pytest.raises(errors.Unavailable):
            await asyncio.wait_for(task, 10)


async def test_going_away_opens_a_new_stream_and_finishes_the_old(
    scheduler: ScriptedScheduler,
) -> None:
    scheduler.on_call = hold
    async with AsyncClient(scheduler.address) as client:
        old = asyncio.create_task(client.generate("old"))
        marker = asyncio.create_task(client.generate("marker"))
        await scheduler.until(lambda: len(scheduler.calls) == 2)
        first = scheduler.streams[0]
        first.send(going_away=True)
        first.result(first.calls[1], answer(first.calls[1].request))
        await marker  # messages come in order, so `going_away` has been read
        scheduler.on_call = lambda stream, call: stream.result(call, answer(call.request))
        assert (await client.generate("new")).text == "new"
        assert [call.request.text.prompt for call in scheduler.streams[1].calls] == ["new"]
        first.result(first.calls[0], answer(first.calls[0].request))
        assert (await old).text == "old"
        await scheduler.until(lambda: first.ended)
        assert first.done


async def test_refused_stream_fails_its_calls_at_once(scheduler: ScriptedScheduler) -> None:
    scheduler.refuse = (grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    async with AsyncClient(scheduler.address, api_key="secret") as client:
        with pytest.raises(errors.Unauthenticated, match="who are you"):
            await client.generate("p")
    assert len(scheduler.metadata) == 1
    assert scheduler.metadata[0]["authorization"] == "Bearer secret"


async def test_ragged_deltas_are_a_protocol_error(scheduler: ScriptedScheduler) -> None:
    def ragged(stream: ScriptedStream, call: Any) -> None:
        stream.send(deltas=TokenDeltas(ids=[call.call_id], offsets=[0, 1], texts=["a", "b"]))

    scheduler.on_call = ragged
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(errors.ProtocolError):
            await client.stream("p").wait()


async def test_request_above_the_message_limit_is_refused_here(
    scheduler: ScriptedScheduler,
) -> None:
    scheduler.opened = MultiplexOpened(limits=Limits(max_message_bytes=10_000))
    async with AsyncClient(scheduler.address) as client:
        await client.generate("small")
        with pytest.raises(errors.InvalidRequest) as caught:
            await client.generate("x" * 20_000)
        assert caught.value.reason == "REQUEST_TOO_LARGE"
        assert (await client.generate("small")).text == "small"
    assert len(scheduler.streams) == 1


async def test_no_server_is_said_with_the_address() -> None:
    async with AsyncClient("127.0.0.1:1", retries=1) as client:
        with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1"):
            await client.generate("p")


async def test_client_belongs_to_its_loop(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address) as client:
        await client.generate("p")

        def elsewhere() -> None:
            asyncio.run(client.generate("p"))  # type: ignore[arg-type]

        with pytest.raises(RuntimeError, match="one event loop"):
            await asyncio.to_thread(elsewhere)
