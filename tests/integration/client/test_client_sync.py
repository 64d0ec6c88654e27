"""The synchronous front: threads, leaving loops, forgetting, closing, pickling and forking."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batchyard import AsyncClient, Client, errors
from batchyard.v1 import InferenceResult
from tests.integration.client.scripted_scheduler import (
    ScriptedScheduler,
    ScriptedStream,
    answer,
)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "batchyard-client"]


def speak(stream: ScriptedStream, call: Any) -> None:
    stream.start(call, output_id=1, node_id="n1")
    stream.delta(call, 0, "ab")
    stream.delta(call, 2, "c")
    stream.result(call, InferenceResult(finish_reason=1))  # type: ignore[arg-type]


async def test_threads_share_one_stream(scheduler: ScriptedScheduler) -> None:
    def work() -> list[str]:
        with Client(scheduler.address) as client, ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda i: client.generate(f"p{i}").text, range(100)))

    assert await asyncio.to_thread(work) == [f"p{i}" for i in range(100)]
    assert len(scheduler.streams) == 1
    assert scheduler.streams[0].done
    assert threads() == []


async def test_stream_yields_and_ends_with_a_result(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = speak

    def work() -> None:
        with Client(scheduler.address) as client:
            stream = client.stream("p")
            assert "".join(event.text for event in stream) == "abc"
            assert (stream.result.text, stream.node_id) == ("abc", "n1")
            assert stream.done
            assert client.stream("p").wait().text == "abc"

    await asyncio.to_thread(work)


async def test_break_leaving_the_block_and_forgetting_cancel(
    scheduler: ScriptedScheduler,
) -> None:
    scheduler.on_call = lambda stream, call: stream.delta(call, 0, "one")
    loop = asyncio.get_running_loop()

    def cancelled(count: int) -> None:
        waiting = scheduler.until(lambda: len(scheduler.streams[0].cancelled) == count)
        asyncio.run_coroutine_threadsafe(waiting, loop).result(10)

    def work() -> None:
        with Client(scheduler.address) as client:
            stream = client.stream("break")
            for _ in stream:
                break
            cancelled(1)
            with client.stream("block") as held:
                next(held)
            cancelled(2)
            forgotten = client.stream("forgotten")
            next(forgotten)
            del forgotten
            cancelled(3)
            stopped = client.stream("stopped")
            next(stopped)
            stopped.cancel()
            cancelled(4)
            assert list(stopped) == []

    await asyncio.to_thread(work)


async def test_errors_are_typed_and_local_ones_need_no_server(
    scheduler: ScriptedScheduler,
) -> None:
    def work() -> None:
        with Client(scheduler.address) as client:
            with pytest.raises(errors.InvalidRequest) as caught:
                client.generate("p", priority=99)
            assert caught.value.field == "priority"
            with pytest.raises(errors.InvalidRequest):
                client.stream("")
            with pytest.raises(TypeError, match="did you mean"):
                client.generate("p", modle="m")  # type: ignore[call-arg]

    await asyncio.to_thread(work)
    assert not scheduler.streams


async def test_other_rpcs(scheduler: ScriptedScheduler) -> None:
    def work() -> None:
        with Client(scheduler.address, api_key="k") as client:
            assert [model.model for model in client.list_models()] == ["a", "b"]
            assert client.server_info().version == "9.9"
            assert client.cancel(["x", "y"], reason="why") == ["x"]
            with pytest.raises(errors.InvalidRequest):
                client.cancel([])

    await asyncio.to_thread(work)
    assert scheduler.metadata[-1]["authorization"] == "Bearer k"
    assert list(scheduler.cancel_requests[0].request_ids) == ["x", "y"]


async def test_forgotten_client_ends_its_thread(scheduler: ScriptedScheduler) -> None:
    def work() -> None:
        client = Client(scheduler.address)
        client.generate("p")
        assert len(threads()) == 1
        del client
        gc.collect()
        assert threads() == []

    await asyncio.to_thread(work)
    await scheduler.until(lambda: scheduler.streams[0].ended)


async def test_close_ends_waiting_threads(scheduler: ScriptedScheduler) -> None:
    scheduler.on_call = lambda *_: None
    client = Client(scheduler.address)
    waiting = asyncio.create_task(asyncio.to_thread(client.generate, "p"))
    await scheduler.until(lambda: scheduler.calls)
    await asyncio.to_thread(client.close)
    with pytest.raises(errors.Cancelled):
        await waiting
    with pytest.raises(RuntimeError, match="closed"):
        client.generate("p")
    client.close()


def test_unused_client_starts_no_thread() -> None:
    with Client("127.0.0.1:1"):
        assert threads() == []


async def test_callback_must_not_call_the_client(scheduler: ScriptedScheduler) -> None:
    def work() -> None:
        with Client("127.0.0.1:1", on_retry=lambda _: client.close_or_call()) as client:
            client.close_or_call = lambda: client.generate("again")  # type: ignore[attr-defined]
            with pytest.raises(RuntimeError, match="callback"):
                client.generate("p")

    await asyncio.to_thread(work)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_pickling_is_refused_with_the_reason(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match="create one in each process"):
        pickle.dumps(kind("127.0.0.1:1"))


async def test_client_of_another_process_is_refused(
    scheduler: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child has another pid."""
    client = AsyncClient(scheduler.address)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="after it"):
        await client.generate("p")


FORKS = """
import os, sys
from batchyard import Client

def asked(client):
    try:
        return client.generate("p", timeout="5s").text
    except RuntimeError as error:
        return str(error)

def forked(work):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, work().encode())
        os._exit(0)
    os.close(writer)
    print(os.read(reader, 1000).decode(), flush=True)
    os.wait()

address = sys.argv[1]
unused = Client(address)
forked(lambda: asked(Client(address)))
used = Client(address)
asked(used)
forked(lambda: asked(used))
forked(lambda: asked(Client(address)))
forked(lambda: used.close() or "closed")
print(asked(used), flush=True)
"""


async def test_forked_children_are_told_and_do_not_hang(scheduler: ScriptedScheduler) -> None:
    """Of a client of before the fork, and of a new one where another was in use."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORKS, scheduler.address,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},  # its handlers crash some children
    )  # fmt: skip
    async with asyncio.timeout(60):
        said, _ = await child.communicate()
    before, same, new, closed, parent = said.decode().splitlines()
    assert before == parent == "p"
    assert same == "gRPC does not survive a fork; create clients after it"
    assert "was in use where this process was forked" in new
    assert closed == "closed"


async def test_results_have_all_fields(scheduler: ScriptedScheduler) -> None:
    def rich(stream: ScriptedStream, call: Any) -> None:
        result = answer(call.request, "text", node_id="n", trace_id="t", degraded=True)
        result.degrade_reason = "max_wait"
        result.labels["a"] = "b"
        result.usage.output_tokens = 0
        result.timings.queue_duration.nanos = 5_000_000
        result.timings.receive_time.seconds = 1
        result.attempts.add(number=1, node_id="n", state=2, batch_size=4)
        stream.result(call, result)

    scheduler.on_call = rich
    async with AsyncClient(scheduler.address, model="m") as client:
        result = await client.generate("p")
    assert (result.text, result.model, result.node_id) == ("text", "m", "n")
    assert (result.finish_reason, result.partial, result.trace_id) == ("stop", False, "t")
    assert (result.degraded, result.degrade_reason, result.labels) == (True, "max_wait", {"a": "b"})
    assert (result.usage.output_tokens, result.usage.input_tokens) == (0, None)
    assert result.timings.queue is not None
    assert result.timings.queue.total_seconds() == 0.005
    assert result.timings.receive_time is not None
    assert result.timings.receive_time.year == 1970
    assert result.timings.finish_time is None
    (attempt,) = result.attempts
    assert (attempt.state, attempt.batch_size) == ("succeeded", 4)
    assert pickle.loads(pickle.dumps(result)).proto == result.proto
