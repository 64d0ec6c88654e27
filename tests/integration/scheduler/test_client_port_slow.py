"""Readers that do not read: they are cut off, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from batchyard import AsyncClient
from batchyard.v1 import scheduler_service_pb2
from node_agent.engines.simulated_text import check_text
from scheduler_service.core.outcomes import Outcome
from scheduler_service.rpc.streams import MultiplexWriter
from scheduler_service.rpc.validate import Limits
from tests.integration.scheduler.callers import SingleExchange
from tests.integration.scheduler.harness import World, prompt, running_world

TOKENS = 80_000
LONG = f"[[tokens={TOKENS}]]"  # 1 MB of text
TOO_MUCH = 200_000
# HTTP/2 windows that stay small: else gRPC itself takes in megabytes that nobody reads.
NARROW: dict[str, Any] = {"http2.bdp_probe": 0, "http2.lookahead_bytes": 65536}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world(limits=Limits(max_output_buffer=TOO_MUCH)) as running:
        model = {"name": "simulated", "context_length": 1_000_000}
        await running.add_agent(slots=8, models=[model])
        yield running


def cut_off(world: World) -> int:
    return world.state.totals.outcomes[Outcome.CANCELLED]


async def test_slow_stream_is_cut_off_call_by_call_and_others_go_on(world: World) -> None:
    """The rest of its calls still have their answers, once it reads."""
    slow = await world.multiplex(reads=False, **NARROW)
    outputs = await slow.start(prompt(LONG), prompt(LONG), stream=True)
    (quiet,) = await slow.start(prompt(LONG))
    other = await world.multiplex()
    brief = await other.start(*(prompt("[[tokens=50]]") for _ in range(20)), stream=True)
    for exchange in brief:
        assert check_text((await exchange.wait()).text)[0][1:] == (0, 49)
    single = await world.ask("generate_stream", prompt("[[tokens=50]]"))
    assert single.error is None
    await world.until(lambda: cut_off(world) == 2)
    await world.settled()
    slow.read_on()
    for exchange in outputs:
        answer = await exchange.wait()
        assert answer.reason == "CLIENT_TOO_SLOW"
        assert answer.code == grpc.StatusCode.CANCELLED.value[0]
        assert answer.result is not None
        assert answer.result.partial
    assert check_text((await quiet.wait()).text)[0][1:] == (0, TOKENS - 1)


async def test_slow_reader_of_a_stream_of_its_own_is_cut_off(world: World) -> None:
    message = scheduler_service_pb2.GenerateStreamRequest(request=prompt(LONG))
    world.channel = world.connect(**NARROW)
    call: Any = world.method("GenerateStream", "unary_stream")(message)
    await world.until(lambda: cut_off(world) == 1)
    await world.settled()
    assert (await world.ask("generate_stream", prompt("[[tokens=50]]"))).error is None
    answer = await SingleExchange(call, streams=True).wait()
    assert answer.status is grpc.StatusCode.CANCELLED
    assert answer.reason == "CLIENT_TOO_SLOW"


@pytest.mark.parametrize("way", ["generate", "multiplex", "multiplex_stream"])
async def test_slow_reader_of_a_shared_request_leaves_alone(world: World, way: str) -> None:
    request = prompt(f"[[sleep=200ms]]{LONG}", request_id="shared")
    slow = await world.multiplex(reads=False, **NARROW)
    (lost,) = await slow.start(request, stream=True)
    await world.until(lambda: world.running() == 1)
    await world.multiplex()
    answer = await world.ask(way, request)
    assert answer.error is None
    assert check_text(answer.text)[0][1:] == (0, TOKENS - 1)
    slow.read_on()
    assert (await lost.wait()).reason == "CLIENT_TOO_SLOW"
    await world.settled()


async def test_late_caller_is_sent_more_than_the_buffer_at_once(world: World) -> None:
    """What it lacks is one delta; the limit is for what waits behind that."""
    request = prompt(f"{LONG}[[stall={TOKENS - 1}]]", request_id="shared")
    end = f"{TOKENS - 2}:"
    first = await world.begin("multiplex_stream", request)
    await first.until(lambda: first.answer.rows and end in first.answer.rows[-1][3])
    await world.multiplex()
    late = await world.begin("multiplex_stream", request)
    await late.until(lambda: late.answer.rows)
    assert late.answer.rows[0][3] == first.answer.text
    message = scheduler_service_pb2.CancelRequestsRequest(request_ids=["shared"])
    await world.method("CancelRequests")(message)
    await world.settled()


async def test_client_that_only_writes_is_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends of calls that it does not read are bounded; when it reads, all of them come."""
    async with running_world(limits=Limits(max_outstanding=500)) as world:
        stream = await world.multiplex(reads=False, **NARROW)
        batch = 1_000
        bad = [scheduler_service_pb2.Call(call_id=n + 1, request=prompt("")) for n in range(batch)]

        async def flood() -> None:
            for _ in range(15):
                await stream.send(calls=bad)

        writing = asyncio.create_task(flood())
        unread: list[int] = []
        full = asyncio.Event()
        result = MultiplexWriter.result

        def counted(writer: MultiplexWriter, call_id: int, data: bytes) -> None:
            result(writer, call_id, data)
            unread.append(len(writer._results))
            if unread[-1] > 500:
                full.set()

        monkeypatch.setattr(MultiplexWriter, "result", counted)
        async with asyncio.timeout(5):
            await full.wait()
        await asyncio.wait([writing], timeout=0.5)
        stream.read_on()
        await writing
        await stream.done()
        await stream.wait()
        assert max(unread) <= 500 + batch
        assert sum(len(message.results) for message in stream.messages) == 15 * batch


async def test_going_away_lets_what_runs_here_finish(world: World) -> None:
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt("[[sleep=200ms]]"))
    await world.until(lambda: world.running() == 1)
    world.port.go_away()
    assert (await exchange.wait()).error is None
    assert any(message.going_away for message in stream.messages)


async def test_library_calls_all_ways_at_once(world: World) -> None:
    """The Python client: 200 calls of both kinds share a stream; leaving a loop cancels."""
    async with AsyncClient(world.address, detach_grace="0s") as client:

        async def streamed(tokens: int) -> str:
            stream = client.stream(f"[[tokens={tokens}]]", model="simulated")
            return "".join([event.text async for event in stream])

        whole = [client.generate(f"[[tokens={n}]]", model="simulated") for n in range(1, 101)]
        texts = await asyncio.gather(*(streamed(n) for n in range(1, 101)))
        results = await asyncio.gather(*whole)
        for n, (text, result) in enumerate(zip(texts, results, strict=True)):
            assert check_text(text)[0][1:] == check_text(result.text)[0][1:] == (0, n)
        async for _ in client.stream("[[stall=3]]", model="simulated"):
            break
        await world.settled()
