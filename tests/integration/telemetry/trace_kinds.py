"""One request of each kind that leaves a trace of its own form, against one world of processes.

Each function makes one request, below a span of its caller where it has one, and returns the trace
id. What is expected of the traces is in `test_trace_kinds.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from batchyard import AsyncClient, errors
from batchyard.v1 import InferenceRequest, RequestFilter, RequestState, TextInput
from node_agent.engines.simulated_text import is_seamless
from tests.integration.cluster import Cluster, until

SETTINGS = (
    "policies.preempt={name: after_run, options: {min_run: 300ms}}",
    "hedging.by_model={h: {enabled: true, share: 0.5, least_delay: 200ms}}",
)
HEDGED_AFTER = 60  # requests of a model, so that it is known what is slow
FAST = ("slots=8", "latency=20ms", "latency_per_token=10ms")
SLOW = ("slots=2", "latency=20ms", "latency_per_token=40ms")

# A client that is killed in mid-stream; it traces nothing itself.
_DOOMED = """
import sys, grpc
from batchyard.v1 import (
    GenerateStreamRequest, InferenceRequest, SchedulerServiceStub, TextInput, TraceContext)
address, traceparent = sys.argv[1:]
stub = SchedulerServiceStub(grpc.insecure_channel(address))
request = InferenceRequest(
    model="m", text=TextInput(prompt="[[tokens=4000]]"),
    trace=TraceContext(traceparent=traceparent))
for answer in stub.GenerateStream(GenerateStreamRequest(request=request)):
    if answer.WhichOneof("event") == "deltas":
        print("spoke", flush=True)
"""


@dataclass
class World:
    """A cluster with nodes for all kinds, and clients of both ways in."""

    running: Cluster
    unary: AsyncClient
    multiplex: AsyncClient
    hedged: asyncio.Event  # before that no node of `h` may die

    @classmethod
    async def prepare(cls, running: Cluster, unary: AsyncClient, multiplex: AsyncClient) -> World:
        """Start the nodes, all at once. Nothing runs of the pools `away` and `shelf`."""
        h, f = ("h", "slots=16", "latency=5ms", "latency_per_token=1ms"), ("f", *SLOW)
        engines = (("m", *FAST), ("j", "slots=1", *SLOW[1:]), ("away",), ("shelf",), h)
        await asyncio.gather(
            running.agent_of("a", *(word for engine in engines for word in _engine(*engine))),
            running.agent_of("f1", *_engine(*h), *_engine(*f)),
            running.agent_of("f2", *_engine(*h), *_engine(*f)),
        )
        for pool in ("away", "shelf"):
            await running.admin.pause_pool(pool)
        return cls(running, unary, multiplex, asyncio.Event())


def _engine(model: str, *options: str) -> list[str]:
    """The flags of a simulated engine of that name and model."""
    words = (f"id={model}", f"models=[{model}]", *options)
    return ["--engine", "simulated", *(w for o in words for w in ("--engine-option", o))]


async def unary(world: World) -> None:
    await world.unary.generate("hi [[tokens=30]]", model="m", task_type="chat", priority=8)


async def streamed(world: World) -> None:
    async with world.unary.stream("hi [[tokens=30]]", model="m", task_type="chat") as stream:
        async for _ in stream:
            pass


async def multiplexed(world: World) -> None:
    await world.multiplex.generate("hi [[tokens=30]]", model="m", task_type="chat")


async def multiplexed_stream(world: World) -> None:
    async with world.multiplex.stream("hi [[tokens=30]]", model="m", task_type="chat") as stream:
        async for _ in stream:
            pass


async def degraded(world: World) -> None:
    asked = {"model": "away", "degrade": ["m"], "max_wait": "200ms"}
    found = await world.unary.generate("hi [[tokens=10]]", **asked)
    assert found.degraded


async def cancelled(world: World) -> None:
    stream = world.unary.stream("[[stall]]", model="m", task_type="chat")
    reading = asyncio.ensure_future(stream.wait())

    async def runs() -> bool:
        return stream.node_id != ""

    await until(runs)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def cancelled_in_queue(world: World) -> None:
    call = asyncio.ensure_future(world.unary.generate("hi", model="shelf"))

    async def waits() -> bool:
        return any([q.depth async for q in world.running.admin.queues(pool="shelf")])

    await until(waits)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def expired_in_queue(world: World) -> None:
    with pytest.raises(errors.BatchyardError):
        await world.unary.generate("hi", model="away", max_wait="300ms")


async def rejected(world: World) -> None:
    with pytest.raises(errors.ModelNotFound):
        await world.unary.generate("hi", model="nobody-has-it")


async def refused(world: World) -> None:
    with pytest.raises(errors.InvalidRequest):
        await world.unary.generate("hi", model="m", n=999)


async def failed(world: World) -> None:
    with pytest.raises(errors.BatchyardError):
        await world.unary.generate("[[fail=3]]", model="m", max_attempts=1, task_type="chat")


async def hedged(world: World) -> None:
    """Its first node stalls; another one is asked, too, and answers."""
    quiet = SpanContext(7, 7, is_remote=True, trace_flags=TraceFlags(0))
    with trace.use_span(NonRecordingSpan(quiet)):
        for number in range(0, HEDGED_AFTER, 20):
            calls = [world.multiplex.stream(f"{number} [[tokens=3]]", model="h") for _ in range(20)]
            await asyncio.gather(*(call.wait() for call in calls))
    async with world.unary.stream(
        "[[stall@1]] [[tokens=9]]", model="h", task_type="chat"
    ) as stream:
        async for _ in stream:
            pass
    world.hedged.set()


async def failed_over(world: World) -> None:
    """Its node is killed in mid-stream; another one goes on."""
    await world.hedged.wait()
    stream = world.unary.stream("p", model="f", max_tokens=30, task_type="chat", priority=8)
    async with stream:
        count = 0
        async for _ in stream:
            count += 1
            if count == 4:
                world.running.agents[stream.node_id].signal(signal.SIGKILL)
    assert is_seamless(stream.text)


async def preempted(world: World) -> str:
    """An item of a job makes room for an interactive request, and goes on."""
    return await _job(world, "preempted", "[[tokens=60]]", interrupted=True)


async def job_item(world: World) -> str:
    return await _job(world, "job item", "hi [[tokens=10]]", interrupted=False)


async def _job(world: World, name: str, prompt: str, *, interrupted: bool) -> str:
    jobs = world.unary.jobs
    model = "j" if interrupted else "m"
    request = InferenceRequest(model=model, text=TextInput(prompt=prompt), task_type="chat")
    with trace.get_tracer("caller").start_as_current_span(f"caller of {name}"):
        job = await jobs.create([request])
    if interrupted:
        await until(lambda: _runs_a_job(world))
        await world.unary.generate("hi", model="j", max_tokens=2, priority=10)
    await jobs.wait(job.job_id)
    (result,) = [each async for each in jobs.results(job.job_id)]
    trace_id: str = result.result.trace_id
    return trace_id


async def _runs_a_job(world: World) -> bool:
    """Its engine has begun, so that it can be stopped."""
    running = RequestFilter(model="j", states=[RequestState.REQUEST_STATE_RUNNING])
    return bool([each async for each in world.running.admin.requests(running)])


async def killed_client(world: World) -> str:
    """Its process is killed while output comes."""
    trace_id, span_id = os.urandom(16).hex(), os.urandom(8).hex()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DOOMED, world.running.addresses["client"],
        f"00-{trace_id}-{span_id}-01", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"spoke\n"
    process.kill()
    await process.wait()
    return trace_id


Kind = Callable[[World], Awaitable[str | None]]
ALL: tuple[Kind, ...] = (
    unary, streamed, multiplexed, multiplexed_stream, degraded, cancelled, cancelled_in_queue,
    expired_in_queue, rejected, refused, failed, hedged, failed_over, preempted, job_item,
    killed_client,
)  # fmt: skip
_OWN_ROOT = (preempted, job_item, killed_client)


async def one_of_each(world: World) -> dict[str, str]:
    """All kinds, side by side; trace ids by kind."""
    made = await asyncio.gather(*(_one(kind, world) for kind in ALL))
    return {kind.__name__: trace_id for kind, trace_id in zip(ALL, made, strict=True)}


async def _one(kind: Kind, world: World) -> str:
    if kind in _OWN_ROOT:
        found = await kind(world)
        assert found
        return found
    with trace.get_tracer("caller").start_as_current_span(f"caller of {kind.__name__}") as span:
        await kind(world)
        return f"{span.get_span_context().trace_id:032x}"
