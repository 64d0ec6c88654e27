"""Tensors in, tensors out: what the oip engine makes of an Open Inference Protocol server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError, Item, ModelKeeper, ModelRefused
from node_agent.engines.oip import OipEngine
from node_agent.engines.registry import build_engine
from tests.unit.engines.oip_server import OipServerDouble, oip_server
from tests.unit.engines.recording_sink import Bench, serving

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING


@pytest_asyncio.fixture
async def server() -> AsyncIterator[OipServerDouble]:
    async with oip_server() as server:
        yield server


@pytest_asyncio.fixture
async def bench(server: OipServerDouble) -> AsyncIterator[Bench]:
    options: dict[str, Any] = {"address": server.address, "poll_interval": "20ms"}
    async with serving(build_engine(engine_id="e", kind="oip", options=options), "double") as b:
        yield b


def numbers(bench: Bench, *values: int, width: int = 1) -> Item:
    tensor = inference_pb2.Tensor(
        name="x", datatype="UINT8", shape=[len(values) // width, width], data=bytes(values)
    )
    tensors = inference_pb2.TensorInput(tensors=[tensor], output_names=["y"])
    return bench.item(request=inference_pb2.InferenceRequest(tensors=tensors))


async def test_what_it_can_is_found_out(bench: Bench) -> None:
    descriptor = bench.engine.describe()
    assert (descriptor.slots, descriptor.slots_assumed) == (8, True)
    assert [(m.model, m.streaming) for m in descriptor.models] == [
        ("double", False),
        ("words", True),
    ]


async def test_batches_are_wanted_only_where_nothing_streams(server: OipServerDouble) -> None:
    """A stream would keep the place of a whole batch, and of a batch there may be room for one."""
    modes = []
    for names in ({"d": "double"}, {"d": "double", "w": "words"}):
        options = {"address": server.address, "models": names, "poll_interval": "20ms"}
        engine = build_engine(engine_id="e", kind="oip", options=options)
        async with serving(engine, "d"):
            described = engine.describe()
            rules = list(described.batch_key.equal)
            modes.append((described.mode, described.max_batch_size, rules))
    static, continuous = modes
    assert static == (node_service_pb2.ENGINE_MODE_STATIC, 4, ["input_kind", "tensor_shapes"])
    assert continuous == (node_service_pb2.ENGINE_MODE_CONTINUOUS, 0, [])


@pytest.mark.parametrize("atomic", [True, False])
async def test_batch_is_one_call_and_each_gets_its_own_rows(
    server: OipServerDouble, bench: Bench, *, atomic: bool
) -> None:
    """Behaviours 13 and 16: up to the model's limit of rows, and only of one shape. So is what came
    in one moment, where batches are not asked for.
    """
    items = [numbers(bench, 1), numbers(bench, 2, 3), numbers(bench, 7, 8, width=2)]
    items += [numbers(bench, 4), numbers(bench, 5)]
    ids = bench.submit(*items, atomic=atomic)
    outputs = [(await bench.sink.end(i)).outputs[0].tensors[0] for i in ids]
    assert [o.data for o in outputs] == [b"\2", b"\4\6", b"\x0e\x10", b"\x08", b"\x0a"]
    assert [list(o.shape) for o in outputs] == [[1, 1], [2, 1], [1, 2], [1, 1], [1, 1]]
    assert sorted(r.inputs[0].shape[0] for r in server.requests) == [1, 1, 4]


async def test_priority_and_time_go_with_the_call(server: OipServerDouble, bench: Bench) -> None:
    """Theirs: 1 is most urgent; microseconds."""
    for urgency in (10, 2):
        item = numbers(bench, 1)
        item.priority, item.timeout_s = urgency, 1.5
        assert (await bench.run(item)).error is None
    first, second = (request.parameters for request in server.requests)
    assert (first["priority"].int64_param, second["priority"].int64_param) == (1, 9)
    assert first["timeout"].int64_param == 1_500_000


async def test_port_at_an_openai_url_is_told_as_one_of_grpc(server: OipServerDouble) -> None:
    options = {"url": f"http://{server.address}", "start_timeout": "200ms"}
    wrong = build_engine(engine_id="e", kind="openai", options=options)
    with pytest.raises(EngineStartError, match="at a gRPC port"):
        await wrong.start(Bench(wrong, "m").sink)


async def test_decoupled_text_streams(bench: Bench) -> None:
    item = bench.item("some words here", stream=True)
    item.model = "words"
    result = await bench.run(item)
    assert bench.sink.pieces[item.dispatch_id] == ["some", "words", "here"]
    assert result.outputs[0].text == "somewordshere"


async def test_first_answer_and_pauses_of_a_stream_have_limits_of_their_own(
    server: OipServerDouble,
) -> None:
    """Behaviour 23: together its answers take longer than any of the limits."""
    limits = {"call_timeout": "20ms", "first_token_timeout": "900ms", "idle_timeout": "500ms"}
    options = {"address": server.address, "poll_interval": "20ms", **limits}
    async with serving(build_engine(engine_id="e", kind="oip", options=options), "words") as bench:
        long = await bench.run(bench.item("word " * 60))
        assert long.error is None
        for prompt, limit in (("wait", "0.9s"), ("some wait", "0.5s")):
            result = await bench.run(bench.item(prompt))
            assert result.error is not None
            assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_STALLED
            assert result.error.metadata == {"limit": limit}
        assert result.outputs[0].text == "some"


async def test_stream_that_said_all_is_read_to_its_end(
    server: OipServerDouble, bench: Bench
) -> None:
    """Cancelled as it ends, Triton may hold it for ever, and its model with it."""
    server.may_end.clear()
    item = bench.item("a b", stream=True)
    item.model = "words"
    bench.submit(item)
    await bench.sink.until(lambda: bench.sink.pieces[item.dispatch_id] == ["a", "b"])
    server.may_end.set()
    assert (await bench.sink.end(item.dispatch_id)).error is None
    assert server.cancelled == 0


async def test_cancel_of_the_last_member_ends_the_call(
    server: OipServerDouble, bench: Bench
) -> None:
    """Behaviours 10 and 38."""
    server.blocked.clear()
    first, second = bench.submit(numbers(bench, 1), numbers(bench, 2), atomic=True)
    await bench.sink.until(lambda: server.open == 1)
    await bench.cancel(first)
    assert server.open == 1  # the other still wants it
    await bench.cancel(second)
    await bench.sink.until(lambda: server.open == 0, within_s=1.0)
    await bench.until_idle()


@pytest.mark.parametrize(
    ("code", "details", "reason", "refused"),
    [
        ("INVALID_ARGUMENT", "unexpected shape", "INVALID_ARGUMENT", False),
        ("UNAVAILABLE", "Exceeds maximum queue size", "ENGINE_BUSY", True),
        ("UNAVAILABLE", "Request timeout expired", "ENGINE_BUSY", True),
        ("UNAVAILABLE", "Socket closed", "ENGINE_UNAVAILABLE", False),
        ("DEADLINE_EXCEEDED", "", "ENGINE_STALLED", False),
        ("INTERNAL", "model raised", "ENGINE_ERROR", False),
    ],
)
async def test_status_tells_whose_fault_it_is(
    server: OipServerDouble, bench: Bench, code: str, details: str, reason: str, refused: bool
) -> None:
    """Behaviours 59 and 60."""
    server.fails = (grpc.StatusCode[code], details)
    error = (await bench.run(numbers(bench, 1))).error
    assert error is not None
    assert types_pb2.ErrorReason.Name(error.reason) == f"ERROR_REASON_{reason}"
    assert error.refused is refused
    assert bench.engine.load().health == SERVING


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAUTHENTICATED"])
async def test_member_that_is_denied_ends_alone_while_others_are_served(
    server: OipServerDouble, bench: Bench, code: str
) -> None:
    """Behaviour 59: what is asked of the model is denied, and not who asks."""
    server.hates, server.hatred = 9, (grpc.StatusCode[code], "not this one")
    changes = bench.sink.changes
    ids = bench.submit(*(numbers(bench, value) for value in (1, 9, 3)), atomic=True)
    first, second, third = [await bench.sink.end(i) for i in ids]
    assert (first.error, third.error) == (None, None)
    assert second.error is not None
    assert second.error.reason == types_pb2.ERROR_REASON_PERMISSION_DENIED
    assert not second.error.refused
    assert f"{code} to this request" in second.error.message
    assert (bench.engine.load().health, bench.sink.changes) == (SERVING, changes)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("PERMISSION_DENIED", "no"),
        ("UNAUTHENTICATED", "who are you?"),
        ("UNAVAILABLE", "This protocol is restricted, expecting header 'key'"),
        ("INTERNAL", "Internal error from Core"),  # gRPC's, where the call ended too soon
    ],
)
@pytest.mark.parametrize("model", ["double", "words"])
async def test_server_that_lets_nothing_in_gets_nothing_until_it_does(
    server: OipServerDouble, bench: Bench, model: str, code: str, details: str
) -> None:
    """It says that it is ready all the while; no request pays for that."""
    server.fails = (grpc.StatusCode[code], details)
    item = numbers(bench, 1) if model == "double" else bench.item("a b", stream=True)
    item.model = model
    error = (await bench.run(item)).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)
    asked = len(server.requests)
    await bench.sink.until(lambda: len(server.requests) > asked + 1)  # by looks
    load = bench.engine.load()
    assert load.health == node_service_pb2.ENGINE_HEALTH_DOWN
    assert "allow it there" in load.message
    assert details in load.message
    error = (await bench.run(numbers(bench, 1))).error
    assert error is not None
    assert error.refused
    server.fails = None
    await bench.sink.until(lambda: bench.engine.load().health == SERVING)
    assert (await bench.run(numbers(bench, 1))).error is None


async def test_model_that_is_not_ready_gets_no_work(server: OipServerDouble, bench: Bench) -> None:
    """Behaviour 111: the server is ready, this model is not."""
    server.ready["double"] = False
    loading = types_pb2.MODEL_STATE_LOADING
    await bench.sink.until(lambda: bench.engine.load().model_states["double"] == loading)
    error = (await bench.run(numbers(bench, 1))).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)
    server.ready["double"] = True
    active = types_pb2.MODEL_STATE_ACTIVE
    await bench.sink.until(lambda: bench.engine.load().model_states["double"] == active)
    assert (await bench.run(numbers(bench, 1))).error is None


async def test_server_that_is_not_ready_serves_the_models_that_are(server: OipServerDouble) -> None:
    """Triton's own readiness is that of all its models: one that hangs would take out the rest."""
    server.server_ready = server.ready["double"] = False
    options: dict[str, Any] = {"address": server.address, "poll_interval": "20ms"}
    async with serving(build_engine(engine_id="e", kind="oip", options=options), "words") as bench:
        assert bench.engine.load().health == SERVING
        assert (await bench.run(bench.item("a b"))).error is None
        server.ready["words"] = False
        await bench.sink.until(lambda: bench.engine.load().health != SERVING)
        assert "not ready" in bench.engine.load().message


async def test_repository_loads_and_unloads_models(server: OipServerDouble, bench: Bench) -> None:
    engine, active = bench.engine, types_pb2.MODEL_STATE_ACTIVE
    assert isinstance(engine, ModelKeeper)
    assert engine.load().model_states["spare"] == types_pb2.MODEL_STATE_AVAILABLE
    server.blocked.clear()
    loading = asyncio.create_task(engine.load_model("spare", {"priority": 3}))
    await bench.sink.until(lambda: "spare" in [m.model for m in engine.describe().models])
    assert engine.load().model_states["spare"] == types_pb2.MODEL_STATE_LOADING
    item = numbers(bench, 1)
    item.model = "spare"
    error = (await bench.run(item)).error
    assert error is not None
    assert error.refused
    server.blocked.set()
    await loading
    assert server.parameters["priority"].int64_param == 3
    assert engine.load().model_states["spare"] == active
    await engine.unload_model("spare")
    assert [m.model for m in engine.describe().models] == ["double", "words"]
    for model in ("double", "words"):
        await engine.unload_model(model)
    await bench.sink.until(lambda: len(engine.load().model_states) == 3)
    assert engine.load().health == SERVING  # it can be told to load one
    with pytest.raises(ModelRefused, match="whole number"):
        await engine.load_model("spare", {"depth": 0.5})
    with pytest.raises(ModelRefused, match="failed to load"):
        await engine.load_model("nobody", {})
    assert not engine.describe().models
    await engine.load_model("double", {})
    assert (await bench.run(numbers(bench, 4))).outputs[0].tensors[0].data == b"\x08"


async def test_model_that_is_unloaded_is_gone_when_the_server_has_let_go_of_it(
    server: OipServerDouble, bench: Bench
) -> None:
    """Triton says yes at once, and does it later, or never: then it is shown as failed."""
    engine = bench.engine
    assert isinstance(engine, ModelKeeper)
    state = lambda: engine.load().model_states.get("words")  # noqa: E731
    server.lets_go.clear()
    unloading = asyncio.create_task(engine.unload_model("words"))
    await bench.sink.until(lambda: state() == types_pb2.MODEL_STATE_UNLOADING)
    assert (await bench.run(numbers(bench, 1))).error is None
    server.lets_go.set()
    await asyncio.wait_for(unloading, 5)
    assert state() in (None, types_pb2.MODEL_STATE_AVAILABLE)
    await engine.load_model("words", {})
    server.lets_go.clear()
    unloading = asyncio.create_task(engine.unload_model("words"))
    await bench.sink.until(lambda: state() == types_pb2.MODEL_STATE_UNLOADING)
    unloading.cancel()  # as its time-out does
    await asyncio.gather(unloading, return_exceptions=True)
    looks = server.asked_ready
    await bench.sink.until(lambda: server.asked_ready > looks + 4)
    assert state() == types_pb2.MODEL_STATE_FAILED
    item = bench.item("a b")
    item.model = "words"
    error = (await bench.run(item)).error
    assert error is not None
    assert error.refused
    assert (await bench.run(numbers(bench, 1))).error is None
    server.lets_go.set()
    await bench.sink.until(lambda: "words" not in [m.model for m in engine.describe().models])


async def test_look_that_began_before_brings_no_unloaded_model_back(
    server: OipServerDouble,
) -> None:
    options: dict[str, Any] = {"address": server.address, "poll_interval": "1h"}
    built = build_engine(engine_id="e", kind="oip", options=options)
    async with serving(built, "double") as bench:
        assert isinstance(built, OipEngine)
        server.tells_ready.clear()
        asked = server.asked_ready
        look = asyncio.create_task(built.server.look())
        await bench.sink.until(lambda: server.asked_ready > asked)
        await built.unload_model("words")
        server.tells_ready.set()
        await look
        assert [m.model for m in built.describe().models] == ["double"]


async def test_tensor_that_does_not_fit_its_shape_is_the_callers_fault(bench: Bench) -> None:
    item = numbers(bench, 1, 2)
    item.request.tensors.tensors[0].shape[0] = 3
    error = (await bench.run(item)).error
    assert error is not None
    assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert error.field == "request.tensors.tensors[0].data"


async def test_tensor_that_a_streaming_model_does_not_take_is_the_callers_fault(
    bench: Bench,
) -> None:
    """Behaviour 59: Triton tells it in the stream as a fault like any other."""
    for name, datatype, field in (("y", "UINT8", "name"), ("text_input", "UINT8", "datatype")):
        request = inference_pb2.InferenceRequest()
        request.tensors.tensors.add(name=name, datatype=datatype, shape=[1], data=b"x")
        item = bench.item(request=request)
        item.model = "words"
        error = (await bench.run(item)).error
        assert error is not None
        assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
        assert error.field == f"request.tensors.tensors[0].{field}"


async def test_broken_call_stops_the_next_until_the_server_answers_a_look(
    server: OipServerDouble, bench: Bench
) -> None:
    server.fails = (grpc.StatusCode.UNAVAILABLE, "Socket closed")
    (broken,) = bench.submit(numbers(bench, 1))
    await bench.sink.end(broken)
    error = (await bench.run(numbers(bench, 1))).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)
    assert len(server.requests) == 1
    server.fails = None
    assert isinstance(bench.engine, OipEngine)
    looks = bench.engine.server
    await bench.sink.until(lambda: not looks.doubted)
    assert (await bench.run(numbers(bench, 1))).error is None


async def test_parameters_of_a_text_go_with_the_call_or_are_refused_by_name(
    server: OipServerDouble, bench: Bench
) -> None:
    item = bench.item("a", max_tokens=5, temperature=0.5, engine_options_json='{"beams": 2}')
    item.model = "words"
    assert (await bench.run(item)).error is None
    sent = server.requests[-1].parameters
    assert sent["max_tokens"].int64_param == 5
    assert sent["temperature"].double_param == 0.5
    assert sent["beams"].int64_param == 2
    unsupported, invalid = (
        types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE,
        types_pb2.ERROR_REASON_INVALID_ARGUMENT,
    )
    cases: list[tuple[dict[str, Any], types_pb2.ErrorReason, str]] = [
        ({"n": 2}, unsupported, "n"),
        ({"stop": ["x"]}, unsupported, "stop"),
        ({"engine_options_json": '{"priority": 1}'}, invalid, "engine_options_json"),
        ({"engine_options_json": '{"list": []}'}, invalid, "engine_options_json"),
        ({"engine_options_json": "no"}, invalid, "engine_options_json"),
    ]
    for params, reason, field in cases:
        item = bench.item("a", **params)
        item.model = "words"
        error = (await bench.run(item)).error
        assert error is not None
        assert (error.reason, error.field) == (reason, f"request.params.{field}")
    assert len(server.requests) == 1


async def test_member_that_the_model_refuses_fails_alone(
    server: OipServerDouble, bench: Bench
) -> None:
    """Behaviour 12: the server refuses the batch; each is then asked for alone."""
    server.hates = 9
    ids = bench.submit(*(numbers(bench, value) for value in (1, 9, 3)), atomic=True)
    first, second, third = [await bench.sink.end(i) for i in ids]
    assert [r.outputs[0].tensors[0].data for r in (first, third)] == [b"\2", b"\6"]
    assert second.error is not None
    assert second.error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert len(server.requests) == 4


async def test_time_of_one_member_is_no_limit_of_the_others(
    server: OipServerDouble, bench: Bench
) -> None:
    """Behaviour 59: a caller's short deadline is no hang of the engine."""
    for times, told in (((0.05, 9.0), 9_000_000), ((0.05, None), 0)):
        server.blocked.clear()
        items = [numbers(bench, 1), numbers(bench, 2)]
        for item, timeout_s in zip(items, times, strict=True):
            item.timeout_s = timeout_s
        hasty, patient = bench.submit(*items, atomic=True)
        await bench.sink.until(lambda: server.open == 1)
        assert server.requests[-1].parameters["timeout"].int64_param == told
        await bench.cancel(hasty)  # as the scheduler does when its time is over
        server.blocked.set()
        assert (await bench.sink.end(patient)).outputs[0].tensors[0].data == b"\4"


@pytest.mark.parametrize(
    "odd",
    [
        ("UINT8", [2, 1], b"\1"),
        ("FP32", [2, 1], b"1234567"),
        ("NONSENSE", [2, 1], b"12"),
        ("UINT8", [-2, -1], b"12"),
        ("BYTES", [2, 1], b"\1\0\0\0a"),
        ("BYTES", [2, 1], b"\xff\xff\xff\xffa"),
        ("UINT8", [5, 1], b"12345"),
    ],
)
async def test_answer_that_is_not_what_its_shape_says_is_the_engines_fault(
    server: OipServerDouble, bench: Bench, odd: tuple[str, list[int], bytes]
) -> None:
    """Nobody gets rows that are short, or another's."""
    server.answers = odd
    for result in [
        await bench.sink.end(i)
        for i in bench.submit(numbers(bench, 1), numbers(bench, 2), atomic=True)
    ]:
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
        assert not result.outputs
    server.answers = None
    assert (await bench.run(numbers(bench, 4))).error is None


async def test_tensors_that_would_spoil_the_batch_of_others_stay_out_of_it(
    server: OipServerDouble, bench: Bench
) -> None:
    twice, negative, empty = numbers(bench, 1), numbers(bench, 1), numbers(bench, 1)
    twice.request.tensors.tensors.append(twice.request.tensors.tensors[0])
    negative.request.tensors.tensors[0].shape[:] = [-1, -1]
    empty.request.tensors.tensors[0].shape[:] = [0, 1]
    empty.request.tensors.tensors[0].data = b""
    ids = bench.submit(twice, negative, empty, numbers(bench, 7), atomic=True)
    results = [await bench.sink.end(i) for i in ids]
    for result in results[:2]:
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert [r.outputs[0].tensors[0].data for r in results[2:]] == [b"", b"\x0e"]
