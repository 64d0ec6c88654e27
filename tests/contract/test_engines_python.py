"""A user's function serves in batches, and whatever it does, the agent and its neighbours live."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError, ModelRefused
from node_agent.engines.python import PythonEngine
from node_agent.engines.registry import build_engine
from service_kit.event_loop import loop_factory
from tests.integration.cluster import until
from tests.unit.engines.recording_sink import Bench, joined, serving

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
FUNCTIONS = "tests.unit.engines.python_functions"


def engine(name: str = "act", **options: Any) -> PythonEngine:
    given = {"callable": f"{FUNCTIONS}:{name}", "restart_delay": "10ms", **options}
    built = build_engine(engine_id="e", kind="python", options={"model": "m", **given})
    assert isinstance(built, PythonEngine)
    return built


def pid_of(bench: Bench) -> int | None:
    assert isinstance(bench.engine, PythonEngine)
    return bench.engine.workers[0].pid


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


async def run_all(bench: Bench, *prompts: str, atomic: bool = True) -> list[Any]:
    ids = bench.submit(*(bench.item(prompt) for prompt in prompts), atomic=atomic)
    return [await bench.sink.end(dispatch_id) for dispatch_id in ids]


async def test_batch_is_one_call_and_answers_keep_their_order() -> None:
    async with serving(engine(), "m") as bench:
        results = await run_all(bench, "a", "b", "print", "c")
        assert [joined(r) for r in results] == [f"answer to {x}" for x in ("a", "b", "print", "c")]
        assert {bench.sink.started[i] for i in bench.sink.submitted} == {4}
        (result,) = await run_all(bench, "sizes")
        assert json.loads(result.outputs[0].raw.data) == [1, 4, 1]  # the first one warmed it up
        assert result.decode_s is not None


async def test_slots_are_free_ahead_of_results_and_a_late_cancel_breaks_nothing_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(engine(), "m") as bench:
        pid, later = pid_of(bench), []

        def freed(dispatch_ids: Sequence[int]) -> None:
            if not later:
                assert not bench.sink.results
                assert bench.engine.load().running == 0
                later.extend(bench.submit(*(bench.item("b") for _ in range(8)), atomic=True))
                for dispatch_id in dispatch_ids:
                    bench.engine.cancel(dispatch_id, types_pb2.ERROR_REASON_CANCELLED_BY_CLIENT)

        monkeypatch.setattr(bench.sink, "freed", freed)
        results = await run_all(bench, "a", "a")
        assert [r.finish_reason for r in results] == [types_pb2.FINISH_REASON_CANCELLED] * 2
        assert [joined(await bench.sink.end(i)) for i in later] == ["answer to b"] * 8
        assert pid_of(bench) == pid


async def test_items_that_came_while_it_was_busy_share_the_next_call() -> None:
    """Behaviours 13 and 15: never above the limit, and no crowd of single calls."""
    async with serving(engine(max_batch_size=3, look_ahead=6), "m") as bench:
        prompts = ["x", "a", "b", "c", "d", "e", "sizes"]
        (*_, last) = await run_all(bench, *prompts, atomic=False)
        assert sum(json.loads(last.outputs[0].raw.data)) == 8
        assert max(json.loads(last.outputs[0].raw.data)) == 3


async def test_bad_member_fails_alone() -> None:
    """Behaviour 12: by an exception returned, and by one raised over the whole batch."""
    async with serving(engine(), "m") as bench:
        good, blamed, other, guilty = await run_all(bench, "a", "blame", "b", "raise")
        assert joined(good) == "answer to a"
        assert joined(other) == "answer to b"
        assert blamed.error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
        assert guilty.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
        assert "cannot do this one" in guilty.error.message


@pytest.mark.parametrize("name", ["act", "act_later"])
async def test_cancelled_call_is_interrupted_and_its_process_stays(name: str) -> None:
    """Behaviours 28 and 38: the slot is free within a second, and nothing is loaded again."""
    async with serving(engine(name, cancel_grace="3s"), "m") as bench:
        pid = pid_of(bench)
        (dispatch_id,) = bench.submit(bench.item("wait" if name == "act_later" else "spin"))
        await bench.sink.until(lambda: dispatch_id in bench.sink.started)
        (neighbour,) = bench.submit(bench.item("a"), atomic=True)
        await bench.cancel(dispatch_id)
        assert (await bench.sink.end(neighbour)).error is None
        await bench.until_idle()
        assert pid_of(bench) == pid


async def test_call_that_cannot_be_interrupted_loses_its_process() -> None:
    async with serving(engine(cancel_grace="100ms"), "m") as bench:
        pid = pid_of(bench)
        (dispatch_id,) = bench.submit(bench.item("deafer"))
        await bench.sink.until(lambda: dispatch_id in bench.sink.started)
        await bench.cancel(dispatch_id)
        await bench.sink.until(lambda: bench.engine.load().health == DOWN)
        await bench.sink.until(lambda: bench.engine.load().health == SERVING)
        assert pid_of(bench) != pid
        await bench.until_idle()


async def test_cancelled_member_leaves_the_others_their_batch() -> None:
    """Behaviour 10: what is cancelled while it waits is not computed."""
    async with serving(engine(look_ahead=8), "m") as bench:
        (busy,) = bench.submit(bench.item("spin"), atomic=True)
        await bench.sink.until(lambda: busy in bench.sink.started)
        ids = bench.submit(*(bench.item("sizes") for _ in range(3)), atomic=True)
        await bench.cancel(ids[0])
        await bench.cancel(busy)
        result = await bench.sink.end(ids[1])
        assert json.loads(result.outputs[0].raw.data)[-1] == 2


async def test_crash_takes_its_batch_and_nothing_else() -> None:
    async with serving(engine(workers=2), "m") as bench:
        (neighbour,) = bench.submit(bench.item("a"), atomic=True)
        crashed, other = await run_all(bench, "crash", "b")
        for result in (crashed, other):
            assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
            assert not result.error.refused
            assert "ended (9)" in result.error.message
        assert (await bench.sink.end(neighbour)).error is None
        assert bench.engine.load().health == SERVING  # the second worker is there
        assert joined((await run_all(bench, "after"))[0]) == "answer to after"


@pytest.mark.parametrize("at_once", [True, False], ids=["before", "after"])
def test_process_that_dies_idle_is_replaced(at_once: bool) -> None:
    """Whether its next batch comes before or after that is seen: each item ends, none hangs.

    On the loop of a true agent, for pipes of dead processes differ between loops.
    """

    async def scene() -> None:
        async with serving(engine(workers=2, restart_delay="1ms"), "m") as bench:
            assert isinstance(bench.engine, PythonEngine)
            first, second = bench.engine.workers
            before = first.pid
            assert before is not None
            os.kill(before, signal.SIGKILL)
            if at_once:
                for result in await run_all(bench, "a", "b", atomic=False):
                    assert joined(result).startswith("answer") or (
                        result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
                    )

            async def replaced() -> bool:
                return first.ready and first.pid != before

            await until(replaced)
            assert second.ready
            batches = [run_all(bench, "a"), run_all(bench, "b")]
            answers = [joined(r) for (r,) in await asyncio.gather(*batches)]
            assert answers == ["answer to a", "answer to b"]

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(asyncio.wait_for(scene(), 30))


async def test_call_that_hangs_is_ended_by_its_limit() -> None:
    async with serving(engine(batch_timeout="300ms"), "m") as bench:
        (result,) = await run_all(bench, "deaf")
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_STALLED
        assert result.error.metadata == {"limit": "0.3s"}
        await bench.sink.until(lambda: bench.engine.load().health == SERVING)
        assert joined((await run_all(bench, "after"))[0]) == "answer to after"


async def test_process_that_leaks_is_replaced_between_batches() -> None:
    async with serving(engine(memory_limit="150MiB"), "m") as bench:
        pid = pid_of(bench)
        assert (await run_all(bench, "leak"))[0].error is None
        assert joined((await run_all(bench, "after"))[0]) == "answer to after"
        assert pid_of(bench) != pid


async def test_vectors_tensors_and_classes() -> None:
    async with serving(engine(), "m") as bench:
        embedding = inference_pb2.EmbeddingInput(texts=["a", "bb"])
        result = await bench.run(
            bench.item(request=inference_pb2.InferenceRequest(embedding=embedding))
        )
        assert [list(o.embedding) for o in result.outputs] == [[1.0, 1.0], [2.0, 1.0]]
        tensor = inference_pb2.Tensor(
            name="x", datatype="INT32", shape=[2], data=b"\1\0\0\0\2\0\0\0"
        )
        tensors = inference_pb2.TensorInput(tensors=[tensor])
        request = inference_pb2.InferenceRequest(tensors=tensors)
        result = await bench.run(bench.item(request=request))
        assert result.outputs[0].tensors[0].data == b"\2\0\0\0\4\0\0\0"
        tensors.tensors[0].shape[:] = [3]
        request = inference_pb2.InferenceRequest(tensors=tensors)
        error = (await bench.run(bench.item(request=request))).error
        assert error is not None
        assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT
    async with serving(engine("Loaded"), "m") as bench:
        item = bench.item("x", stream=True)
        assert joined(await bench.run(item)) == "loaded: x"
        assert bench.sink.texts[item.dispatch_id] == {(0, 0): "loaded: x"}


async def test_too_few_answers_are_the_functions_fault() -> None:
    async with serving(engine("too_few"), "m") as bench:
        for result in await run_all(bench, "a", "b"):
            assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
            assert "a list of 2 answers" in result.error.message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "has no attribute 'nothing'"),
        ("Unloadable", "the weights are not there"),
        ("bad_first", "first request failed .*no CUDA"),
    ],
)
async def test_function_that_cannot_serve_says_why(name: str, words: str) -> None:
    """Behaviour 111: ready by a true answer."""
    built = engine(name)
    with pytest.raises(EngineStartError, match=words):
        await built.start(Bench(built, "m").sink)
    await built.stop(0)


async def test_too_much_and_unknown_is_refused() -> None:
    async with serving(engine(max_batch_size=2), "m") as bench:
        ids = bench.submit(*(bench.item("spin") for _ in range(3)))
        error = (await bench.sink.end(ids[2])).error
        assert error is not None
        assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_BUSY, True)
        for dispatch_id in ids[:2]:
            await bench.cancel(dispatch_id)
        stranger = bench.item("a")
        stranger.model = "nobody"
        error = (await bench.run(stranger)).error
        assert error is not None
        assert error.reason == types_pb2.ERROR_REASON_MODEL_NOT_FOUND
        error = (await bench.run(bench.item(""))).error
        assert error is not None
        assert error.field == "request.text"


async def test_unloaded_function_has_no_process_until_it_is_loaded_again() -> None:
    async with serving(engine(), "m") as bench:
        built = bench.engine
        assert isinstance(built, PythonEngine)
        await built.unload_model("m")
        assert pid_of(bench) is None
        assert not built.describe().models
        assert (built.load().health, built.load().model_states) == (
            SERVING,
            {"m": types_pb2.MODEL_STATE_AVAILABLE},
        )
        error = (await bench.run(bench.item())).error
        assert error is not None
        assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_MODEL_NOT_FOUND, True)
        with pytest.raises(ModelRefused, match="no other"):
            await built.load_model("other", {})
        await built.load_model("m", {})
        assert [model.model for model in built.describe().models] == ["m"]
        assert joined(await bench.run(bench.item("a"))) == "answer to a"


async def test_function_that_exits_or_forks_costs_one_request_at_most() -> None:
    """Its neighbours are answered, by the same process, and nobody gets another's answer."""
    for name in ("act", "act_later"):
        async with serving(engine(name), "m") as bench:
            pid = pid_of(bench)
            first, second, third = await run_all(bench, "a", "exit", "b")
            assert [joined(first), joined(third)] == ["answer to a", "answer to b"]
            assert second.error is not None
            assert second.error.message == "SystemExit: as a script would"
            for prompts in (["fork", "a"], ["b", "c"], ["stdin"]):
                results = await run_all(bench, *prompts)
                assert [r.error for r in results] == [None] * len(prompts)
            assert joined(results[0]) == "nothing"
            assert pid_of(bench) == pid


async def test_what_a_function_started_ends_with_its_process() -> None:
    """Also where the agent is killed while the function hangs: nothing holds the GPU for ever."""
    async with serving(engine(), "m") as bench:
        for ending in ("crash", "close"):
            (started,) = await run_all(bench, "start")
            grandchild, worker = psutil.Process(int(joined(started))), pid_of(bench)
            assert worker is not None
            child = psutil.Process(worker)
            if ending == "crash":
                await run_all(bench, "crash")
                await bench.sink.until(lambda: bench.engine.load().health == SERVING)
            else:
                bench.submit(bench.item("deaf"))
                await bench.sink.until(lambda: bench.engine.load().running == 1)
                assert isinstance(bench.engine, PythonEngine)
                ours = bench.engine.workers[0]._child
                assert ours is not None
                assert ours.process.stdin is not None
                ours.process.stdin.close()
            await bench.sink.until(lambda g=grandchild: not is_alive(g))
            await bench.sink.until(lambda c=child: not is_alive(c))


async def test_vectors_are_as_many_as_texts_and_made_of_numbers() -> None:
    async with serving(engine(), "m") as bench:
        (result,) = await run_all(bench, "nan")
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
    async with serving(engine("Loaded"), "m") as bench:  # answers with a text
        texts = inference_pb2.EmbeddingInput(texts=["a", "b"])
        request = inference_pb2.InferenceRequest(embedding=texts)
        result = await bench.run(bench.item(request=request))
        assert result.error is not None
        assert "2 texts need 2 vectors" in result.error.message
