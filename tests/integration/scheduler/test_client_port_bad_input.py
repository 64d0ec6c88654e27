"""Bad input: a typed error that names the field, and nobody else notices it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from batchyard.v1 import inference_pb2, scheduler_service_pb2
from scheduler_service.core.outcomes import NodeHealth
from scheduler_service.rpc.validate import Limits
from tests.integration.scheduler import bad_requests
from tests.integration.scheduler.callers import Answer, SingleExchange
from tests.integration.scheduler.harness import MODEL, WAYS, World, prompt, running_world

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SMALL = Limits(max_request_bytes=2 << 20, max_message_bytes=8 << 20)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world(limits=SMALL) as running:
        await running.add_agent(slots=4)
        yield running


async def refused_by_generate(world: World, data: bytes, streams: bool) -> tuple[str, str]:
    """Reason and field of a request in bytes; the whole message is packed by hand."""
    name = "GenerateStream" if streams else "Generate"
    method = world.method(name, "unary_stream" if streams else "unary_unary", raw=True)
    packed = b"\x0a" + bad_requests.varint(len(data)) + data
    answer = await SingleExchange(method(packed), streams).wait()
    assert answer.status is INVALID
    return answer.reason, answer.field


@pytest.mark.parametrize("way", WAYS)
async def test_every_bad_request_is_refused_and_its_field_named(world: World, way: str) -> None:
    """Behaviours 82, 83, 84, 91: the agent is never asked, and the scheduler is as before."""
    for name, (request, field) in bad_requests.ALL.items():
        answer = await world.ask(way, request)
        assert (answer.reason, answer.field) == ("INVALID_ARGUMENT", f"request.{field}"), name
        assert answer.code == INVALID.value[0]
        assert answer.error is not None
        assert 0 < len(answer.error.message) <= 1024
        assert not answer.error.retryable
        assert answer.accepted == answer.started == answer.rows == []
    assert world.state.totals.received == 0
    assert (await world.ask(way, prompt())).error is None
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_references_are_refused_as_not_built(world: World, way: str) -> None:
    for name, (request, field) in bad_requests.UNBUILT.items():
        answer = await world.ask(way, request)
        assert (answer.reason, answer.field) == ("UNSUPPORTED_FEATURE", f"request.{field}"), name
        assert answer.error is not None
        assert answer.error.metadata["feature"] == "payload_ref"


async def test_bad_calls_of_a_message_leave_their_neighbours_alone(world: World) -> None:
    """Every bad request there is, with a good one between any two, in one message."""
    stream = await world.multiplex()
    parts, expected = [], []
    for request, field in bad_requests.ALL.values():
        if request.ByteSize() > 50_000:
            continue
        parts += [stream.new(request), stream.new(prompt("[[tokens=3]]"), stream=True)]
        expected += [f"calls[{len(expected)}].request.{field}", ""]
    await stream.send(calls=[call for _, call in parts])
    for (exchange, _), field in zip(parts, expected, strict=True):
        answer = await exchange.wait()
        assert answer.result is not None
        assert answer.result.error.field == field
        assert (answer.reason == "") is (field == "")
    await stream.done()
    assert await stream.wait() is grpc.StatusCode.OK
    await world.settled()


def calls_in_bytes(*requests: bytes, streams: bool = False) -> bytes:
    """A MultiplexRequest with calls 1, 2, ... of these serialised requests."""
    message = b""
    for index, data in enumerate(requests):
        call = b"\x08" + bad_requests.varint(index + 1)
        call += b"\x12" + bad_requests.varint(len(data)) + data + (b"\x18\x01" if streams else b"")
        message += b"\x12" + bad_requests.varint(len(call)) + call
    return message


async def ask_in_bytes(world: World, requests: dict[Any, bytes]) -> dict[Any, Any]:
    """Send all in one message, a good one behind each; the results of the bad ones by name."""
    stream = await world.multiplex()
    good = prompt().SerializeToString()
    pairs = [data for bad in requests.values() for data in (bad, good)]
    exchanges = [stream.new()[0] for _ in pairs]
    await stream.send_raw(calls_in_bytes(*pairs))
    results = [(await exchange.wait()).result for exchange in exchanges]
    assert all(not result.HasField("error") for result in results[1::2] if result is not None)
    return dict(zip(requests, results[::2], strict=True))


async def test_bad_utf8_in_any_string_field_is_found_and_named(world: World) -> None:
    """Each string field of a request, found by walking its descriptor, nested ones too."""
    requests = bad_requests.every_string()
    assert len(requests) > 30
    results = await ask_in_bytes(world, requests)
    for index, (path, result) in enumerate(results.items()):
        assert result.error.field == f"calls[{2 * index}].request.{path}"
        assert result.error.code == INVALID.value[0]
        assert "UTF-8" in result.error.message
    for path in ("model", "labels[0].value", "chat.messages[0].parts[0].text"):
        for streams in (False, True):
            assert await refused_by_generate(world, requests[path], streams) == (
                "INVALID_ARGUMENT", f"request.{path}",
            )  # fmt: skip
    assert (await world.ask("generate", prompt())).error is None


async def test_no_float_field_takes_what_is_not_finite(world: World) -> None:
    """Behaviour 83: each floating-point field, found by walking the descriptor."""
    requests = bad_requests.every_float()
    assert len({path for path, _ in requests}) >= 8
    results = await ask_in_bytes(world, requests)
    for (path, value), result in results.items():
        named = result.error.field.partition("].request.")[2]
        assert named == path.replace("logit_bias[0].value", "logit_bias"), (path, value)
        assert result.error.code == INVALID.value[0]


async def test_unknown_enum_numbers_are_refused(world: World) -> None:
    requests = bad_requests.every_enum()
    assert requests
    for path, result in (await ask_in_bytes(world, requests)).items():
        assert result.error.field.endswith(f".request.{path}")


@pytest.mark.parametrize("way", WAYS)
async def test_request_above_the_limit_is_too_large_by_itself(world: World, way: str) -> None:
    answer = await world.ask(way, prompt("x" * (2 << 20)))
    assert (answer.reason, answer.field) == ("REQUEST_TOO_LARGE", "request")
    assert answer.error is not None
    assert answer.error.metadata["limitBytes"] == str(2 << 20)
    below = await world.ask(way, prompt("x" * ((2 << 20) - 100)))
    assert below.reason == "CONTEXT_TOO_LONG", "the engine's word, not this limit's"


@pytest.mark.parametrize("way", WAYS)
async def test_unknown_model_is_not_found_and_names_what_there_is(world: World, way: str) -> None:
    answer = await world.ask(way, prompt(model="no-such-model"))
    assert (answer.reason, answer.field) == ("MODEL_NOT_FOUND", "request.model")
    assert answer.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert answer.error is not None
    assert MODEL in answer.error.message
    assert answer.error.metadata["model"] == "no-such-model"
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_prompt_above_the_context_is_typed(world: World, way: str) -> None:
    """Token input is counted here, text by the engine: the same reason, the input is named, there
    is no second attempt, and nothing of it counts against the node.
    """
    tokens = inference_pb2.TokenInput(ids=range(40_000))
    for attempts, request in (
        (0, inference_pb2.InferenceRequest(model=MODEL, tokens=tokens)),
        (1, prompt("word " * 40_000)),
    ):
        answer = await world.ask(way, request)
        assert answer.reason == "CONTEXT_TOO_LONG"
        assert answer.code == INVALID.value[0]
        assert answer.error is not None
        assert int(answer.error.metadata["promptTokens"]) > 32768
        assert answer.field == f"request.{request.WhichOneof('input')}"
        assert answer.result is not None
        assert len(answer.result.attempts) == attempts
    node = next(iter(world.state.nodes.values()))
    assert (node.failed, node.trust.errors_in_row, node.trust.failed) == (0, 0, 0)
    assert node.health is NodeHealth.HEALTHY
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_huge_max_tokens_is_held_to_the_context(world: World, way: str) -> None:
    """Behaviour 84: prompt plus output stays within the model's context."""
    request = prompt("hi", params=inference_pb2.GenerationParams(max_tokens=2**31 - 1))
    answer = await world.ask(way, request)
    assert answer.error is None
    assert answer.result is not None
    assert answer.result.usage.input_tokens + answer.result.usage.output_tokens <= 32768


async def test_refused_calls_keep_no_slot(world: World) -> None:
    """Behaviour 30: bad ones first, then as many good ones as there are slots, all at once."""
    for request, _ in list(bad_requests.ALL.values())[::5]:
        await world.ask("generate", request)
    stream = await world.multiplex()
    exchanges = await stream.start(*(prompt("[[stall]]") for _ in range(4)))
    await world.until(lambda: world.running() == 4)
    await stream.send(cancel_call_ids=[exchange.call_id for exchange in exchanges])
    await world.settled()


# Messages that are bad as a whole.


GARBAGE = {
    "cut off": b"\x12\xff\x01abc",
    "group that never ends": b"\x13\x13\x13",
    "field number 0": b"\x02\x01a",
    "endless varint": b"\xff" * 40,
    "bad UTF-8 in open": b"\x0a\x04\x0a\x02\xc3\x28",
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_ends_its_stream_alone(world: World, name: str) -> None:
    """With a typed status; calls of other streams and of other kinds go on."""
    other = await world.multiplex()
    (going_on,) = await other.start(prompt("[[sleep=300ms]]"))
    unary = await world.begin("generate", prompt("[[sleep=300ms]]"))
    broken = await world.multiplex()
    (lost,) = await broken.start(prompt("[[stall]]"))
    await world.until(lambda: world.running() == 3)
    await broken.send_raw(GARBAGE[name])
    assert await broken.wait() is INVALID
    assert broken.error_reason() == "INVALID_ARGUMENT"
    assert broken.trailers["grpc-retry-pushback-ms"] == "-1"
    assert lost.answer.result is None
    assert (await going_on.wait()).error is None
    assert (await unary.wait()).error is None
    await world.settled()


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("method", ["Generate", "CancelRequests", "ListModels", "GetServerInfo"])
async def test_garbage_is_no_request_of_any_method(world: World, method: str, name: str) -> None:
    try:
        answer = await world.method(method, raw=True)(GARBAGE[name])
    except grpc.aio.AioRpcError as error:
        assert error.code() is INVALID  # noqa: PT017
    else:
        assert isinstance(answer, bytes)  # unknown fields of a newer version, for all we know
    assert (await world.ask("generate", prompt())).error is None


async def test_call_that_is_garbage_is_refused_under_its_id(world: World) -> None:
    stream = await world.multiplex()
    bad, good = stream.new()[0], stream.new(prompt())
    call = b"\x08\x01\x12\x7f"  # call_id 1, and a request that is cut off
    await stream.send_raw(
        b"\x12" + bytes([len(call)]) + call
        + scheduler_service_pb2.MultiplexRequest(calls=[good[1]]).SerializeToString()
    )  # fmt: skip
    answer = await bad.wait()
    assert answer.result is not None
    assert answer.reason == "INVALID_ARGUMENT"
    assert answer.result.error.field == "calls[0]"
    assert (await good[0].wait()).error is None


async def test_first_message_must_open_and_no_other(world: World) -> None:
    stream = await world.multiplex()
    await stream.open()
    assert await stream.wait() is INVALID
    late = type(stream)(world.channel)
    world.streams.append(late)
    await late.start(prompt())
    assert await late.wait() is INVALID


async def test_call_ids_are_above_zero_and_unique(world: World) -> None:
    """Who repeats one hears of it under no call's id, and the first call goes on."""
    stream = await world.multiplex()
    (running,) = await stream.start(prompt("[[stall]]"))
    await world.until(lambda: world.running() == 1)
    again = [
        scheduler_service_pb2.Call(call_id=call_id, request=prompt())
        for call_id in (0, running.call_id)
    ]
    await stream.send(calls=again)
    cut_off = bytes([0x12, 4, 0x08, running.call_id, 0x12, 0x7F])  # its request does not parse
    await stream.send_raw(cut_off)
    (good,) = await stream.start(prompt())
    assert (await good.wait()).error is None
    errors = [result.error for result in stream.strange]
    assert [error.field for error in errors] == ["calls[0].call_id", "calls[1].call_id", "calls[0]"]
    assert {error.code for error in errors} == {INVALID.value[0]}
    assert errors[1].metadata["callId"] == str(running.call_id)
    assert running.answer.result is None, "it takes the refusal of another for its own end"
    await running.cancel()
    assert (await running.wait()).reason == "CANCELLED_BY_CLIENT"


async def test_too_long_a_coalesce_ends_the_stream(world: World) -> None:
    stream = await world.multiplex()
    await stream.close()
    late = type(stream)(world.channel)
    world.streams.append(late)
    await late.open(coalesce={"seconds": 2})
    assert await late.wait() is INVALID


async def test_calls_above_max_outstanding_are_refused_and_may_come_again() -> None:
    async with running_world(limits=Limits(max_outstanding=3)) as world:
        await world.add_agent(slots=8)
        stream = await world.multiplex()
        exchanges = await stream.start(*(prompt("[[stall]]") for _ in range(5)))
        for refused in exchanges[3:]:
            answer = await refused.wait()
            assert answer.reason == "QUEUE_FULL"
            assert answer.error is not None
            assert answer.error.retryable
            assert answer.error.HasField("retry_after")
            assert answer.field == ""
        await stream.send(cancel_call_ids=[1, 2, 3])
        assert [(await e.wait()).reason for e in exchanges[:3]] == ["CANCELLED_BY_CLIENT"] * 3
        (again,) = await stream.start(prompt())
        assert (await again.wait()).error is None
        await world.settled()


async def test_message_of_very_many_calls_holds_up_nobody_and_fills_no_memory() -> None:
    """Its sender reads no answer: no more of them wait than calls may be outstanding."""
    async with running_world(limits=Limits(max_outstanding=100)) as world:
        await world.add_agent(slots=8)
        flood = await world.multiplex(reads=False)
        honest = await world.multiplex()
        await world.until(lambda: len(world.port._streams) == 2)
        writers = [stream.writer for stream in world.port._streams]
        await flood.send_raw(b"\x12\x00" * 20_000)
        while not any(writer._results for writer in writers):
            (call,) = await honest.start(prompt())
            assert (await call.wait()).error is None
        assert sum(len(writer._results) for writer in writers) <= 100 + 256


async def test_faults_of_many_bad_calls_are_looked_for_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 200 of one message took 1.4 s in which nobody was served."""
    stream = await world.multiplex()
    (good,) = await stream.start(prompt())
    assert (await good.wait()).error is None
    (writer,) = (stream.writer for stream in world.port._streams)
    cut_off = b"\x08\x01" * 4_000 + b"\x12\x7f"
    turn, refused = 0, []
    add = writer.result

    def result(call_id: int, data: bytes) -> None:
        refused.append(turn)
        add(call_id, data)

    monkeypatch.setattr(writer, "result", result)
    call = b"\x12" + bad_requests.varint(len(cut_off)) + cut_off
    await stream.send_raw(call * 50)
    async with asyncio.timeout(20):
        while len(refused) < 50:
            turn += 1
            await asyncio.sleep(0)
    assert len(set(refused)) > 50 // 4


async def test_message_above_its_limit_ends_the_stream_and_no_other(world: World) -> None:
    good = await world.multiplex()
    (going_on,) = await good.start(prompt("[[sleep=200ms]]"))
    bad = await world.multiplex()
    calls = [bad.new(prompt("x" * (1 << 20)))[1] for _ in range(9)]
    await bad.send(calls=calls)
    assert await bad.wait() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await going_on.wait()).error is None
    await world.settled()


# The other RPCs.


async def failure(world: World, method: str, **fields: Any) -> Answer:
    """The typed status of a call that fails."""
    message = getattr(scheduler_service_pb2, f"{method}Request")(**fields)
    streams = method == "WatchJob"
    call = world.method(method, "unary_stream" if streams else "unary_unary")(message)
    return await SingleExchange(call, streams).wait()


@pytest.mark.parametrize(
    "method",
    ["CreateJob", "AppendJob", "GetJob", "ListJobs", "ListJobResults", "WatchJob", "CancelJob"],
)
async def test_without_a_state_folder_there_are_no_jobs(world: World, method: str) -> None:
    answer = await failure(world, method)
    assert answer.status is grpc.StatusCode.UNIMPLEMENTED
    assert answer.reason == "UNSUPPORTED_FEATURE"
    assert answer.error is not None
    assert answer.error.metadata["feature"] == "jobs"
    info = await world.method("GetServerInfo")(scheduler_service_pb2.GetServerInfoRequest())
    assert "jobs" not in info.features


@pytest.mark.parametrize(
    ("method", "fields", "field"),
    [
        ("CancelRequests", {}, "request_ids"),
        ("CancelRequests", {"request_ids": ["a"] * 1001}, "request_ids"),
        ("CancelRequests", {"request_ids": ["a"], "reason": "x" * 257}, "reason"),
        ("ListModels", {"page_size": -1}, "page_size"),
    ],
)
async def test_other_rpcs_name_their_bad_fields(
    world: World, method: str, fields: dict[str, Any], field: str
) -> None:
    answer = await failure(world, method, **fields)
    assert (answer.status, answer.field) == (INVALID, field)
