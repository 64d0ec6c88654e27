"""The simulated engine does what its options and a prompt's directives say, seeded and cheap."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError, Result
from node_agent.engines.registry import build_engine
from node_agent.engines.simulated import SimulatedEngine
from node_agent.engines.simulated_text import check_text, is_seamless, nonce_of
from node_agent.engines.simulated_turns import CRASH_EXIT_STATUS
from tests.unit.engines.recording_sink import Bench, joined, serving

STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
MODES = pytest.mark.parametrize("mode", ["static", "continuous"])


def engine(**options: Any) -> SimulatedEngine:
    built = build_engine(engine_id="e", kind="simulated", options={"models": ["m"], **options})
    assert isinstance(built, SimulatedEngine)
    return built


@MODES
async def test_at_zero_latency_one_call_soon_answers_all(mode: str) -> None:
    async with serving(engine(mode=mode, slots=64), "m") as bench:
        ids = bench.submit(*(bench.item(stream=i % 2 == 0) for i in range(64)), atomic=True)
        assert not bench.sink.results  # never inside `submit`
        await asyncio.sleep(0)
        assert bench.sink.results.keys() == set(ids)


async def test_no_timer_is_set_at_zero_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(engine(), "m") as bench:
        loop = asyncio.get_running_loop()
        timers: list[object] = []
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_at", lambda *args, **_: timers.append(args))
            bench.submit(bench.item(), bench.item(stream=True))
            await asyncio.sleep(0)
        assert len(bench.sink.results) == 2
        assert timers == []


async def test_work_that_a_sink_submits_does_not_hold_up_the_loop() -> None:
    """A closed loop at zero latency still lets other callbacks run in between."""
    async with serving(engine(), "m") as bench:
        turns = 0

        def resubmit(dispatch_id: int, result: object) -> None:
            if not stopped:
                bench.submit(bench.item(max_tokens=1))

        stopped: list[bool] = []
        original = bench.sink.finished

        def finished(dispatch_id: int, result: Any) -> None:
            original(dispatch_id, result)
            resubmit(dispatch_id, result)

        bench.sink.finished = finished  # type: ignore[method-assign]
        bench.submit(bench.item(max_tokens=1))
        while turns < 10:
            await asyncio.sleep(0)
            turns += 1
        stopped.append(True)
        await bench.sink.until(lambda: bench.sink.submitted == bench.sink.results.keys())
        assert 5 < len(bench.sink.results) < 15


async def test_text_names_attempt_and_index() -> None:
    async with serving(engine(), "m") as bench:
        item = bench.item(max_tokens=12)
        result = await bench.run(item)
        assert check_text(joined(result)) == [(nonce_of(item.dispatch_id), 0, 11)]


async def test_splice_of_two_attempts_shows_and_continuation_does_not() -> None:
    async with serving(engine(), "m") as bench:
        head = joined(await bench.run(bench.item(max_tokens=5)))
        again = bench.item(max_tokens=9, attempt=2)
        restarted = head + joined(await bench.run(again))
        going_on = bench.item(
            max_tokens=9, attempt=2, continuation=node_service_pb2.Continuation(text=head)
        )
        continued = head + joined(await bench.run(going_on))
        assert not is_seamless(restarted)
        assert is_seamless(continued)
        assert [run[1:] for run in check_text(continued)] == [(0, 4), (5, 8)]


@MODES
async def test_failure_rate_is_kept_and_is_the_same_each_time(mode: str) -> None:
    async def failed(seed: int, attempt: int) -> set[int]:
        options = {"failure_rate": 0.25, "seed": seed, "slots": 400, "mode": mode}
        async with serving(engine(**options), "m") as bench:
            bench.submit(*(bench.item(attempt=attempt) for _ in range(400)))
            await bench.sink.until(lambda: len(bench.sink.results) == 400)
            return {i for i, result in bench.sink.results.items() if result.error is not None}

    first = await failed(1, 1)
    assert 60 < len(first) < 140  # 100, give or take 4.6 standard deviations
    assert await failed(1, 1) == first
    assert await failed(2, 1) != first
    assert await failed(1, 2) != first  # a retry draws anew


async def test_fail_marker_fails_those_that_have_it() -> None:
    async with serving(engine(fail_marker="poison"), "m") as bench:
        assert (await bench.run(bench.item("a poisoned pill"))).error is not None
        assert (await bench.run(bench.item("a pill"))).error is None


async def test_failure_in_mid_stream_keeps_what_was_written() -> None:
    async with serving(engine(latency_per_token="1ms"), "m") as bench:
        item = bench.item("[[fail=3]]", stream=True, max_tokens=9)
        result = await bench.run(item)
        assert result.finish_reason == types_pb2.FINISH_REASON_ERROR
        assert check_text(joined(result)) == [(nonce_of(item.dispatch_id), 0, 2)]
        assert bench.sink.texts[item.dispatch_id][0, 0] == joined(result)


async def test_directives_hold_for_their_attempt_only() -> None:
    async with serving(engine(), "m") as bench:
        assert (await bench.run(bench.item("[[fail@1]][[tokens=3]]"))).error is not None
        result = await bench.run(bench.item("[[fail@1]][[tokens=3]]", attempt=2))
        assert (result.error, result.output_tokens) == (None, 3)
        assert result.finish_reason == types_pb2.FINISH_REASON_STOP


async def test_directives_can_be_switched_off() -> None:
    async with serving(engine(directives=False), "m") as bench:
        assert (await bench.run(bench.item("[[fail]] [[stall]]"))).error is None


async def test_faulty_directive_is_the_callers_fault() -> None:
    async with serving(engine(), "m") as bench:
        for prompt in ("[[tokens=many]]", "[[sleep=5]]", "[[fail=-1]]"):
            error = (await bench.run(bench.item(prompt))).error
            assert error is not None
            assert error.reason == types_pb2.ERROR_REASON_INVALID_ARGUMENT


@MODES
async def test_stalled_item_holds_its_slot_until_cancelled(mode: str) -> None:
    async with serving(engine(slots=2, mode=mode), "m") as bench:
        stalled, good = bench.submit(
            bench.item("[[stall=2]]", stream=True), bench.item(max_tokens=2), atomic=True
        )
        await bench.sink.end(good)
        assert bench.engine.load().running == 1
        assert len(bench.sink.pieces[stalled]) == 2
        assert joined(await bench.cancel(stalled)) == bench.sink.texts[stalled][0, 0]
        assert bench.engine.load().running == 0


async def test_stalled_engine_goes_on_where_it_was() -> None:
    """Its clock stands still meanwhile; cancels still work."""
    built = engine(latency="10ms", latency_per_token="1ms")
    async with serving(built, "m") as bench:
        first, second = bench.submit(bench.item(max_tokens=20), bench.item(max_tokens=20))
        await bench.sink.until(lambda: first in bench.sink.started)
        built.stall()
        assert built.load().health == STALLED
        (third,) = bench.submit(bench.item(max_tokens=2))
        assert (await bench.cancel(first)).finish_reason == types_pb2.FINISH_REASON_CANCELLED
        assert not {second, third} & bench.sink.results.keys()
        built.go_on()
        result = await bench.sink.end(second)
        assert result.output_tokens == 20
        assert (result.decode_s or 0) < 1
        assert (await bench.sink.end(third)).error is None


async def test_engine_can_start_stalled() -> None:
    built = engine(stalled=True)
    async with serving(built, "m") as bench:
        (dispatch_id,) = bench.submit(bench.item(max_tokens=2))
        await asyncio.sleep(0)
        assert built.load().health == STALLED
        assert not bench.sink.results
        built.go_on()
        assert (await bench.sink.end(dispatch_id)).error is None


async def test_engine_that_is_stopped_while_it_warms_up_does_not_serve() -> None:
    built = engine(warm_up="20ms")
    starting = asyncio.create_task(built.start(Bench(built, "m").sink))
    await asyncio.sleep(0)
    await built.stop(0)
    with pytest.raises(EngineStartError, match="stopped"):
        await starting


CRASHER = """
import asyncio, sys
from node_agent.engines.registry import build_engine
from tests.unit.engines.recording_sink import Bench

async def main(prompt, **options):
    engine = build_engine(engine_id="e", kind="simulated", options={"models": ["m"], **options})
    bench = Bench(engine, "m")
    await engine.start(bench.sink)
    for i in range(5):
        item = bench.item(prompt, stream=True)
        await bench.run(item)
        print("answered", len(bench.sink.pieces[item.dispatch_id]), flush=True)

asyncio.run(main(sys.argv[1], crash_after_items=int(sys.argv[2])))
"""


@pytest.mark.parametrize(
    ("prompt", "after_items", "answers"),
    [("[[crash]]", 0, 0), ("[[crash=3]]", 0, 0), ("fine", 3, 2), ("[[crash@2]]", 0, 5)],
)
def test_crash_ends_the_process_at_once(prompt: str, after_items: int, answers: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHER, prompt, str(after_items)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.count("answered") == answers, done.stderr
    assert done.returncode == (0 if answers == 5 else CRASH_EXIT_STATUS)


async def test_latency_is_base_plus_item_plus_tokens() -> None:
    options = {"latency": "20ms", "latency_per_item": "10ms", "latency_per_token": "2ms"}
    async with serving(engine(**options), "m") as bench:
        result = await bench.run(bench.item(max_tokens=10))
        assert result.prefill_s == pytest.approx(0.030)
        assert result.decode_s == pytest.approx(0.020, abs=0.01)


@MODES
async def test_what_waits_starts_when_the_slot_comes_free(mode: str) -> None:
    """However late its timer fires: so n batches take n times as long as one."""
    options = {"mode": mode, "slots": 1, "look_ahead": 9, "latency": "5ms"}
    async with serving(engine(**options), "m") as bench:
        ids = bench.submit(*(bench.item() for _ in range(10)))
        await bench.sink.until(lambda: len(bench.sink.results) == 10)
        waits = [bench.sink.results[i].engine_queue_s for i in ids]
        assert waits == pytest.approx([0.005 * i for i in range(10)], abs=1e-6)


@MODES
async def test_an_answer_to_an_end_comes_when_the_item_ended(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the timer fired: the loop waits whole milliseconds, so 6 of them here."""
    async with serving(engine(mode=mode, slots=1, latency="5.4ms"), "m") as bench:
        starts: list[float] = []
        running, finished = bench.sink.running, bench.sink.finished

        def note(dispatch_id: int, batch_size: int) -> None:
            started_at = bench.engine._turns.runs[dispatch_id].started_at
            assert started_at is not None
            starts.append(started_at)
            running(dispatch_id, batch_size)

        def again(dispatch_id: int, result: Result) -> None:
            finished(dispatch_id, result)
            if len(starts) < 10:
                bench.submit(bench.item())

        monkeypatch.setattr(bench.sink, "running", note)
        monkeypatch.setattr(bench.sink, "finished", again)
        bench.submit(bench.item())
        await bench.sink.until(lambda: len(bench.sink.results) == 10)
        gaps = [later - earlier for earlier, later in pairwise(starts)]
        assert len(gaps) == 9
        assert 0.0054 <= min(gaps) < 0.0057  # what is more is the time that this test took


async def test_jitter_varies_times_by_seed_within_its_bounds() -> None:
    options = {"latency": "4ms", "jitter": 0.5, "slots": 100}
    async with serving(engine(**options), "m") as bench:
        bench.submit(*(bench.item() for _ in range(100)))
        await bench.sink.until(lambda: len(bench.sink.results) == 100)
        times = [result.prefill_s or 0 for result in bench.sink.results.values()]
        assert 0.002 <= min(times) < 0.003 < 0.005 < max(times) < 0.006


async def test_embeddings_depend_on_their_text_only() -> None:
    async with serving(engine(embedding_dimensions=5), "m") as bench:

        async def vectors(*texts: str) -> list[list[float]]:
            request = inference_pb2.InferenceRequest(
                embedding=inference_pb2.EmbeddingInput(texts=texts)
            )
            result = await bench.run(bench.item(request=request))
            assert result.finish_reason == types_pb2.FINISH_REASON_COMPLETE
            return [list(output.embedding) for output in result.outputs]

        first, second = await vectors("one", "二")
        assert len(first) == 5
        assert first != second
        assert await vectors("二", "x", "one") == [second, (await vectors("x"))[0], first]


async def test_tensors_come_back_as_they_went() -> None:
    async with serving(engine(), "m") as bench:
        tensors = [
            inference_pb2.Tensor(name=name, datatype="UINT8", shape=[3], data=b"abc")
            for name in ("a", "b")
        ]
        request = inference_pb2.InferenceRequest(
            tensors=inference_pb2.TensorInput(tensors=tensors, output_names=["b"])
        )
        result = await bench.run(bench.item(request=request))
        assert result.finish_reason == types_pb2.FINISH_REASON_COMPLETE
        assert list(result.outputs[0].tensors) == [tensors[1]]


async def test_huge_max_tokens_is_held_to_the_context() -> None:
    """Behaviour 84."""
    models = [{"name": "m", "context_length": 100}]
    async with serving(engine(models=models), "m") as bench:
        result = await bench.run(bench.item(max_tokens=2**31 - 1))
        assert result.finish_reason == types_pb2.FINISH_REASON_LENGTH
        assert (result.input_tokens or 0) + (result.output_tokens or 0) == 100


async def test_text_that_it_did_not_write_is_not_continued() -> None:
    async with serving(engine(), "m") as bench:
        continuation = node_service_pb2.Continuation(text="0:abcdef 1:abc")
        error = (await bench.run(bench.item(continuation=continuation))).error
        assert error is not None
        assert error.field == "continuation.text"


async def test_many_streams_share_one_timer() -> None:
    async with serving(engine(slots=50, latency_per_token="2ms"), "m") as bench:
        loop = asyncio.get_running_loop()
        made, original = 0, loop.call_at

        def counted(*args: Any, **more: Any) -> Any:
            nonlocal made
            made += getattr(args[1], "__self__", None) is bench.engine
            return original(*args, **more)

        loop.call_at = counted  # type: ignore[method-assign, assignment]
        ids = bench.submit(*(bench.item(stream=True, max_tokens=20) for _ in range(50)))
        await bench.sink.until(lambda: len(bench.sink.results) == 50)
        assert sum(len(bench.sink.pieces[i]) for i in ids) == 1000
        assert made <= 45  # one per step, not one per item and step


async def test_profile_is_told_where_it_is_known() -> None:
    known = engine(mode="static", latency="20ms", latency_per_item="1ms", slots=4)
    (profile,) = known.load().profiles.values()
    times = {p.concurrency: p.time.ToNanoseconds() // 1000 for p in profile.points}
    assert times == {1: 21000, 2: 22000, 4: 24000}
    assert engine().load().profiles == {}
    assert engine(mode="static", latency_per_token="1ms").load().profiles == {}


async def test_what_needs_a_model_is_refused_by_name() -> None:
    async with serving(build_engine(engine_id="e", kind="simulated", options={}), "simulated") as b:
        wishes: list[dict[str, Any]] = [
            {"json_schema": "{}"},
            {"regex": "a"},
            {"json_object": True},
        ]
        items = [b.item(**wish) for wish in wishes]
        for name, value in (("logprobs", 0), ("token_ids", True)):
            items.append(b.item())
            setattr(items[-1].request.output, name, value)
        refused = [(await b.run(item)).error for item in items]
        features = [error.metadata["feature"] for error in refused if error is not None]
        assert features == ["json_schema", "regex", "json_object", "logprobs", "token_ids"]
