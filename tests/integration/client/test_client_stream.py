"""Output as it comes: order, offsets, leaving, re-attaching and restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from batchyard import AsyncClient, StreamEvent, errors
from batchyard.v1 import DeltaExtra, Error, InferenceResult, TokenDeltas, Usage
from tests.integration.client.scripted_scheduler import (
    ScriptedScheduler,
    ScriptedStream,
    refusal,
)


def finished(call: Any, **fields: Any) -> InferenceResult:
    return InferenceResult(request_id=call.request.request_id, finish_reason=1, **fields)


def say(stream: ScriptedStream, call: Any, *pieces: str) -> None:
    """Accepts, starts, sends `pieces` and finishes."""
    stream.accept(call, queue_position=4)
    stream.start(call, node_id="n1", model="m", attempt=1)
    offset = 0
    for piece in pieces:
        stream.delta(call, offset, piece)
        offset += len(piece.encode())
    stream.result(call, finished(call, usage=Usage(output_tokens=len(pieces)), node_id="n1"))


async def texts(stream: Any) -> list[str]:
    return [event.text async for event in stream]


async def test_pieces_come_in_order_and_the_result_has_it_all(
    scheduler: ScriptedScheduler,
) -> None:
    """Behaviour 95: whole characters, joined text equal."""
    scheduler.on_call = lambda stream, call: say(stream, call, "Hello ", "你好 ", "😀")
    async with AsyncClient(scheduler.address) as client:
        stream = client.stream("p", model="m")
        with pytest.raises(RuntimeError, match="not ended"):
            stream.result  # noqa: B018
        assert await texts(stream) == ["Hello ", "你好 ", "😀"]
        assert stream.text == stream.result.text == "Hello 你好 😀"
        assert stream.result.usage.output_tokens == 3
        assert (stream.queue_position, stream.node_id, stream.model) == (4, "n1", "m")
        assert scheduler.calls[0].stream


async def test_many_streams_are_kept_apart(scheduler: ScriptedScheduler) -> None:
    def interleave(stream: ScriptedStream, call: Any) -> None:
        if len(stream.calls) < 20:
            return
        for step in range(5):
            stream.send(
                deltas=TokenDeltas(
                    ids=[c.call_id for c in stream.calls],
                    offsets=[2 * step] * 20,
                    texts=[f"{i:02}" for i in range(20)],
                )
            )
        for other in stream.calls:
            stream.result(other, finished(other))

    def once(stream: ScriptedStream, call: Any) -> None:
        if call is stream.calls[-1]:
            interleave(stream, call)

    scheduler.on_call = once
    async with AsyncClient(scheduler.address) as client:
        results = await asyncio.gather(*(client.stream(f"p{i}").wait() for i in range(20)))
    assert [result.text for result in results] == [f"{i:02}" * 5 for i in range(20)]


async def test_leaving_the_loop_cancels(scheduler: ScriptedScheduler) -> None:
    def endless(stream: ScriptedStream, call: Any) -> None:
        stream.start(call)
        stream.delta(call, 0, "one")

    scheduler.on_call = endless
    async with AsyncClient(scheduler.address) as client:
        stream = client.stream("p")
        async for event in stream:
            assert event.text == "one"
            break
        (wire,) = scheduler.streams
        await scheduler.until(lambda: wire.cancelled == [wire.calls[0].call_id])
        assert await texts(stream) == []
        with pytest.raises(errors.Cancelled) as caught:
            stream.result  # noqa: B018
        assert caught.value.partial_text == "one"


async def test_error_in_the_loop_and_leaving_the_block_cancel(
    scheduler: ScriptedScheduler,
) -> None:
    scheduler.on_call = lambda stream, call: stream.delta(call, 0, "one")
    async with AsyncClient(scheduler.address) as client:

        async def stumble() -> None:
            async for _ in client.stream("a"):
                raise KeyError

        with pytest.raises(KeyError):
            await stumble()
        async with client.stream("b") as held:
            await anext(held)
        (wire,) = scheduler.streams
        await scheduler.until(lambda: len(wire.cancelled) == 2)


async def test_cancelled_task_cancels_its_stream(scheduler: ScriptedScheduler) -> None:
    """Behaviour 39: also before the first token."""
    scheduler.on_call = lambda stream, call: stream.accept(call)
    async with AsyncClient(scheduler.address) as client:
        task = asyncio.create_task(texts(client.stream("p")))
        await scheduler.until(lambda: scheduler.calls)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (wire,) = scheduler.streams
        await scheduler.until(lambda: wire.cancelled)


async def test_forgotten_stream_is_cancelled(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = lambda stream, call: stream.delta(call, 0, "one")
    async with AsyncClient(scheduler.address) as client:
        stream = client.stream("p")
        await anext(stream)
        del stream
        await scheduler.until(lambda: scheduler.streams[0].cancelled)


async def test_unused_stream_sends_nothing(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address) as client:
        client.stream("never")
        async with client.stream("never"):
            pass
        await client.generate("p")
    assert [call.request.text.prompt for call in scheduler.calls] == ["p"]


async def test_break_of_the_connection_goes_on_where_it_was(
    scheduler: ScriptedScheduler,
) -> None:
    """Behaviour 56: nothing doubled, nothing missing."""

    def script(stream: ScriptedStream, call: Any) -> None:
        if stream is scheduler.streams[0]:
            stream.start(call, output_id=7)
            stream.delta(call, 0, "abc")
        else:
            (point,) = call.attach.offsets
            assert (call.attach.output_id, point.offset) == (7, 3)
            stream.accept(call, attached=True)
            stream.start(call, output_id=7)
            stream.delta(call, 2, "cdef")  # overlaps by one
            stream.result(call, finished(call))

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        stream = client.stream("p")
        seen = [(await anext(stream)).text]
        scheduler.streams[0].abort(grpc.StatusCode.UNAVAILABLE, "gone")
        seen += await texts(stream)
    assert seen == ["abc", "def"]
    assert stream.result.text == "abcdef"


async def restarted_after_abc(scheduler: ScriptedScheduler, **options: Any) -> Any:
    """A stream whose output starts anew after its consumer has seen "abc"."""

    def script(stream: ScriptedStream, call: Any) -> None:
        stream.start(call, output_id=1)
        stream.delta(call, 0, "abc")

    scheduler.on_call = script
    client = AsyncClient(scheduler.address)
    stream = client.stream("p", **options)
    assert (await anext(stream)).text == "abc"
    (wire,), (call,) = scheduler.streams, scheduler.calls
    wire.start(call, output_id=2, restarted=True, attempt=2)
    wire.delta(call, 0, "xy")
    wire.result(call, finished(call))
    return client, stream


async def test_second_consumer_of_a_stream_is_refused_and_the_first_goes_on(
    scheduler: ScriptedScheduler,
) -> None:
    """Only one of two would be woken, and the other wait for ever."""
    arrived = asyncio.Event()
    scheduler.on_call = lambda _stream, _call: arrived.set()
    async with AsyncClient(scheduler.address) as client:
        stream = client.stream("p")
        first = asyncio.create_task(anext(stream))
        await arrived.wait()
        async with asyncio.timeout(10):
            for second in (anext(stream), texts(stream)):
                with pytest.raises(RuntimeError, match="for one consumer"):
                    await second
        (wire,), (call,) = scheduler.streams, scheduler.calls
        say(wire, call, "abc")
        assert (await first).text == "abc"


@pytest.mark.parametrize("arrives", ["nothing", "an error that is tried again"])
async def test_cancel_from_elsewhere_ends_a_reader_that_waits(
    scheduler: ScriptedScheduler, arrives: str
) -> None:
    arrived = asyncio.Event()

    def script(stream: ScriptedStream, call: Any) -> None:
        if arrives != "nothing":
            error = Error(reason="ERROR_REASON_QUEUE_FULL", retryable=True)
            error.retry_after.FromSeconds(1)
            stream.result(call, refusal(call.request, error))
        arrived.set()

    scheduler.on_call = script
    retried = asyncio.Event()
    async with AsyncClient(scheduler.address, on_retry=lambda _: retried.set()) as client:
        stream = client.stream("p")
        reading = asyncio.create_task(texts(stream))
        await (arrived if arrives == "nothing" else retried).wait()
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="for one consumer"):
                await anext(stream)
            stream.cancel()
            assert await reading == []
        with pytest.raises(errors.Cancelled):
            await stream.wait()
    assert len(scheduler.calls) == 1, "it was sent again"


@pytest.mark.parametrize("options", [{"restarts": True}, {"resume": "restart"}])
async def test_restart_is_shown_to_who_asked_for_it(
    scheduler: ScriptedScheduler, options: dict[str, Any]
) -> None:
    client, stream = await restarted_after_abc(scheduler, **options)
    events: list[StreamEvent] = [event async for event in stream]
    assert [(event.restarted, event.text) for event in events] == [(True, ""), (False, "xy")]
    assert stream.text == stream.result.text == "xy"
    await client.close()


async def test_restart_is_hidden_from_who_said_so(scheduler: ScriptedScheduler) -> None:
    client, stream = await restarted_after_abc(scheduler, restarts=False)
    assert await texts(stream) == ["xy"]
    assert stream.result.text == "xy"
    await client.close()


async def test_restart_never_silently_repeats_text(scheduler: ScriptedScheduler) -> None:
    """Behaviour 56: a consumer that has seen text and did not opt in gets an error."""
    client, stream = await restarted_after_abc(scheduler)
    with pytest.raises(errors.StreamInterrupted, match="started anew"):
        await texts(stream)
    await client.close()


async def test_restart_before_anything_was_seen_is_invisible(
    scheduler: ScriptedScheduler,
) -> None:
    def script(stream: ScriptedStream, call: Any) -> None:
        stream.start(call, output_id=1)
        stream.delta(call, 0, "abc")
        stream.start(call, output_id=2, restarted=True)
        stream.delta(call, 0, "xy")
        stream.result(call, finished(call))

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        assert (await client.stream("p").wait()).text == "xy"


async def test_gap_is_an_error_and_cancels_only_that_call(scheduler: ScriptedScheduler) -> None:
    def script(stream: ScriptedStream, call: Any) -> None:
        if call.request.text.prompt == "gap":
            stream.delta(call, 0, "a")
            stream.delta(call, 5, "b")
        else:
            say(stream, call, "fine")

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        with pytest.raises(errors.ProtocolError, match="missing") as caught:
            await client.stream("gap", request_id="g").wait()
        assert caught.value.request_id == "g"
        assert caught.value.partial_text == "a"
        assert (await client.stream("ok").wait()).text == "fine"
        (wire,) = scheduler.streams
        assert wire.cancelled == [wire.calls[0].call_id]


async def test_failure_after_output_keeps_the_output(scheduler: ScriptedScheduler) -> None:
    """Behaviour 135: what had come is told with the error."""

    def script(stream: ScriptedStream, call: Any) -> None:
        stream.delta(call, 0, "half")
        error = Error(code=10, reason=43, message="the node was lost", retryable=True)  # type: ignore[arg-type]
        stream.result(call, refusal(call.request, error, finish_reason=8))

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        stream = client.stream("p")
        assert (await anext(stream)).text == "half"
        with pytest.raises(errors.StreamInterrupted) as caught:
            await anext(stream)
        assert caught.value.partial_text == stream.text == "half"
        with pytest.raises(errors.StreamInterrupted):
            await anext(stream)
    assert len(scheduler.calls) == 1  # ABORTED is never sent again


async def test_extras_come_before_the_deltas_of_their_message(
    scheduler: ScriptedScheduler,
) -> None:
    def script(stream: ScriptedStream, call: Any) -> None:
        stream.send(
            deltas=TokenDeltas(
                ids=[call.call_id],
                offsets=[0],
                texts=["a"],
                extras=[DeltaExtra(id=call.call_id, usage=Usage(output_tokens=1))],
            )
        )
        stream.result(call, finished(call))

    scheduler.on_call = script
    async with AsyncClient(scheduler.address) as client:
        events = [event async for event in client.stream("p", stream_usage=True)]
    assert [event.usage is not None for event in events] == [True, False]


async def test_streams_add_no_task_each(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = lambda stream, call: stream.delta(call, 0, "a")
    async with AsyncClient(scheduler.address) as client:
        streams = [client.stream(f"p{i}") for i in range(30)]
        for stream in streams:
            await anext(stream)
        ours = [t for t in asyncio.all_tasks() if t.get_name().startswith("batchyard")]
        assert len(ours) == 2
