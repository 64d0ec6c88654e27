"""Every engine keeps the rules of node_agent/engines/interface.py: one suite for all kinds.

The llama.cpp engine serves the tiny random model through the same code as a real one; with
`--engines` the real vLLM and the real Triton keep it, too. `engine_kinds.py` says how an item is
made that runs long enough to be cancelled or killed, and what a kind lacks.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import ModelKeeper, ModelRefused
from node_agent.engines.registry import build_engine
from node_agent.engines.simulated_text import is_seamless
from tests.contract.conftest import Start
from tests.contract.engine_kinds import SLOTS, Kind
from tests.unit.engines.recording_sink import Bench, joined

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STARTING = node_service_pb2.ENGINE_HEALTH_STARTING


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


@pytest.mark.needs("streams")
async def test_streamed_text_is_the_whole_answer(start: Start, kind: Kind) -> None:
    bench = await start()
    streamed, whole = bench.submit(
        bench.item("tell me", stream=True, max_tokens=24, temperature=0.0),
        bench.item("tell me", max_tokens=24, temperature=0.0),
    )
    result, other = await bench.sink.end(streamed), await bench.sink.end(whole)
    assert len(bench.sink.pieces[streamed]) > 1
    assert bench.sink.texts[streamed] == {(0, 0): joined(result)}
    assert whole not in bench.sink.pieces
    assert len(joined(other)) == len(joined(result)) > 0
    assert result.finish_reason == other.finish_reason
    if "parameters" not in kind.lacks:
        assert result.finish_reason == types_pb2.FINISH_REASON_LENGTH
        assert bench.sink.delta_tokens[streamed] == result.output_tokens == 24


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


@pytest.mark.needs("streams")
async def test_cancel_in_mid_stream_keeps_what_was_sent(start: Start, kind: Kind) -> None:
    """Behaviour 38."""
    bench = await start()
    (dispatch_id,) = bench.submit(bench.item(stream=True, **kind.long_output))
    await bench.sink.until(lambda: len(bench.sink.pieces[dispatch_id]) >= 3)
    result = await bench.cancel(dispatch_id)
    assert result.finish_reason == types_pb2.FINISH_REASON_CANCELLED
    assert joined(result) == bench.sink.texts[dispatch_id][0, 0] != ""
    assert bool(result.output_tokens) == ("usage" not in kind.lacks)
    await bench.until_idle(within_s=1.0)


@pytest.mark.needs("cache")
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


async def test_empty_input_is_the_callers_fault(start: Start, kind: Kind) -> None:
    """Behaviour 82. What a kind does not take at all is refused as such, filled or empty."""
    bench = await start()
    wrong = {types_pb2.ERROR_REASON_INVALID_ARGUMENT}
    if "chat" in kind.lacks:
        wrong.add(types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE)
    inputs = [
        inference_pb2.InferenceRequest(),
        inference_pb2.InferenceRequest(text=inference_pb2.TextInput()),
        inference_pb2.InferenceRequest(chat=inference_pb2.ChatInput()),
        inference_pb2.InferenceRequest(tokens=inference_pb2.TokenInput()),
    ]
    for request in inputs:
        error = (await bench.run(bench.item(request=request))).error
        assert error is not None
        assert error.reason in wrong
        assert error.field.startswith("request.")
    assert (await bench.run(bench.item(max_tokens=2))).error is None


@pytest.mark.needs("context")
async def test_too_long_a_prompt_says_both_lengths(start: Start) -> None:
    bench = await start()
    error = (await bench.run(bench.item("word " * 60000, max_tokens=2))).error
    assert error is not None
    assert error.reason == types_pb2.ERROR_REASON_CONTEXT_TOO_LONG
    assert int(error.metadata["promptTokens"]) > int(error.metadata["contextLength"]) > 29000
    assert error.field == "request.text"
    assert not error.refused, "it would be sent to another node"


async def test_input_that_it_cannot_read_is_refused_by_name(start: Start) -> None:
    bench = await start()
    request = inference_pb2.InferenceRequest(ref=inference_pb2.PayloadRef(uri="https://x/y"))
    error = (await bench.run(bench.item(request=request))).error
    assert error is not None
    assert error.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
    assert error.field == "request.ref"
    assert error.metadata["feature"] == "ref"


@pytest.mark.needs("chat", "parameters")
async def test_chinese_chat_is_answered_in_whole_code_points(start: Start) -> None:
    """Behaviour 95: hot sampling makes the tiny model write stray bytes; none gets out."""
    bench = await start()
    chat = inference_pb2.ChatInput()
    chat.messages.add(role="system").parts.add(text="用中文回答。")
    chat.messages.add(role="user").parts.add(text="你好，请介绍一下长城。🙂")
    request = inference_pb2.InferenceRequest(chat=chat)
    item = bench.item(
        request=request, stream=True, max_tokens=200, temperature=2.0, top_k=-1, seed=3
    )
    result = await bench.run(item)
    assert result.error is None
    assert bench.sink.texts[item.dispatch_id][0, 0] == joined(result)


@pytest.mark.needs("usage")
async def test_usage_and_times_are_counted(start: Start) -> None:
    bench = await start()
    result = await bench.run(bench.item("count me in", max_tokens=7))
    assert result.input_tokens
    assert result.output_tokens == 7
    for seconds in (result.prefill_s, result.decode_s, result.engine_queue_s):
        assert seconds is not None
        assert 0 <= seconds < 10


@pytest.mark.needs("parameters")
async def test_choices_are_counted_and_told_apart(start: Start) -> None:
    bench = await start()
    item = bench.item(stream=True, n=3, max_tokens=6, temperature=2.0, seed=1)
    result = await bench.run(item)
    assert [output.index for output in result.outputs] == [0, 1, 2]
    assert bench.sink.texts[item.dispatch_id] == {
        (i, 0): joined(result, i) for i in range(3) if joined(result, i)
    }
    assert result.output_tokens == 18
    await bench.sink.until(lambda: bench.engine.load().running == 0)  # some tell it when next asked


@pytest.mark.needs("parameters")
async def test_stop_text_ends_the_output_before_it(start: Start) -> None:
    bench = await start()
    whole = joined(await bench.run(bench.item("go", max_tokens=30, temperature=0.0, seed=1)))
    stop = ":" if ":" in whole else whole[7:9]
    item = bench.item("go", stream=True, max_tokens=30, temperature=0.0, seed=1, stop=[stop])
    result = await bench.run(item)
    assert result.finish_reason == types_pb2.FINISH_REASON_STOP
    assert joined(result) == whole[: whole.index(stop)]
    assert bench.sink.texts[item.dispatch_id][0, 0] == joined(result)


@pytest.mark.needs("continuation")
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


@pytest.mark.needs("continuation")
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
    assert load.model_states["m"] == types_pb2.MODEL_STATE_ACTIVE
    ids = bench.submit(*(bench.item(**kind.long_output) for _ in range(2)))
    await bench.sink.until(lambda: bench.engine.load().running == 2)
    if "cache" not in kind.lacks:
        await bench.sink.until(lambda: bench.engine.load().kv_utilization)
        assert 0 < (bench.engine.load().kv_utilization or 0) <= 1
    for dispatch_id in ids:
        await bench.cancel(dispatch_id)
    await bench.until_idle()


@pytest.mark.needs("backlog")
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
    assert model.model == "m"
    assert model.streaming == ("streams" not in kind.lacks)
    assert model.resumable == ("continuation" not in kind.lacks)
    if "context" not in kind.lacks:
        assert 29000 < model.context_length <= 30000 + 256


async def test_what_it_cannot_tell_is_unknown_and_never_zero(start: Start, kind: Kind) -> None:
    bench = await start()
    result = await bench.run(bench.item(max_tokens=3))
    assert (result.output_tokens is None) == ("usage" in kind.lacks)
    load = bench.engine.load()
    assert (load.prefill_backlog_tokens is None) == ("backlog" in kind.lacks)
    assert (load.kv_utilization is None) == ("cache" in kind.lacks)


async def test_model_is_loaded_serves_and_is_unloaded(
    start: Start, kind: Kind, load_options: dict[str, Any] | None
) -> None:
    """Or it is refused by name. The other model serves on."""
    bench = await start()
    engine = bench.engine
    assert isinstance(engine, ModelKeeper)
    if load_options is None:
        with pytest.raises(ModelRefused) as refused:
            await engine.load_model("later", {})
        assert refused.value.error.reason == types_pb2.ERROR_REASON_UNSUPPORTED_FEATURE
        assert [m.model for m in engine.describe().models] == ["m"]
        return
    item = bench.item(max_tokens=3)
    item.model = "later"
    await engine.load_model("later", load_options)
    assert engine.load().model_states["later"] == types_pb2.MODEL_STATE_ACTIVE
    assert [m.model for m in engine.describe().models] == ["m", "later"]
    assert (await bench.run(item)).error is None
    assert engine.why_not_unload("later") is None
    await engine.unload_model("later")
    assert [m.model for m in engine.describe().models] == ["m"]
    again = bench.item(max_tokens=3)
    again.model = "later"
    error = (await bench.run(again)).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_MODEL_NOT_FOUND, True)
    assert (await bench.run(bench.item(max_tokens=3))).error is None


async def test_engine_serves_from_the_end_of_its_start(kind: Kind, needs: dict[str, Any]) -> None:
    """Behaviour 111: ready by a real answer; until then work is refused, not lost."""
    engine = build_engine(engine_id="e1", kind=kind.name, options={**kind.options, **needs})
    bench = Bench(engine, "m", kind.params)
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
