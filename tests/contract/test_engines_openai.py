"""What the openai engine makes of servers that hang, lie, break, or come back as another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError, ModelKeeper, ModelRefused
from tests.contract.openai_bench import engine, reason_of, until_health
from tests.unit.engines.hostile_server import JOINED, TEXT, HostileServer, hostile_server
from tests.unit.engines.recording_sink import Bench, joined, serving

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN


@pytest_asyncio.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with hostile_server() as server:
        yield server


async def test_one_url_is_enough(server: HostileServer) -> None:
    """Models, context and kind are found out; the slots are a guess, and shown as one."""
    async with serving(engine(f"{server.url}/v1"), "m") as bench:
        descriptor = bench.engine.describe()
        assert descriptor.version.startswith("vLLM")
        assert (descriptor.slots, descriptor.slots_assumed) == (16, True)
        assert descriptor.kv_capacity_tokens == 1600
        (model,) = descriptor.models
        assert (model.model, model.context_length) == ("m", 4096)
        assert bench.engine.load().running == 0  # by its metrics
        assert bench.engine.load().kv_utilization is None  # it did not say: unknown, not 0


async def test_stream_of_single_bytes_is_whole(server: HostileServer) -> None:
    """Behaviour 95: one byte per write, with CJK and 4-byte emoji."""
    async with serving(engine(server.url), "m") as bench:
        item = bench.item("bytes", stream=True)
        result = await bench.run(item)
        assert result.error is None
        assert joined(result) == TEXT == bench.sink.texts[item.dispatch_id][0, 0]


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("malformed", types_pb2.ERROR_REASON_ENGINE_ERROR),
        ("endless", types_pb2.ERROR_REASON_ENGINE_ERROR),
        ("unfinished", types_pb2.ERROR_REASON_ENGINE_ERROR),
        ("abort", types_pb2.ERROR_REASON_ENGINE_ERROR),
        ("broken", types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE),
    ],
)
async def test_what_a_sound_server_never_sends_is_its_fault(
    server: HostileServer, prompt: str, reason: types_pb2.ErrorReason
) -> None:
    """Behaviour 29: the item ends once, with what it has, and the next one runs."""
    async with serving(engine(server.url), "m") as bench:
        item = bench.item(prompt, stream=True)
        result = await bench.run(item)
        assert result.error is not None
        assert (result.error.reason, result.error.refused) == (reason, False)
        assert joined(result) == TEXT == bench.sink.texts[item.dispatch_id][0, 0]
        (after,) = bench.submit(bench.item())
        assert (await bench.sink.end(after)).error is None


async def test_character_in_two_events_comes_together(server: HostileServer) -> None:
    """Behaviour 95: spelled in JSON as two halves, or as bytes of UTF-8."""
    async with serving(engine(server.url), "m") as bench:
        item = bench.item("halves", stream=True)
        result = await bench.run(item)
        assert result.error is None
        assert joined(result) == JOINED + TEXT == bench.sink.texts[item.dispatch_id][0, 0]


async def test_usage_that_is_not_told_is_unknown(server: HostileServer) -> None:
    async with serving(engine(server.url), "m") as bench:
        told = await bench.run(bench.item("hello"))
        assert (told.input_tokens, told.output_tokens) == (7, 11)
        silent = await bench.run(bench.item("nousage"))
        assert silent.error is None
        assert silent.input_tokens is None


@pytest.mark.parametrize(
    ("status", "reason", "refused"),
    [
        (400, types_pb2.ERROR_REASON_INVALID_ARGUMENT, False),
        (422, types_pb2.ERROR_REASON_INVALID_ARGUMENT, False),
        (401, types_pb2.ERROR_REASON_PERMISSION_DENIED, False),
        (403, types_pb2.ERROR_REASON_PERMISSION_DENIED, False),
        (429, types_pb2.ERROR_REASON_ENGINE_BUSY, True),
        (503, types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True),
        (500, types_pb2.ERROR_REASON_ENGINE_ERROR, False),
    ],
)
async def test_status_tells_whose_fault_it_is(
    server: HostileServer, status: int, reason: types_pb2.ErrorReason, refused: bool
) -> None:
    """Behaviours 59 and 60: the caller's faults and a full engine are no faults of the node."""
    async with serving(engine(server.url), "m") as bench:
        assert await reason_of(bench, str(status)) == (reason, refused)


async def test_fifty_faults_of_callers_leave_the_engine_serving(server: HostileServer) -> None:
    """Behaviour 59."""
    async with serving(engine(server.url), "m") as bench:
        for _ in range(25):
            too_long = (await bench.run(bench.item("x " * 400))).error
            assert too_long is not None
            assert too_long.reason == types_pb2.ERROR_REASON_CONTEXT_TOO_LONG
            assert too_long.metadata == {"promptTokens": "800", "contextLength": "500"}
            assert (await reason_of(bench, "400"))[0] == types_pb2.ERROR_REASON_INVALID_ARGUMENT
        assert bench.engine.load().health == SERVING
        assert (await bench.run(bench.item())).error is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"messages": [{"content": "who?"}]}, types_pb2.ERROR_REASON_INVALID_ARGUMENT),
        ({"tools": [{"type": "web"}]}, types_pb2.ERROR_REASON_INVALID_ARGUMENT),
        ({"reasoning_format": "odd"}, types_pb2.ERROR_REASON_INVALID_ARGUMENT),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, types_pb2.ERROR_REASON_INVALID_ARGUMENT),
        ({"image": "data:image/png;base64,AAAA"}, types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE),
    ],
)
async def test_what_llamacpp_answers_500_to_is_the_callers_fault(
    llamacpp_url: str, body: dict[str, Any], reason: types_pb2.ErrorReason
) -> None:
    """Behaviour 59: a raw body that its server cannot read counts against no node."""
    content: Any = "go"
    if "image" in body:
        content = [{"type": "image_url", "image_url": {"url": body["image"]}}]
    whole = {"messages": [{"role": "user", "content": content}], **body}
    request = inference_pb2.InferenceRequest()
    request.raw.content_type = "application/json; api=openai.chat.v1"
    request.raw.data = json.dumps(whole).encode()
    async with serving(engine(llamacpp_url), "m") as bench:
        error = (await bench.run(bench.item(request=request))).error
        assert error is not None
        assert error.reason == reason, error.message


async def test_engine_that_hangs_is_taken_out_and_comes_back_by_a_trial(
    server: HostileServer,
) -> None:
    """Behaviour 22: the limit fires by itself; no operator is needed afterwards."""
    options = {"first_token_timeout": "200ms", "trial_interval": "50ms"}
    async with serving(engine(server.url, **options), "m") as bench:
        server.hangs = True
        (dispatch_id,) = bench.submit(bench.item("hello"))
        result = await bench.sink.end(dispatch_id, within_s=2.0)
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_STALLED
        assert result.error.metadata == {"limit": "0.2s"}
        await until_health(bench, STALLED)
        assert await reason_of(bench, "hello") == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)
        server.hangs = False
        await bench.sink.until(lambda: bench.engine.load().health == SERVING, within_s=30)
        assert (await bench.run(bench.item())).error is None


async def test_first_token_and_idle_have_limits_of_their_own(server: HostileServer) -> None:
    """Behaviour 23: a stream with pauses below the idle limit outlives both."""
    options = {"first_token_timeout": "350ms", "idle_timeout": "350ms"}
    async with serving(engine(server.url, **options), "m") as bench:
        result = await bench.run(bench.item("slow", stream=True))
        assert result.error is None
        assert joined(result) == f"slowly{TEXT}"
        (held,) = bench.submit(bench.item("hold", stream=True))
        result = await bench.sink.end(held, within_s=2.0)
        assert result.error is not None
        assert "idle_timeout" in result.error.message
        assert joined(result) == "a"


async def test_cancel_closes_the_connection_in_every_phase(server: HostileServer) -> None:
    """Behaviours 38, 39 and 40: before the first byte, in mid-stream, and where nothing streams."""
    async with serving(engine(server.url), "m") as bench:
        for prompt, stream in (("silent", True), ("hold", True), ("silent", False)):
            (dispatch_id,) = bench.submit(bench.item(prompt, stream=stream))
            await bench.sink.until(lambda: server.open == 1)
            await bench.cancel(dispatch_id)
            await bench.sink.until(lambda: server.open == 0, within_s=1.0)


async def test_work_goes_on_when_the_server_was_away(server: HostileServer) -> None:
    async with serving(engine(server.url), "m") as bench:
        for _ in range(2):
            (dispatch_id,) = bench.submit(bench.item("hold", stream=True))
            await bench.sink.until(lambda i=dispatch_id: bench.sink.pieces[i])
            await server.stop()
            result = await bench.sink.end(dispatch_id, within_s=2.0)
            assert result.error is not None
            assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
            await until_health(bench, DOWN)
            assert bench.engine.load().running is None
            assert (await reason_of(bench, "x"))[1]  # refused: it may go elsewhere
            server.models = [{"id": "m", "max_model_len": 9999}]
            server.loading = 2
            await server.start()
            await until_health(bench, SERVING)
            assert bench.engine.describe().models[0].context_length == 9999
            assert (await bench.run(bench.item())).error is None


async def test_slow_start_is_waited_for_and_told(server: HostileServer) -> None:
    """Behaviours 25 and 111: loading has its own time-out; no work before the first answer."""
    server.loading = 5
    built = engine(server.url)
    bench = Bench(built, "m")
    starting = asyncio.create_task(built.start(bench.sink))
    await bench.sink.until(lambda: "503" in built.load().message)
    assert built.load().health == STARTING
    assert built.load().model_states == {"m": types_pb2.MODEL_STATE_LOADING}
    assert [model.model for model in built.describe().models] == ["m"]
    assert (await bench.run(bench.item())).error is not None
    await starting
    assert built.load().health == SERVING
    await built.stop(0)
    server.loading = 10**6
    late = engine(server.url, start_timeout="200ms")
    with pytest.raises(EngineStartError, match="503"):
        await late.start(Bench(late, "m").sink)


async def test_adapters_are_found_while_it_runs_and_share_its_slots(server: HostileServer) -> None:
    """As vLLM lists them: what fits into an adapter's context is only told of its base."""
    async with serving(engine(server.url, slots=2), "m") as bench:
        server.models.append({"id": "lora", "parent": "m", "max_model_len": None})
        await bench.sink.until(lambda: len(bench.engine.describe().models) == 2)
        adapter = bench.engine.describe().models[1]
        assert (adapter.model, adapter.base_model) == ("lora", "m")
        assert adapter.context_length == 4096
        active = types_pb2.MODEL_STATE_ACTIVE
        await bench.sink.until(lambda: bench.engine.load().model_states["lora"] == active)
        items = [bench.item("silent") for _ in range(3)]
        items[1].model = "lora"
        ids = bench.submit(*items)
        refused = (await bench.sink.end(ids[2])).error
        assert refused is not None
        assert refused.reason == types_pb2.ERROR_REASON_ENGINE_BUSY
        await bench.sink.until(lambda: server.open == 2)
        for dispatch_id in ids[:2]:
            await bench.cancel(dispatch_id)
        server.models.pop()
        await bench.sink.until(lambda: len(bench.engine.describe().models) == 1)


async def test_adapter_is_loaded_and_unloaded_by_the_server(server: HostileServer) -> None:
    """Loading is seen, and a first answer comes before work; a base model is never unloaded."""
    async with serving(engine(server.url), "m") as bench:
        built = bench.engine
        assert isinstance(built, ModelKeeper)
        server.adapter_may_load.clear()
        loading = asyncio.create_task(built.load_model("lora", {"lora_path": "/adapters/a"}))
        await bench.sink.until(lambda: "lora" in built.load().model_states)
        assert built.load().model_states["lora"] == types_pb2.MODEL_STATE_LOADING
        before = len(server.bodies)
        server.adapter_may_load.set()
        await loading
        assert [body["model"] for body in server.bodies[before:]] == ["lora"]
        assert built.load().model_states["lora"] == types_pb2.MODEL_STATE_ACTIVE
        assert built.describe().models[1].base_model == "m"
        assert built.why_not_unload("lora") is None
        await built.unload_model("lora")
        assert [model.model for model in built.describe().models] == ["m"]
        stays = built.why_not_unload("m")
        assert stays is not None
        assert stays.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
        with pytest.raises(ModelRefused, match="must be provided"):
            await built.load_model("lora", {})
        server.updates_adapters = False
        with pytest.raises(ModelRefused, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING") as refused:
            await built.load_model("lora", {"lora_path": "/a"})
        assert refused.value.error.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
        assert [model.model for model in built.describe().models] == ["m"]
    server.owner = "somebody"
    async with serving(engine(server.url), "m") as bench:
        assert isinstance(bench.engine, ModelKeeper)
        with pytest.raises(ModelRefused, match="cannot load models"):
            await bench.engine.load_model("lora", {"lora_path": "/a"})


async def test_guessed_slots_follow_what_the_engine_shows(server: HostileServer) -> None:
    """Behaviour 2: what waits inside the engine is taken back to the scheduler."""
    server.runs_at_once = 5
    async with serving(engine(server.url), "m") as bench:
        ids = bench.submit(*(bench.item("silent") for _ in range(9)))
        await bench.sink.until(lambda: bench.engine.describe().slots == 5)
        assert bench.engine.load().waiting == 4
        for dispatch_id in ids:
            await bench.cancel(dispatch_id)


async def test_priority_is_told_only_to_a_server_that_takes_it(server: HostileServer) -> None:
    """vLLM answers any priority with an error unless it schedules by it; lower is more urgent."""
    async with serving(engine(server.url), "m") as bench:
        await bench.run(bench.item())
        assert "priority" not in server.bodies[-1]
    server.takes_priority = True
    async with serving(engine(server.url), "m") as bench:
        sent = []
        for urgency in (9, 2):
            item = bench.item()
            item.priority = urgency
            await bench.run(item)
            sent.append(server.bodies[-1]["priority"])
        assert sent == [-4, 3]


async def test_traces_and_ids_travel_with_the_call(server: HostileServer) -> None:
    async with serving(engine(server.url), "m") as bench:
        item = bench.item()
        item.traceparent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        await bench.run(item)
        assert server.headers[-1]["traceparent"] == item.traceparent
        assert server.headers[-1]["X-Request-Id"] == f"batchyard-{item.dispatch_id:x}"


async def test_raw_body_goes_through_with_what_we_do_not_know(server: HostileServer) -> None:
    """Behaviour 98: the server gets its own name of the model, the caller the public one."""
    async with serving(engine(server.url, models={"public": "m"}), "public") as bench:
        body = {
            "model": "public",
            "messages": [{"role": "user", "content": "hi"}],
            "new_key": {"deep": 1.5},
            "stream": True,
            "priority": 77,
        }
        raw = inference_pb2.RawInput(
            content_type="application/json; api=openai.chat.v1", data=json.dumps(body).encode()
        )
        request = inference_pb2.InferenceRequest(raw=raw)
        whole = await bench.run(bench.item(request=request))
        sent = server.bodies[-1]
        assert (sent["model"], sent["stream"], sent["new_key"]) == ("m", False, {"deep": 1.5})
        assert "priority" not in sent
        (output,) = whole.outputs
        answer = json.loads(output.raw.data)
        assert (answer["model"], answer["odd"]) == ("public", 2**60)
        item = bench.item(request=request, stream=True)
        streamed = await bench.run(item)
        assert server.bodies[-1]["stream"] is True
        assert joined(streamed) == TEXT == bench.sink.texts[item.dispatch_id][0, 0]


async def test_vectors_come_in_the_order_of_their_texts(server: HostileServer) -> None:
    async with serving(engine(server.url), "m") as bench:
        embedding = inference_pb2.EmbeddingInput(texts=["a", "b", "c"], dimensions=2)
        request = inference_pb2.InferenceRequest(embedding=embedding)
        result = await bench.run(bench.item(request=request))
        assert [list(o.embedding) for o in result.outputs] == [[0, 0.5], [1, 0.5], [2, 0.5]]
        assert server.bodies[-1]["dimensions"] == 2
        assert result.input_tokens == 3


async def test_images_and_tools_keep_their_form(server: HostileServer) -> None:
    async with serving(engine(server.url), "m") as bench:
        chat = inference_pb2.ChatInput(tool_choice="look")
        chat.tools_json = '[{"type":"function","function":{"name":"look","x":9007199254740993}}]'
        message = chat.messages.add(role="user")
        message.parts.add(text="what is it?")
        message.parts.add().image.CopyFrom(
            inference_pb2.PayloadRef(inline=b"png!", media_type="image/png")
        )
        request = inference_pb2.InferenceRequest(chat=chat)
        item = bench.item(request=request, json_schema='{"type":"object"}')
        assert (await bench.run(item)).error is None
        sent = server.bodies[-1]
        assert sent["tools"][0]["function"]["x"] == 2**53 + 1
        assert sent["tool_choice"] == {"type": "function", "function": {"name": "look"}}
        assert (
            sent["messages"][0]["content"][1]["image_url"]["url"]
            == "data:image/png;base64,cG5nIQ=="
        )
        assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
        request.chat.messages[0].parts.add().image.uri = "http://169.254.169.254/secret"
        error = (await bench.run(bench.item(request=request))).error
        assert error is not None
        assert error.reason == types_pb2.ERROR_REASON_PERMISSION_DENIED


async def test_what_a_server_cannot_do_is_refused_by_name(server: HostileServer) -> None:
    server.owner = "library"  # Ollama
    async with serving(engine(server.url), "m") as bench:
        assert bench.engine.describe().slots == 1
        for params in ({"regex": "a+"}, {"min_tokens": 3}, {"stop_token_ids": [1]}):
            error = (await bench.run(bench.item(**params))).error
            assert error is not None
            assert error.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
            assert error.metadata == {"feature": next(iter(params))}


async def test_server_may_stand_below_a_path() -> None:
    """As behind a gateway: every one of its addresses begins with it."""
    server = HostileServer()
    await server.start("/models/openai")
    try:
        async with serving(engine(f"{server.url}/v1"), "m") as bench:
            assert bench.engine.load().running == 0
            assert (await bench.run(bench.item())).error is None
    finally:
        await server.stop()


async def test_what_cannot_be_read_of_a_server_never_ends_the_watch_over_it(
    server: HostileServer,
) -> None:
    """Odd metrics are unknown; the end of the server and its return are still seen."""
    async with serving(engine(server.url), "m") as bench:
        server.metrics = (
            "vllm:num_requests_running 1e300\nvllm:num_requests_running 1e308\n"
            "vllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc NaN\n"
            'vllm:cache_config_info{block_size="\u00b2",num_gpu_blocks="999999999999"} 1\n'
        )
        await bench.sink.until(lambda: bench.engine.load().running is None)
        load = bench.engine.load()
        assert (load.waiting, load.kv_utilization) == (None, None)
        assert not bench.engine.describe().HasField("kv_capacity_tokens")
        await server.stop()
        await until_health(bench, DOWN)
        server.metrics = ""
        await server.start()
        await until_health(bench, SERVING)


async def test_model_that_did_not_answer_once_is_asked_again(server: HostileServer) -> None:
    failed, active = types_pb2.MODEL_STATE_FAILED, types_pb2.MODEL_STATE_ACTIVE
    server.models.append({"id": "late"})
    server.refuses["late"] = 503
    async with serving(engine(server.url), "m") as bench:
        await bench.sink.until(lambda: bench.engine.load().model_states["late"] == failed)
        server.refuses.clear()
        await bench.sink.until(lambda: bench.engine.load().model_states["late"] == active)


async def test_engine_that_hung_and_has_other_models_now_serves_them(
    server: HostileServer,
) -> None:
    options = {"first_token_timeout": "200ms", "trial_interval": "50ms"}
    async with serving(engine(server.url, **options), "m") as bench:
        server.hangs = True
        (dispatch_id,) = bench.submit(bench.item())
        await bench.sink.until(lambda: server.open == 1)
        server.models = [{"id": "other"}]
        await bench.sink.until(lambda: "other" in bench.engine.load().model_states)
        assert (await bench.sink.end(dispatch_id)).error is not None
        await until_health(bench, STALLED)
        server.hangs = False
        await until_health(bench, SERVING)
        bench.model = "other"
        await bench.sink.until(
            lambda: bench.engine.load().model_states["other"] == types_pb2.MODEL_STATE_ACTIVE
        )
        assert (await bench.run(bench.item())).error is None


async def test_server_that_became_another_between_two_looks_is_noticed(
    server: HostileServer,
) -> None:
    async with serving(engine(server.url), "m") as bench:
        server.models[0]["max_model_len"] = 512
        await bench.sink.until(lambda: bench.engine.describe().models[0].context_length == 512)
        assert bench.engine.load().model_states["m"] == types_pb2.MODEL_STATE_ACTIVE
        server.owner = "library"
        await bench.sink.until(lambda: bench.engine.describe().slots == 1)
        assert bench.engine.describe().version.startswith("Ollama")
        await until_health(bench, SERVING)


async def test_counts_that_no_message_can_hold_are_unknown(server: HostileServer) -> None:
    """Behaviour 29: one odd answer costs neither its item nor the session of all others."""
    async with serving(engine(server.url), "m") as bench:
        for odd in (2**70, "7", -1, 1.5, None):
            server.usage = {"prompt_tokens": odd, "completion_tokens": odd}
            result = await bench.run(bench.item())
            assert result.error is None
            assert result.input_tokens is None
            assert result.output_tokens == len(TEXT)  # counted


async def test_vectors_are_as_many_as_texts_and_made_of_numbers(server: HostileServer) -> None:
    texts = inference_pb2.EmbeddingInput(texts=["a", "b"])
    async with serving(engine(server.url), "m") as bench:
        for vectors in ([], [[1.0]], [[1.0]] * 3, [[1.0], []], [[1.0], [1e60]]):
            server.vectors = vectors
            request = inference_pb2.InferenceRequest(embedding=texts)
            error = (await bench.run(bench.item(request=request))).error
            assert error is not None
            assert error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR


async def test_models_whose_names_no_node_can_tell_are_left_out(server: HostileServer) -> None:
    """The scheduler would refuse the whole node."""
    odd = ["", "x" * 257, "\ud800", "two\nlines", "m"]
    server.models += [{"id": name, "max_model_len": 2**40} for name in odd]
    async with serving(engine(server.url), "m") as bench:
        (model,) = bench.engine.describe().models
        assert model.model == "m"
        assert not model.HasField("context_length")
        server.models += [{"id": f"m{i}"} for i in range(1500)]
        await bench.sink.until(lambda: len(bench.engine.describe().models) == 500)
