"""Where a server has no Multiplex, one RPC per call does the same."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as ProtoAny
from google.rpc import error_details_pb2, status_pb2

from batchyard import AsyncClient, errors
from batchyard.v1 import (
    Accepted,
    Error,
    GenerateResponse,
    GenerateStreamResponse,
    InferenceResult,
    Started,
    TokenDeltas,
)
from tests.integration.client.scripted_scheduler import ScriptedScheduler, answer, refusal

MISSING = (grpc.StatusCode.UNIMPLEMENTED, "no Multiplex here")


def event(**parts: Any) -> GenerateStreamResponse:
    return GenerateStreamResponse(**parts)


def spoken(request: Any, *pieces: str) -> list[GenerateStreamResponse]:
    events = [event(accepted=Accepted(queue_position=2)), event(started=Started(output_id=1))]
    offset = 0
    for piece in pieces:
        events.append(event(deltas=TokenDeltas(offsets=[offset], texts=[piece])))
        offset += len(piece.encode())
    result = InferenceResult(request_id=request.request.request_id, finish_reason=1)  # type: ignore[arg-type]
    return [*events, event(result=result)]


async def hang(request: Any, context: Any) -> Any:
    await asyncio.get_running_loop().create_future()


def rich_trailers(code: int, reason: str, result: InferenceResult) -> Any:
    status = status_pb2.Status(code=code, message="rich")
    for detail in (error_details_pb2.ErrorInfo(reason=reason), result):
        packed = ProtoAny()
        packed.Pack(detail)
        status.details.append(packed)
    return (
        ("grpc-status-details-bin", status.SerializeToString()),
        ("grpc-retry-pushback-ms", "-1"),
    )


async def test_unimplemented_falls_back_once_for_all(scheduler: ScriptedScheduler) -> None:
    scheduler.refuse = MISSING
    async with AsyncClient(scheduler.address) as client:
        results = await asyncio.gather(*(client.generate(f"p{i}") for i in range(5)))
        assert [result.text for result in results] == [f"p{i}" for i in range(5)]
        scheduler.on_generate = lambda request, _: spoken(request, "a", "b")
        assert (await client.stream("s").wait()).text == "ab"
        assert client.address == scheduler.address
    assert len(scheduler.unary) == 6
    assert not scheduler.streams


async def test_words_that_grpc_lost_are_heard_on_the_next_stream(
    scheduler: ScriptedScheduler,
) -> None:
    """Behaviour 75: a stream that ends while it is written to hides the server's real status."""
    scheduler.refuse = (grpc.StatusCode.INTERNAL, "Internal error from Core")
    async with AsyncClient(scheduler.address) as client:
        asking = asyncio.create_task(client.generate("p"))
        await scheduler.until(lambda: scheduler.refused)
        scheduler.refuse = MISSING
        assert (await asking).text == "p"
    assert len(scheduler.unary) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "dns:///127.0.0.1"])
async def test_a_proxy_for_the_way_out_does_not_catch_calls_on_this_machine(
    scheduler: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody there
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    port = scheduler.address.rpartition(":")[2]
    async with AsyncClient(f"{host}:{port}", retries=0) as client:
        assert (await client.generate("p", timeout="10s")).text == "p"


async def test_multiplex_insists(scheduler: ScriptedScheduler) -> None:
    scheduler.refuse = MISSING
    async with AsyncClient(scheduler.address, transport="multiplex") as client:
        with pytest.raises(errors.UnsupportedFeature):
            await client.generate("p")


async def test_unary_is_used_when_asked_for(scheduler: ScriptedScheduler) -> None:
    async with AsyncClient(scheduler.address, transport="unary", api_key="k") as client:
        await client.generate("p")
    assert not scheduler.streams
    assert scheduler.metadata[0]["authorization"] == "Bearer k"


async def test_stream_pieces_and_properties(scheduler: ScriptedScheduler) -> None:
    scheduler.on_generate = lambda request, _: spoken(request, "你", "好")
    async with AsyncClient(scheduler.address, transport="unary") as client:
        stream = client.stream("p")
        assert [event.text async for event in stream] == ["你", "好"]
        assert (stream.result.text, stream.queue_position) == ("你好", 2)


async def test_cancel_says_so_by_id(scheduler: ScriptedScheduler) -> None:
    """Behaviour 38: the work must not go on for `detach_grace` after a cancel."""
    scheduler.on_generate = hang
    async with AsyncClient(scheduler.address, transport="unary", tenant="acme") as client:
        tasks = [
            asyncio.create_task(client.generate("p", request_id="one")),
            asyncio.create_task(client.stream("p", request_id="two").wait()),
        ]
        await scheduler.until(lambda: len(scheduler.unary) == 2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await scheduler.until(lambda: scheduler.unary_cancelled == 2)
        await scheduler.until(lambda: scheduler.cancel_requests)
    ids = [one for request in scheduler.cancel_requests for one in request.request_ids]
    assert sorted(ids) == ["one", "two"]
    assert scheduler.cancel_requests[0].tenant == "acme"


async def test_rich_failure_is_typed(scheduler: ScriptedScheduler) -> None:
    async def fail(request: Any, context: Any) -> Any:
        error = Error(code=10, reason=41, message="gave up", metadata={"attempts": "3"})  # type: ignore[arg-type]
        result = refusal(request.request, error, finish_reason=8)
        await context.abort(
            grpc.StatusCode.ABORTED, "gave up", rich_trailers(10, "ATTEMPTS_EXHAUSTED", result)
        )

    scheduler.on_generate = fail
    async with AsyncClient(scheduler.address, transport="unary") as client:
        with pytest.raises(errors.AttemptsExhausted, match="gave up") as caught:
            await client.generate("p", request_id="r")
    assert caught.value.metadata == {"attempts": "3"}
    assert caught.value.request_id == "r"
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
    assert len(scheduler.unary) == 1


async def test_streams_failure_is_the_results(scheduler: ScriptedScheduler) -> None:
    async def fail(request: Any, context: Any) -> Any:
        error = Error(code=5, reason=4, message="no such model")  # type: ignore[arg-type]
        return [event(result=refusal(request.request, error))]

    scheduler.on_generate = fail
    async with AsyncClient(scheduler.address, transport="unary") as client:
        with pytest.raises(errors.ModelNotFound, match="no such model"):
            await client.stream("p").wait()


async def test_lost_connection_is_retried_with_an_attach_point(
    scheduler: ScriptedScheduler,
) -> None:
    def script(request: Any, context: Any) -> Any:
        if len(scheduler.unary) == 1:
            return spoken(request, "abc")[:3]  # and no result
        assert request.attach.offsets[0].offset == 3
        return [
            event(started=Started(output_id=1)),
            event(deltas=TokenDeltas(offsets=[3], texts=["d"])),
            event(result=InferenceResult(finish_reason=1)),  # type: ignore[arg-type]
        ]

    scheduler.on_generate = script
    async with AsyncClient(scheduler.address, transport="unary") as client:
        assert (await client.stream("p").wait()).text == "abcd"
    first, second = scheduler.unary
    assert first.request.request_id == second.request.request_id


async def test_server_side_cancel_is_typed(scheduler: ScriptedScheduler) -> None:
    async def cancelled(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.CANCELLED, "by an operator")

    scheduler.on_generate = cancelled
    async with AsyncClient(scheduler.address, transport="unary") as client:
        with pytest.raises(errors.Cancelled):
            await client.generate("p")
        with pytest.raises(errors.Cancelled):
            await client.stream("p").wait()


async def test_close_ends_calls_in_flight(scheduler: ScriptedScheduler) -> None:
    scheduler.on_generate = hang
    before = asyncio.all_tasks()
    client = AsyncClient(scheduler.address, transport="unary")
    task = asyncio.create_task(client.generate("p"))
    await scheduler.until(lambda: scheduler.unary)
    await client.close()
    with pytest.raises(errors.Cancelled):
        await task
    ours = [t for t in asyncio.all_tasks() - before if t.get_name().startswith("batchyard")]
    assert ours == []


async def test_retry_of_a_refusal(scheduler: ScriptedScheduler) -> None:
    async def twice(request: Any, context: Any) -> Any:
        if len(scheduler.unary) == 1:
            status = status_pb2.Status(code=14, message="starting")
            info, retry = ProtoAny(), ProtoAny()
            info.Pack(error_details_pb2.ErrorInfo(reason="SCHEDULER_STARTING"))
            retry.Pack(error_details_pb2.RetryInfo())
            status.details.extend([info, retry])
            trailer = ("grpc-status-details-bin", status.SerializeToString())
            await context.abort(grpc.StatusCode.UNAVAILABLE, "starting", (trailer,))
        return GenerateResponse(result=answer(request.request))

    scheduler.on_generate = twice
    async with AsyncClient(scheduler.address, transport="unary") as client:
        assert (await client.generate("p", timeout="10s")).text == "p"
    assert len(scheduler.unary) == 2
