"""Callers that leave and time that runs out: the work ends with them, within a second."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import sys
from collections.abc import AsyncIterator

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from batchyard.v1 import inference_pb2, scheduler_service_pb2, types_pb2
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.settings import QueueSettings
from scheduler_service.core.types import MILLISECOND
from tests.integration.scheduler.callers import Exchange, MultiplexExchange
from tests.integration.scheduler.harness import (
    SINGLE,
    SOON_S,
    STREAMS,
    WAYS,
    World,
    prompt,
    running_world,
    seconds,
)

PHASES = {
    "queued": "[[tokens=3]]",
    "before the first token": "[[sleep=30s]]",
    "running": "[[stall]]",
    "streaming": "[[stall=5]]",
}


LEAVER = 0xABC  # the trace of the one who leaves
SAMPLED = types_pb2.TraceContext(traceparent=f"00-{LEAVER:032x}-{'b' * 16}-01")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """One slot."""
    async with running_world() as running:
        await running.add_agent(slots=1)
        yield running


@pytest.fixture
async def traced_world() -> AsyncIterator[World]:
    """The same, with spans."""
    async with running_world(traced=True) as running:
        await running.add_agent(slots=1)
        yield running


async def occupy(world: World) -> Exchange:
    """Take the one slot, from a stream of its own."""
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt("[[stall]]", request_id="occupant"))
    await world.until(lambda: world.running() == 1)
    await world.multiplex()
    return exchange


async def reach(world: World, way: str, phase: str) -> tuple[Exchange, Exchange | None]:
    """A call that is in this phase, and who holds the slot meanwhile."""
    occupant = await occupy(world) if phase == "queued" else None
    exchange = await world.begin(way, prompt(PHASES[phase], request_id="leaver", trace=SAMPLED))
    if occupant is not None:
        await world.until(lambda: world.queued() == 1)
    else:
        await world.until(lambda: world.running() == 1)
    if phase == "streaming" and way in STREAMS:
        await exchange.until(lambda: exchange.answer.text.count(" ") == 5)
    return exchange, occupant


async def leave(world: World, exchange: Exchange, how: str) -> None:
    if how == "cancel":
        await exchange.cancel()
    elif how == "by id":
        message = scheduler_service_pb2.CancelRequestsRequest(
            request_ids=["leaver", "unknown"], reason="no longer wanted"
        )
        answer = await world.method("CancelRequests")(message)
        assert list(answer.request_ids) == ["leaver"]
    elif isinstance(exchange, MultiplexExchange):
        await exchange.stream.close()
    else:
        await exchange.cancel()


async def slot_is_free(world: World) -> None:
    """A next call runs at once."""
    async with asyncio.timeout(SOON_S):
        assert (await world.ask("generate", prompt())).error is None


@pytest.mark.parametrize("how", ["cancel", "by id", "break"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("way", WAYS)
async def test_work_ends_with_its_caller(world: World, way: str, phase: str, how: str) -> None:
    """Behaviours 10, 38, 39: in each phase, whichever way the caller leaves."""
    await _ends(world, way, phase, how)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("way", WAYS)
async def test_work_ends_with_its_caller_where_it_is_traced(
    traced_world: World, way: str, phase: str
) -> None:
    """Behaviour 43: all the same, and every span that was begun has its end."""
    await _ends(traced_world, way, phase, "cancel" if way in STREAMS else "break")
    await traced_world.until(lambda: "schedule" in spans_of_leaver(traced_world))
    spans = spans_of_leaver(traced_world)
    assert "cancel_requested" in [event.name for event in spans["schedule"].events]
    assert ("attempt" in spans) == (phase != "queued"), list(spans)


def spans_of_leaver(world: World) -> dict[str, ReadableSpan]:
    """Those that have ended, by the first word of their name."""
    ended = world.spans.get_finished_spans()
    return {span.name.split()[0]: span for span in ended if span.context.trace_id == LEAVER}


async def _ends(world: World, way: str, phase: str, how: str) -> None:
    exchange, occupant = await reach(world, way, phase)
    await leave(world, exchange, how)
    others = 0 if occupant is None else 1
    await world.until(lambda: len(world.state.requests) == others, SOON_S)
    if occupant is not None:
        assert len(world.state.nodes["n1"].in_flight) == 1, "the agent never hears of it"
        await occupant.cancel()
    await world.settled()
    if how == "by id" or (how == "cancel" and way not in SINGLE):
        answer = await exchange.wait()
        assert answer.reason == "CANCELLED_BY_CLIENT"
        assert answer.code == grpc.StatusCode.CANCELLED.value[0]
        assert answer.result is not None
        assert answer.result.finish_reason == types_pb2.FINISH_REASON_CANCELLED
    await slot_is_free(world)


@pytest.mark.parametrize("way", STREAMS)
async def test_cancelled_output_is_marked_partial_and_counted(world: World, way: str) -> None:
    """Behaviour 135: what was delivered before the cancel is in the result's usage."""
    exchange, _ = await reach(world, way, "streaming")
    await leave(world, exchange, "by id")
    answer = await exchange.wait()
    assert answer.result is not None
    assert answer.result.partial
    assert answer.result.usage.partial
    assert answer.result.usage.output_tokens == 5
    assert answer.error is not None
    assert answer.error.message == "no longer wanted"


async def test_cancels_of_unknown_and_finished_calls_are_ignored(world: World) -> None:
    stream = await world.multiplex()
    (exchange,) = await stream.start(prompt())
    await exchange.wait()
    await stream.send(cancel_call_ids=[exchange.call_id, 999, 0])
    (again,) = await stream.start(prompt())
    assert (await again.wait()).error is None
    await world.settled()


async def test_call_and_its_cancel_in_one_message_end_as_cancelled(world: World) -> None:
    stream = await world.multiplex()
    exchange, call = stream.new(prompt("[[stall]]"))
    await stream.send(calls=[call], cancel_call_ids=[call.call_id])
    assert (await exchange.wait()).reason == "CANCELLED_BY_CLIENT"
    assert world.state.totals.batches == 0
    await world.settled()


CLIENT = """
import sys, threading, grpc
from batchyard.v1 import inference_pb2 as i, scheduler_service_pb2 as s
from batchyard.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
def request(prompt):
    return i.InferenceRequest(model="simulated", text=i.TextInput(prompt=prompt))
forever = threading.Event()
def messages():
    yield s.MultiplexRequest(open=s.MultiplexOpen())
    yield s.MultiplexRequest(calls=[
        s.Call(call_id=1, request=request("[[stall]]")),
        s.Call(call_id=2, request=request("[[stall=3]]"), stream=True),
        s.Call(call_id=3, request=request("[[stall]]"), stream=True),
    ])
    forever.wait()
stub = SchedulerServiceStub(grpc.insecure_channel(sys.argv[1]))
unary = stub.Generate.future(s.GenerateRequest(request=request("[[stall]]")))
stream = stub.GenerateStream(s.GenerateStreamRequest(request=request("[[stall=3]]")))
for event in stub.Multiplex(messages()):
    pass
"""


async def test_killed_client_takes_its_work_with_it() -> None:
    """Behaviour 38: kill -9 of a client with calls of every kind, running and queued."""
    async with running_world() as world:
        await world.add_agent(slots=3)
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, world.address)
        await world.until(lambda: world.running() == 3 and world.queued() == 2, 20)
        client.send_signal(signal.SIGKILL)
        await client.wait()
        await world.settled()
        assert world.state.totals.outcomes[Outcome.CANCELLED] == 5


async def test_cancels_around_the_start_leave_no_slot_behind() -> None:
    """Behaviour 28: cancelled 0..10 ms after they were sent; then one normal call per slot."""
    chance = random.Random(28)
    loop = asyncio.get_running_loop()
    async with running_world() as world:
        agent = await world.add_agent(slots=4, latency="3ms")
        stream = await world.multiplex()
        exchanges = []
        for _ in range(10):
            started = await stream.start(*(prompt("[[tokens=2]]") for _ in range(50)))
            for exchange in started:
                later = asyncio.Event()
                loop.call_later(chance.uniform(0, 0.01), later.set)
                exchanges.append(asyncio.create_task(cancel_after(later, exchange)))
            assert agent.held <= 4
        await asyncio.gather(*exchanges)
        for exchange in stream.exchanges.values():
            assert (await exchange.wait()).reason in ("", "CANCELLED_BY_CLIENT")
        await world.settled()
        normal = await stream.start(*(prompt("[[stall]]") for _ in range(4)))
        await world.until(lambda: world.running() == 4, SOON_S)
        await stream.send(cancel_call_ids=[exchange.call_id for exchange in normal])
        await world.settled()


async def cancel_after(event: asyncio.Event, exchange: Exchange) -> None:
    await event.wait()
    await exchange.cancel()


async def test_every_kind_of_end_gives_the_slot_back() -> None:
    """Behaviour 29: a failing engine, a hanging one, a cancel, a repeated id, a deadline."""
    async with running_world() as world:
        await world.add_agent(slots=2)
        once = {"failover": inference_pb2.FailoverPolicy(max_attempts=1)}
        for way in WAYS:
            failed = await world.ask(way, prompt("[[fail]]", **once))
            assert failed.reason == "NODE_LOST" or failed.reason == "ATTEMPTS_EXHAUSTED"
            late = await world.ask(way, prompt("[[stall]]", timeout=seconds(0.1)))
            assert late.reason == "DEADLINE_EXCEEDED"
            for _ in range(2):
                await world.ask(way, prompt(request_id=f"same-{way}"))
            left = await world.begin(way, prompt("[[stall]]", request_id="leaver"))
            await world.until(lambda: world.running() == 1)
            await leave(world, left, "by id")
            await world.settled()
        both = [await world.begin("multiplex", prompt("[[stall]]")) for _ in range(2)]
        await world.until(lambda: world.running() == 2, SOON_S)
        for exchange in both:
            await exchange.cancel()
        await world.settled()


async def test_submits_of_one_moment_never_overfill_the_engine() -> None:
    """Behaviour 33: 300 calls in one message and random cancels; never more than the slots."""
    chance = random.Random(33)
    async with running_world() as world:
        agent = await world.add_agent(slots=10, latency="2ms")
        held: list[int] = []
        world.driver.observe(lambda _records: held.append(agent.held))
        stream = await world.multiplex()
        exchanges = await stream.start(*(prompt("[[tokens=2]]") for _ in range(300)))
        for _ in range(100):
            await chance.choice(exchanges).cancel()
        for exchange in exchanges:
            assert (await exchange.wait()).reason in ("", "CANCELLED_BY_CLIENT")
        await world.settled()
        assert max(held) == 10


async def test_collector_of_memory_takes_no_task_away(collecting: None) -> None:
    """Behaviour 37: it runs every few milliseconds; a task that nobody kept would be gone."""
    async with running_world() as world:
        await world.add_agent(slots=8, latency="5ms")
        calls = [await world.begin(WAYS[n % len(WAYS)], prompt("[[tokens=3]]")) for n in range(200)]
        answers = await asyncio.gather(*(call.wait() for call in calls))
        assert all(answer.error is None for answer in answers)
        await world.settled()


@pytest.fixture
async def collecting() -> AsyncIterator[None]:
    """Collects again and again, of what is made from now on: the rest of a test run is large."""
    gc.freeze()
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def collect() -> None:
        nonlocal timer
        gc.collect()
        timer = loop.call_later(0.02, collect)

    collect()
    yield
    assert timer is not None
    timer.cancel()
    gc.unfreeze()


@pytest.mark.parametrize("way", WAYS)
async def test_several_ends_at_once_are_one(way: str) -> None:
    """Behaviour 35: cancel, deadline and a broken connection within 2 ms, 30 times."""
    async with running_world() as world:
        await world.add_agent(slots=2)
        by_id = scheduler_service_pb2.CancelRequestsRequest(request_ids=["leaver"])
        for n in range(30):
            request = prompt("[[stall=2]]", timeout=seconds(0.02), request_id="leaver")
            exchange = await world.begin(way, request)
            await world.until(lambda: world.state.requests)
            ends = [exchange.cancel()]
            if n % 2:
                ends.append(world.method("CancelRequests")(by_id))
            if n % 3:
                ends.append(leave(world, exchange, "break"))
            await asyncio.gather(*ends, return_exceptions=True)
            await world.settled()
        totals = world.state.totals.outcomes
        assert totals[Outcome.CANCELLED] + totals[Outcome.EXPIRED] == world.state.totals.received


# Ends that the scheduler itself decides.


@pytest.mark.parametrize("way", WAYS)
async def test_lost_node_ends_a_waiting_call_with_a_status(way: str) -> None:
    """Behaviour 42: the client has no deadline and nobody cancels; still it hears the end."""
    queue = QueueSettings(no_node_grace=200 * MILLISECOND)
    async with running_world(queue=queue) as world:
        agent = await world.add_agent(slots=1)
        exchange = await world.begin(way, prompt("[[stall]]"))
        await world.until(lambda: world.running() == 1)
        await agent.stop()
        answer = await exchange.wait()
        assert answer.reason == "NO_CAPACITY"
        assert answer.code == grpc.StatusCode.UNAVAILABLE.value[0]
        assert answer.error is not None
        assert answer.error.HasField("retry_after")
        if way in SINGLE:
            assert int(answer.trailers["grpc-retry-pushback-ms"]) >= 0
        world.agents.clear()
        await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_no_time_to_wait_ends_at_once(world: World, way: str) -> None:
    occupant = await occupy(world)
    answer = await world.ask(way, prompt(max_wait=seconds(0)))
    assert answer.reason == "MAX_WAIT_EXCEEDED"
    assert answer.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    await occupant.cancel()
    await world.settled()


# Deadlines.


@pytest.mark.parametrize("way", WAYS)
async def test_deadline_in_the_queue_does_not_wait_for_a_slot(world: World, way: str) -> None:
    """Behaviour 18: it ends by its own timer, and the engine never sees it."""
    occupant = await occupy(world)
    began = asyncio.get_running_loop().time()
    answer = await world.ask(way, prompt(timeout=seconds(0.3)))
    took = asyncio.get_running_loop().time() - began
    assert 0.29 <= took < 0.8
    assert answer.reason == "DEADLINE_EXCEEDED"
    assert answer.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
    assert answer.result is not None
    assert answer.result.finish_reason == types_pb2.FINISH_REASON_EXPIRED
    assert not answer.result.attempts
    assert not occupant.ended.is_set()
    await occupant.cancel()
    await world.settled()


@pytest.mark.parametrize("text", ["[[sleep=30s]]", "[[stall=3]]"])
@pytest.mark.parametrize("way", WAYS)
async def test_deadline_stops_the_engine(world: World, way: str, text: str) -> None:
    """Behaviour 21: at expiry the engine is told, and the next call has the slot."""
    answer = await world.ask(way, prompt(text, timeout=seconds(0.3)))
    assert answer.reason == "DEADLINE_EXCEEDED"
    await world.settled()
    await slot_is_free(world)


@pytest.mark.parametrize("way", SINGLE)
@pytest.mark.parametrize(("timeout_s", "rpc_s"), [(0.3, 20.0), (20.0, 0.3)])
async def test_earlier_of_timeout_and_rpc_deadline_counts(
    world: World, way: str, timeout_s: float, rpc_s: float
) -> None:
    began = world.clock.now()
    request = prompt("[[stall]]", timeout=seconds(timeout_s))
    exchange = await world.begin(way, request, deadline_s=rpc_s)
    await world.until(lambda: world.running() == 1)
    (held,) = world.state.requests.values()
    assert 0.2 < (held.deadline - began) / 1e9 < 0.4
    answer = await exchange.wait()
    assert answer.status is grpc.StatusCode.DEADLINE_EXCEEDED
    if timeout_s < rpc_s:
        assert answer.reason == "DEADLINE_EXCEEDED"
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_none_huge_and_tiny_deadlines(way: str) -> None:
    """Behaviour 20: none and ten years are fine, 1 ms expires and nothing is dispatched."""
    async with running_world() as world:
        await world.add_agent(slots=1, latency="30ms")
        ten_years = 10 * 365 * 24 * 3600
        assert (await world.ask(way, prompt())).error is None
        huge = await world.ask(way, prompt(), deadline_s=ten_years if way in SINGLE else None)
        assert huge.error is None
        huge = await world.ask(way, prompt(timeout=seconds(ten_years)))
        assert huge.error is None
        batches = world.state.totals.batches
        tiny = await world.ask(way, prompt(timeout=seconds(0.001)))
        assert tiny.reason in ("DEADLINE_UNREACHABLE", "DEADLINE_EXCEEDED")
        assert tiny.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
        if way in SINGLE:
            tiny = await world.ask(way, prompt(), deadline_s=0.001)
            assert tiny.status is grpc.StatusCode.DEADLINE_EXCEEDED
        await world.settled()
        assert world.state.totals.batches == batches


async def test_timeout_above_the_limit_is_held_to_it(world: World) -> None:
    exchange = await world.begin("multiplex", prompt("[[stall]]", timeout=seconds(10**9)))
    await world.until(lambda: world.running() == 1)
    (held,) = world.state.requests.values()
    assert held.deadline - held.received_at == world.limits.max_timeout
    await exchange.cancel()
    await world.settled()
