"""Every engine keeps the rules of node_agent/engines/interface.py: one suite for all kinds.

The llama.cpp engine serves the tiny random model through the same code as a real one. Kinds differ
in speed only: `Kind` says how an item is made that runs long enough to be cancelled or killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.registry import build_engine
from node_agent.engines.simulated_text import is_seamless
from scripts.make_tiny_model import write_tiny_model
from tests.unit.engines.llamacpp_http import llamacpp_server
from tests.unit.engines.recording_sink import Bench, joined, serving

SLOTS = 4
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STARTING = node_service_pb2.ENGINE_HEALTH_STARTING


@dataclass(frozen=True)
class Kind:
    """How to build an engine for these tests, and what keeps it busy for seconds."""

    name: str
    options: dict[str, Any]
    long_prompt: str  # before its first token
    long_output: dict[str, Any]  # parameters


SIMULATED = {
    "slots": SLOTS,
    "latency": "5ms",
    "latency_per_item": "1ms",
    "latency_per_token": "1ms",
    "kv_capacity_tokens": 100000,
    "warm_up": "50ms",
    "models": [{"name": "m", "context_length": 30000}],
}
LLAMACPP = {
    "model": "m",
    "slots": SLOTS,
    "threads": 1,
    "context_per_slot": 30000,
    "batch_tokens": 256,
    "poll_interval": "50ms",
}
OPENAI = {"poll_interval": "50ms"}
KINDS = {
    "static": Kind(
        "simulated", {**SIMULATED, "mode": "static"}, "[[sleep=60s]]", {"max_tokens": 5000}
    ),
    "continuous": Kind("simulated", SIMULATED, "[[sleep=60s]]", {"max_tokens": 5000}),
    "llamacpp": Kind("llamacpp", LLAMACPP, "long ago " * 3000, {"max_tokens": 20000}),
    "openai": Kind("openai", OPENAI, "long ago " * 3000, {"max_tokens": 20000}),
}
Start = Callable[..., Awaitable[Bench]]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return str(path)


@pytest.fixture(scope="session")
def llamacpp_url(tiny_model: str) -> Iterator[str]:
    """A server that runs already, for engines that attach to one."""
    with llamacpp_server(tiny_model, slots=SLOTS) as server:
        yield server.url


@pytest.fixture
def needs(kind: Kind, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options that only this machine knows."""
    if kind.name == "llamacpp":
        return {"model_path": request.getfixturevalue("tiny_model")}
    if kind.name == "openai":
        return {"url": request.getfixturevalue("llamacpp_url")}
    return {}


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest_asyncio.fixture
async def start(kind: Kind, needs: dict[str, Any]) -> AsyncIterator[Start]:
    """Build and start engines of `kind`; at the end they stop, idle, with every rule kept."""
    async with AsyncExitStack() as stack:

        async def start_one(**options: Any) -> Bench:
            options = {**kind.options, **needs, **options}
            engine = build_engine(engine_id="e1", kind=kind.name, options=options)
            return await stack.enter_async_context(serving(engine, "m"))

        yield start_one


async def test_every_item_ends_exactly_once(start: Start) -> None:
    """Behaviours 28 to 30: whatever ends an item, its slot comes back."""
    bench = await start()
    stranger = bench.item()
    stranger.model = "nobody"
    empty = bench.item("", max_tokens=3)
    bench.submit(bench.item(max_tokens=3), stranger, empty, bench.item(max_tokens=4, stream=True))
    await bench.sink.until(lambda: len(bench.sink.results) == 4)
    for _ in range(20):
        (dispatch_id,) = bench.submit(bench.item(max_tokens=50, stream=True))
        bench.engine.cancel(dispatch_id, types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)
        bench.engine.cancel(dispatch_id, types_pb2.ERROR_REASON_DEADLINE_EXCEEDED)  # once is enough
        await bench.sink.end(dispatch_id, within_s=1.0)
    bench.engine.cancel(1, types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)  # finished
    bench.engine.cancel(999, types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)  # unknown
    last = bench.submit(*(bench.item(max_tokens=3) for _ in range(SLOTS)))
    await bench.sink.until(lambda: bench.sink.results.keys() >= set(last))
    assert {bench.sink.results[i].error for i in last} == {None}
    await bench.until_idle()


async def test_streamed_text_is_the_whole_answer(start: Start) -> None:
    bench = await start()
    streamed, whole = bench.submit(
        bench.item("tell me", stream=True, max_tokens=24, temperature=0.0),
        bench.item("tell me", max_tokens=24, temperature=0.0),
    )
    result, other = await bench.sink.end(streamed), await bench.sink.end(whole)
    assert len(bench.sink.pieces[streamed]) > 1
    assert bench.sink.texts[streamed] == {(0, 0): joined(result)}
    assert bench.sink.delta_tokens[streamed] == result.output_tokens == 24
    assert whole not in bench.sink.pieces
    assert len(joined(other)) == len(joined(result))
    assert result.finish_reason == other.finish_reason == types_pb2.FINISH_REASON_LENGTH


async def test_cancel_during_prefill_frees_the_slot(start: Start, kind: Kind) -> None:
    """Behaviours 38 and 39: before the first token too, streaming or not."""
    bench = await start()
    for stream in (True, False):
        (dispatch_id,) = bench.submit(bench.item(kind.long_prompt, stream=stream, max_tokens=9))
        await bench.sink.until(lambda: bench.engine.load().running == 1)
        result = await bench.cancel(dispatch_id)
        assert result.finish_reason == types_pb2.FINISH_REASON_CANCELLED
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT
        assert joined(result) == ""
        await bench.until_idle(within_s=1.0)


async def test_cancel_in_mid_stream_keeps_what_was_sent(start: Start, kind: Kind) -> None:
    """Behaviour 38."""
    bench = await start()
    (dispatch_id,) = bench.submit(bench.item(stream=True, **kind.long_output))
    await bench.sink.until(lambda: len(bench.sink.pieces[dispatch_id]) >= 3)
    result = await bench.cancel(dispatch_id)
    assert result.finish_reason == types_pb2.FINISH_REASON_CANCELLED
    assert joined(result) == bench.sink.texts[dispatch_id][0, 0] != ""
    assert result.output_tokens
    await bench.until_idle(within_s=1.0)


async def test_cancelled_whole_answer_gives_its_beginning(start: Start, kind: Kind) -> None:
    """A preempted job item goes on from there, streamed or not."""
    bench = await start()
    (dispatch_id,) = bench.submit(bench.item(ignore_eos=True, **kind.long_output))
    idle_use = bench.engine.load().kv_utilization
    await bench.sink.until(
        lambda: (bench.engine.load().kv_utilization or 0) > 0.001 + (idle_use or 0)
    )
    bench.engine.cancel(dispatch_id, types_pb2.ERROR_REASON_PREEMPTED)
    result = await bench.sink.end(dispatch_id, within_s=1.0)
    assert result.error is not None
    assert result.error.reason == types_pb2.ERROR_REASON_PREEMPTED
    assert joined(result) != ""
    assert dispatch_id not in bench.sink.pieces


async def test_no_more_is_taken_than_slots(start: Start, kind: Kind) -> None:
    """Behaviour 2: the backlog stays with the scheduler."""
    bench = await start()
    ids = bench.submit(*(bench.item(kind.long_prompt, max_tokens=5) for _ in range(SLOTS + 1)))
    refused = await bench.sink.end(ids[-1])
    assert refused.error is not None
    assert refused.error.reason == types_pb2.ERROR_REASON_ENGINE_BUSY
    assert refused.error.refused
    for dispatch_id in ids[:-1]:
        assert (await bench.cancel(dispatch_id)).error is not None


async def test_look_ahead_waits_for_a_slot(start: Start, kind: Kind) -> None:
    bench = await start(look_ahead=1)
    first, *_, second, waiting = bench.submit(
        *(bench.item(**kind.long_output) for _ in range(SLOTS)), bench.item(max_tokens=3)
    )
    await bench.sink.until(lambda: first in bench.sink.started)
    assert waiting not in bench.sink.started
    assert bench.engine.load().waiting == 1
    for dispatch_id in range(first, second + 1):
        await bench.cancel(dispatch_id)
    assert (await bench.sink.end(waiting)).error is None


async def test_unknown_model_may_go_elsewhere(start: Start) -> None:
    bench = await start()
    item = bench.item()
    item.model = "nobody"
    error = (await bench.run(item)).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_MODEL_NOT_FOUND, True)
    assert "m" in error.message


async def test_empty_input_is_the_callers_fault(start: Start) -> None:
    """Behaviour 82."""
    bench = await start()
    inputs = [
        inference_pb2.InferenceRequest(),
        inference_pb2.InferenceRequest(text=inference_pb2.TextInput()),
        inference_pb2.InferenceRequest(chat=inference_pb2.ChatInput()),
        inference_pb2.InferenceRequest(tokens=inference_pb2.TokenInput()),
    ]
    for request in inputs:
        error = (await bench.run(bench.item(request=request))).error
        assert error is not None
        assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
        assert error.field.startswith("request.")
    assert (await bench.run(bench.item(max_tokens=2))).error is None


async def test_too_long_a_prompt_says_both_lengths(start: Start) -> None:
    bench = await start()
    error = (await bench.run(bench.item("word " * 60000, max_tokens=2))).error
    assert error is not None
    assert error.reason == types_pb2.ERROR_REASON_CONTEXT_TOO_LONG
    assert int(error.metadata["promptTokens"]) > int(error.metadata["contextLength"]) > 29000


async def test_input_that_it_cannot_read_is_refused_by_name(start: Start) -> None:
    bench = await start()
    request = inference_pb2.InferenceRequest(ref=inference_pb2.PayloadRef(uri="https://x/y"))
    error = (await bench.run(bench.item(request=request))).error
    assert error is not None
    assert error.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
    assert error.field == "request.ref"
    assert error.metadata["feature"] == "ref"


async def test_chinese_chat_is_answered_in_whole_code_points(start: Start) -> None:
    """Behaviour 95: hot sampling makes the tiny model write stray bytes; none gets out."""
    bench = await start()
    chat = inference_pb2.ChatInput()
    chat.messages.add(role="system").parts.add(text="用中文回答。")
    chat.messages.add(role="user").parts.add(text="你好，请介绍一下长城。🙂")
    request = inference_pb2.InferenceRequest(chat=chat)
    item = bench.item(
        request=request, stream=True, max_tokens=200, temperature=5.0, top_k=-1, seed=3
    )
    result = await bench.run(item)
    assert result.error is None
    assert bench.sink.texts[item.dispatch_id][0, 0] == joined(result)


async def test_usage_and_times_are_counted(start: Start) -> None:
    bench = await start()
    result = await bench.run(bench.item("count me in", max_tokens=7))
    assert result.input_tokens
    assert result.output_tokens == 7
    for seconds in (result.prefill_s, result.decode_s, result.engine_queue_s):
        assert seconds is not None
        assert 0 <= seconds < 10


async def test_choices_are_counted_and_told_apart(start: Start) -> None:
    bench = await start()
    item = bench.item(stream=True, n=3, max_tokens=6, temperature=2.0, seed=1)
    result = await bench.run(item)
    assert [output.index for output in result.outputs] == [0, 1, 2]
    assert bench.sink.texts[item.dispatch_id] == {
        (i, 0): joined(result, i) for i in range(3) if joined(result, i)
    }
    assert result.output_tokens == 18
    assert bench.engine.load().running == 0


async def test_stop_text_ends_the_output_before_it(start: Start) -> None:
    bench = await start()
    whole = joined(await bench.run(bench.item("go", max_tokens=30, temperature=0.0, seed=1)))
    stop = ":" if ":" in whole else whole[7:9]
    item = bench.item("go", stream=True, max_tokens=30, temperature=0.0, seed=1, stop=[stop])
    result = await bench.run(item)
    assert result.finish_reason == types_pb2.FINISH_REASON_STOP
    assert joined(result) == whole[: whole.index(stop)]
    assert bench.sink.texts[item.dispatch_id][0, 0] == joined(result)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_continuation_goes_on_and_repeats_nothing(start: Start, stream: bool) -> None:
    bench = await start()
    greedy: dict[str, Any] = {"max_tokens": 40, "temperature": 0.0}
    whole = joined(await bench.run(bench.item("once upon", **greedy)))
    first = bench.item("once upon", stream=True, max_tokens=12, temperature=0.0)
    head = joined(await bench.run(first))
    continuation = node_service_pb2.Continuation(text=head, output_tokens=12)
    second = bench.item("once upon", attempt=2, stream=stream, continuation=continuation, **greedy)
    result = await bench.run(second)
    tail = joined(result)
    assert result.output_tokens == 28
    assert bench.sink.texts[second.dispatch_id][0, 0] == (tail if stream else "")
    assert len(head + tail) == len(whole)
    if head == whole[: len(head)]:  # greedy decoding of a true model
        assert head + tail == whole
    else:
        assert is_seamless(head + tail)


async def test_continuation_of_a_finished_output_adds_nothing(start: Start) -> None:
    bench = await start()
    head = joined(await bench.run(bench.item(max_tokens=5)))
    continuation = node_service_pb2.Continuation(text=head, output_tokens=5)
    result = await bench.run(bench.item(continuation=continuation, max_tokens=5))
    assert result.error is None
    assert result.finish_reason == types_pb2.FINISH_REASON_LENGTH
    assert joined(result) == ""


async def test_load_follows_the_work(start: Start, kind: Kind) -> None:
    bench = await start()
    load = bench.engine.load()
    assert (load.health, load.running, load.waiting) == (SERVING, 0, 0)
    assert load.model_states == {"m": types_pb2.MODEL_STATE_ACTIVE}
    ids = bench.submit(*(bench.item(**kind.long_output) for _ in range(2)))
    await bench.sink.until(
        lambda: bench.engine.load().running == 2 and bench.engine.load().kv_utilization
    )
    assert 0 < (bench.engine.load().kv_utilization or 0) <= 1
    for dispatch_id in ids:
        await bench.cancel(dispatch_id)
    await bench.until_idle()


async def test_prompts_that_are_not_read_yet_are_counted(start: Start, kind: Kind) -> None:
    """The backlog of prompts shrinks to nothing while they are read, and is never made up."""
    bench = await start(look_ahead=1)
    backlog = lambda: bench.engine.load().prefill_backlog_tokens  # noqa: E731
    assert backlog() == 0
    held = [bench.item(kind.long_prompt, stream=True, max_tokens=2) for _ in range(SLOTS)]
    ids = bench.submit(*held, bench.item(kind.long_prompt, max_tokens=2))
    await bench.sink.until(lambda: backlog())
    for dispatch_id in ids:
        bench.engine.cancel(dispatch_id, types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)
    await bench.sink.until(lambda: backlog() == 0)


async def test_descriptor_says_what_it_can(start: Start, kind: Kind) -> None:
    bench = await start()
    descriptor = bench.engine.describe()
    assert (descriptor.engine_id, descriptor.kind, descriptor.slots) == ("e1", kind.name, SLOTS)
    (model,) = descriptor.models
    assert (model.model, model.streaming, model.resumable) == ("m", True, True)
    assert 29000 < model.context_length <= 30000 + 256


async def test_engine_serves_from_the_end_of_its_start(kind: Kind, needs: dict[str, Any]) -> None:
    """Behaviour 111: ready by a real answer; until then work is refused, not lost."""
    engine = build_engine(engine_id="e1", kind=kind.name, options={**kind.options, **needs})
    bench = Bench(engine, "m")
    try:
        starting = asyncio.create_task(engine.start(bench.sink))
        await asyncio.sleep(0)
        assert engine.load().health == STARTING
        error = (await bench.run(bench.item(max_tokens=2))).error
        assert error is not None
        assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)
        await starting
        assert engine.load().health == SERVING
        assert (await bench.run(bench.item(max_tokens=2))).error is None
    finally:
        await engine.stop(0)


async def test_stop_lets_work_finish_within_its_grace(start: Start) -> None:
    bench = await start()
    (dispatch_id,) = bench.submit(bench.item(max_tokens=20))
    await bench.engine.stop(grace_s=10)
    assert bench.sink.results[dispatch_id].error is None
    error = (await bench.run(bench.item())).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)


async def test_stop_ends_what_outlasts_its_grace(start: Start, kind: Kind) -> None:
    bench = await start()
    (dispatch_id,) = bench.submit(bench.item(kind.long_prompt, max_tokens=20))
    await bench.sink.until(lambda: bench.engine.load().running == 1)
    await bench.engine.stop(grace_s=0.05)
    error = bench.sink.results[dispatch_id].error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, False)
