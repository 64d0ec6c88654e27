"""A static engine runs a batch as one: it starts together, ends together, and never grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from batchyard.v1 import types_pb2
from node_agent.engines.registry import build_engine
from tests.unit.engines.recording_sink import Bench, joined, serving

OPTIONS: dict[str, Any] = {
    "models": ["m", "other"],
    "mode": "static",
    "slots": 4,
    "latency": "5ms",
    "latency_per_item": "2ms",
    "latency_per_token": "1ms",
}


def engine(**options: Any) -> Any:
    return build_engine(engine_id="e", kind="simulated", options={**OPTIONS, **options})


async def run_batch(bench: Bench, lengths: list[int], **more: Any) -> list[int]:
    ids = bench.submit(*(bench.item(max_tokens=n, **more) for n in lengths), atomic=True)
    await bench.sink.until(lambda: bench.sink.results.keys() >= set(ids))
    return ids


async def test_atomic_batch_starts_and_ends_together() -> None:
    async with serving(engine(), "m") as bench:
        ids = await run_batch(bench, [1, 5, 30])
        assert {bench.sink.started[i] for i in ids} == {3}
        totals = {
            round((r.prefill_s or 0) + (r.decode_s or 0), 6)
            for r in (bench.sink.results[i] for i in ids)
        }
        assert len(totals) == 1
        assert totals.pop() >= 0.005 + 3 * 0.002 + 30 * 0.001 - 0.001
        assert [bench.sink.results[i].output_tokens for i in ids] == [1, 5, 30]


async def test_next_batch_may_come_while_results_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(engine(), "m") as bench:
        later: list[int] = []

        def freed(dispatch_ids: Sequence[int]) -> None:
            if not later:
                assert not bench.sink.results, "slots come ahead of results"
                load = bench.engine.load()
                assert (load.running, load.waiting) == (0, 0)
                later.extend(bench.submit(*(bench.item() for _ in dispatch_ids), atomic=True))

        monkeypatch.setattr(bench.sink, "freed", freed)
        ids = bench.submit(*(bench.item() for _ in range(4)), atomic=True)
        await bench.sink.until(lambda: len(bench.sink.results) == 8)
        assert [*bench.sink.results] == [*ids, *later]
        assert {bench.sink.results[i].error for i in (*ids, *later)} == {None}
        load = bench.engine.load()
        assert (load.running, load.waiting) == (0, 0)


async def test_items_that_came_while_it_was_busy_share_the_next_batch() -> None:
    """Behaviour 15: sizes 1 then 3, where look-ahead lets the batch wait in the engine."""
    async with serving(engine(look_ahead=4), "m") as bench:
        first = bench.submit(bench.item("[[sleep=200ms]]", max_tokens=2), atomic=True)
        second = bench.submit(*(bench.item(max_tokens=2) for _ in range(3)), atomic=True)
        await bench.sink.until(lambda: len(bench.sink.results) == 4)
        assert [bench.sink.started[i] for i in (*first, *second)] == [1, 3, 3, 3]
        waited = bench.sink.results[second[0]].engine_queue_s
        assert waited is not None
        assert waited > 0.15


async def test_batch_above_the_limit_is_refused_whole() -> None:
    """Behaviour 13: inputs are counted, not messages."""
    async with serving(engine(max_batch_size=2), "m") as bench:
        ids = await run_batch(bench, [1, 1, 1])
        for dispatch_id in ids:
            error = bench.sink.results[dispatch_id].error
            assert error is not None
            assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_BUSY, True)
        (wide,) = await run_batch(bench, [1], n=3)
        assert bench.sink.results[wide].error is not None
        assert wide not in bench.sink.started


async def test_loose_items_are_grouped_by_model_up_to_the_limit() -> None:
    """Behaviours 13 and 16: no batch above two, none with two models."""
    async with serving(engine(max_batch_size=2), "m") as bench:
        items = [bench.item(max_tokens=1) for _ in range(4)]
        items[2].model = "other"
        ids = bench.submit(*items)
        await bench.sink.until(lambda: len(bench.sink.results) == 4)
        assert [bench.sink.started[i] for i in ids] == [2, 2, 1, 1]


async def test_a_failing_member_fails_alone() -> None:
    """Behaviour 12."""
    async with serving(engine(), "m") as bench:
        good, bad, other = bench.submit(
            bench.item("fine", max_tokens=3),
            bench.item("[[fail=2]]", max_tokens=3),
            bench.item("fine too", max_tokens=3),
            atomic=True,
        )
        await bench.sink.until(lambda: len(bench.sink.results) == 3)
        error = bench.sink.results[bad].error
        assert error is not None
        assert error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
        assert bench.sink.results[good].error is bench.sink.results[other].error is None


async def test_cancelled_member_leaves_the_others_their_batch() -> None:
    """Behaviour 10: an all-cancelled batch that waits is never started."""
    async with serving(engine(look_ahead=4), "m") as bench:
        running = bench.submit(*(bench.item(max_tokens=200) for _ in range(2)), atomic=True)
        waiting = bench.submit(*(bench.item(max_tokens=5) for _ in range(2)), atomic=True)
        await bench.sink.until(lambda: set(running) <= bench.sink.started.keys())
        await bench.cancel(running[0])
        for dispatch_id in waiting:
            await bench.cancel(dispatch_id)
        result = await bench.sink.end(running[1])
        assert result.output_tokens == 200
        assert not set(waiting) & bench.sink.started.keys()
        assert bench.engine.load().running == bench.engine.load().waiting == 0


async def test_streamed_members_show_their_tokens_as_time_goes() -> None:
    async with serving(engine(), "m") as bench:
        short, long = bench.submit(
            bench.item(stream=True, max_tokens=3),
            bench.item(stream=True, max_tokens=60),
            atomic=True,
        )
        await bench.sink.until(lambda: len(bench.sink.pieces[short]) == 3)
        assert short not in bench.sink.results  # it waits for the batch
        await bench.sink.end(short)
        assert long in bench.sink.results
        assert joined(bench.sink.results[long]) == bench.sink.texts[long][0, 0]
