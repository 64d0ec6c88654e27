"""Real servers that hang, break off, lie or go away, and callers at fault: whose fault is it?

A link in front of the server makes its faults. llama.cpp's server always; with `--engines` the real
vLLM and the real Triton, too. What only a scripted server does: test_engines_openai.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.interface import Item
from node_agent.engines.registry import build_engine
from tests.contract.conftest import Start
from tests.contract.engine_kinds import Kind
from tests.integration.link import Link
from tests.unit.engines.recording_sink import Bench, joined

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
UNAVAILABLE = types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE


async def start_long(bench: Bench, kind: Kind) -> int:
    """Submit a streamed item that runs for seconds; return its id once it has written."""
    (dispatch_id,) = bench.submit(bench.item(stream=True, **kind.long_output))
    await bench.sink.until(lambda: len(bench.sink.pieces[dispatch_id]) >= 3)
    return dispatch_id


async def reason_of(bench: Bench, item: Item) -> tuple[types_pb2.ErrorReason, bool]:
    error = (await bench.run(item)).error
    assert error is not None
    return error.reason, error.refused


async def until_serving(bench: Bench, *, serves: bool = True) -> None:
    await bench.sink.until(lambda: (bench.engine.load().health == SERVING) is serves)


async def until_served(bench: Bench) -> None:
    """Until an item is answered; what is refused before goes elsewhere, uncharged."""
    while (error := (await bench.run(bench.item(max_tokens=3))).error) is not None:
        assert (error.reason, error.refused) == (UNAVAILABLE, True)
        await asyncio.sleep(0)


async def test_hanging_server_is_left_and_comes_back_by_itself(
    link: Link, start: Start, kind: Kind
) -> None:
    """Behaviour 22: the limit fires, nothing new is taken, and no operator is needed."""
    bench = await start(**kind.hangs)
    link.up.clear()
    (held,) = bench.submit(bench.item(stream=True))
    result = await bench.sink.end(held)
    assert result.error is not None
    assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_STALLED
    await until_serving(bench, serves=False)
    assert await reason_of(bench, bench.item()) == (UNAVAILABLE, True)
    link.up.set()
    await until_serving(bench)
    assert (await bench.run(bench.item(max_tokens=3))).error is None


async def test_stream_that_breaks_off_keeps_what_came(link: Link, start: Start, kind: Kind) -> None:
    """Behaviour 29: the item ends once, and the next one runs."""
    bench = await start()
    dispatch_id = await start_long(bench, kind)
    assert link.cut()
    result = await bench.sink.end(dispatch_id, within_s=2.0)
    assert result.error is not None
    assert (result.error.reason, result.error.refused) == (UNAVAILABLE, False)
    assert joined(result) == bench.sink.texts[dispatch_id][0, 0] != ""
    await until_served(bench)


async def test_server_that_was_away_serves_again(link: Link, start: Start, kind: Kind) -> None:
    bench = await start()
    for _ in range(2):
        dispatch_id = await start_long(bench, kind)
        link.go()
        result = await bench.sink.end(dispatch_id, within_s=2.0)
        assert result.error is not None
        assert result.error.reason == UNAVAILABLE
        await until_serving(bench, serves=False)
        assert await reason_of(bench, bench.item()) == (UNAVAILABLE, True)
        await link.come()
        await until_serving(bench)
        assert (await bench.run(bench.item(max_tokens=3))).error is None


async def test_slow_start_is_waited_for(link: Link, kind: Kind, needs: dict[str, Any]) -> None:
    """Behaviours 25 and 111: no work before the first answer."""
    link.go()
    engine = build_engine(engine_id="e1", kind=kind.name, options={**kind.options, **needs})
    bench = Bench(engine, "m", kind.params)
    starting = asyncio.create_task(engine.start(bench.sink))
    try:
        await bench.sink.until(lambda: engine.load().message)
        assert engine.load().health == STARTING
        assert (await reason_of(bench, bench.item()))[1]
        await link.come()
        await starting
        assert engine.load().health == SERVING
        assert (await bench.run(bench.item(max_tokens=3))).error is None
    finally:
        await engine.stop(0)


async def test_stream_of_single_bytes_is_whole(link: Link, start: Start) -> None:
    """Behaviour 95: code points, events and frames come in pieces."""
    bench = await start()
    prompt = "长城 🙂 ok"
    whole, split = (bench.item(prompt, stream=True, max_tokens=24, temperature=0.0) for _ in "ab")
    expected = joined(await bench.run(whole))
    link.split = True
    result = await bench.run(split)
    assert result.error is None
    assert joined(result) == bench.sink.texts[split.dispatch_id][0, 0] == expected != ""


@pytest.mark.needs("events")
async def test_stream_without_a_finish_reason_is_the_servers_fault(
    link: Link, start: Start
) -> None:
    """Behaviour 29: it may have been cut short, so it is no success."""
    bench = await start()
    link.false_words = {b'"finish_reason":"length"': b'"finish_reason":null    '}
    item = bench.item(stream=True, max_tokens=12)
    result = await bench.run(item)
    assert link.falsified
    assert result.error is not None
    assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
    assert joined(result) == bench.sink.texts[item.dispatch_id][0, 0] != ""
    link.false_words = {}
    assert (await bench.run(bench.item(max_tokens=3))).error is None


@pytest.mark.needs("events")
async def test_event_that_is_no_json_ends_the_item_with_what_it_has(
    link: Link, start: Start, kind: Kind
) -> None:
    """Behaviour 29."""
    bench = await start()
    dispatch_id = await start_long(bench, kind)
    link.false_words = {b'"choices":[': b'"choices":('}
    result = await bench.sink.end(dispatch_id)
    assert result.error is not None
    assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_ERROR
    assert joined(result) == bench.sink.texts[dispatch_id][0, 0] != ""
    link.false_words = {}
    await bench.until_idle()
    assert (await bench.run(bench.item(max_tokens=3))).error is None


@pytest.mark.needs("events")
async def test_usage_that_is_not_told_is_unknown(link: Link, start: Start) -> None:
    bench = await start()
    told = await bench.run(bench.item(stream=True, max_tokens=6))
    assert told.input_tokens
    counts = (b'"usage":', b'"timings":', b'"prompt_progress":')
    link.false_words = {name: name.upper() for name in counts}
    silent = await bench.run(bench.item(stream=True, max_tokens=6))
    assert link.falsified
    assert silent.error is None
    assert silent.input_tokens is None


async def test_fifty_faults_of_callers_leave_it_serving(
    link: Link, start: Start, kind: Kind
) -> None:
    """Behaviour 59."""
    bench = await start()
    wrong, long = types_pb2.ERROR_REASON_INVALID_ARGUMENT, types_pb2.ERROR_REASON_CONTEXT_TOO_LONG
    for _ in range(25):
        assert await reason_of(bench, bench.item(**kind.faulty)) == (wrong, False)
        if "context" not in kind.lacks:
            assert await reason_of(bench, bench.item("word " * 8000)) == (long, False)
        else:
            assert await reason_of(bench, bench.item("")) == (wrong, False)
    assert bench.engine.load().health == SERVING
    assert (await bench.run(bench.item(max_tokens=3))).error is None
