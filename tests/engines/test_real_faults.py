"""Real engines behind the scheduler that are killed or freeze, and callers at fault."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.guarded_process import free_port
from node_agent.engines.openai import OpenaiEngine
from node_agent.engines.registry import build_engine
from scripts.engine_environments import interpreter
from tests.engines.servers import START_S, VLLM_ENV, triton_server
from tests.engines.test_real_engines import SETTINGS, running_by_its_own_count
from tests.integration.cluster import Cluster, cluster, until
from tests.unit.engines.llamacpp_http import HttpServer, llamacpp_server
from tests.unit.engines.recording_sink import serving

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
LONG: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True, "timeout": "120s"}


@pytest.fixture
def own_llamacpp(tiny_gguf: str) -> Iterator[HttpServer]:
    """A llama.cpp server that this test may end."""
    with llamacpp_server(tiny_gguf, slots=8, context=4096) as server:
        yield server


@pytest.mark.timeout(400)
async def test_killed_llamacpp_fails_over_to_vllm(own_llamacpp: HttpServer, vllm: str) -> None:
    async with cluster(settings=SETTINGS) as running:
        await running.agent_of("llama", "--engine", "openai", "--url", own_llamacpp.url)
        work = [asyncio.create_task(running.client.generate(f"go {i}", **LONG)) for i in range(4)]

        async def busy() -> bool:
            return await asyncio.to_thread(running_by_its_own_count, own_llamacpp.url) == 4

        await until(busy)
        await running.agent_of("vllm", "--engine", "vllm", "--url", vllm)
        own_llamacpp.process.send_signal(signal.SIGKILL)
        results = await asyncio.gather(*work)
        assert {result.node_id for result in results} == {"vllm"}
        assert {result.usage.output_tokens for result in results} == {1500}


async def test_killed_triton_fails_over_to_llamacpp_and_serves_again_when_it_is_back(
    tmp_path: Path, tiny_gguf: str
) -> None:
    """Texts go to both; nobody tells the agent that its server is back."""
    port = free_port()
    async with cluster(settings=SETTINGS) as running:
        with triton_server(tmp_path / "first", port) as triton:
            flags = ("--engine", "oip", "--engine-option", f"address=127.0.0.1:{port}")
            await running.agent_of("triton", *flags)
            work = asyncio.create_task(running.client.generate("word " * 700, max_tokens=700))
            await until(lambda: _runs(running, "triton"))
            llamacpp = (f"model_path={tiny_gguf}", "model=m", "context_per_slot=8000")
            options = [flag for option in llamacpp for flag in ("--engine-option", option)]
            await running.agent_of("llama", "--engine", "llamacpp", *options)
            triton.send_signal(signal.SIGKILL)
            result = await work
        assert [attempt.node_id for attempt in result.attempts] == ["triton", "llama"]
        assert result.usage.output_tokens == 700
        await until(lambda: _refuses(running, "triton"))
        with triton_server(tmp_path / "second", port):
            await until(lambda: running.healthy("triton"))
            running.agents.pop("llama").signal(signal.SIGKILL)
            await until(lambda: _refuses(running, "llama"))
            again = await running.client.generate("two words")
            assert (again.node_id, again.text) == ("triton", "two words ")


async def test_callers_at_fault_leave_llamacpp_in_service_and_a_freeze_takes_it_out(
    own_llamacpp: HttpServer, tmp_path: Path, tiny_gguf: str
) -> None:
    """Behaviours 22 and 59: fifty faults, then SIGSTOP; back by a trial, without an operator."""
    async with cluster(settings=SETTINGS) as running:
        options = ("first_token_timeout=1s", "stall_timeout=1s", "trial_interval=200ms")
        flags = [flag for option in options for flag in ("--engine-option", option)]
        await running.agent_of("a", "--engine", "openai", "--url", own_llamacpp.url, *flags)
        client = running.client
        bad: list[dict[str, Any]] = [
            {"prompt": "word " * 4000},
            {"prompt": "hi", "grammar": "root ::= ("},
        ]
        for number in range(50):
            with pytest.raises(Exception, match=r"context|grammar") as fault:
                await client.generate(**bad[number % 2], max_attempts=1)
            wanted = ("CONTEXT_TOO_LONG", "INVALID_ARGUMENT")[number % 2]
            assert fault.value.reason == wanted
        assert await running.healthy("a")
        own_llamacpp.process.send_signal(signal.SIGSTOP)
        work = asyncio.create_task(client.generate("hello", max_tokens=5))
        await until(lambda: _refuses(running, "a"))
        await running.agent("b", "slots=4")
        assert (await work).node_id == "b"
        own_llamacpp.process.send_signal(signal.SIGCONT)
        await until(lambda: running.healthy("a"), within_s=40)
        running.agents.pop("b").signal(signal.SIGKILL)
        await until(lambda: _refuses(running, "b"))
        assert (await client.generate("hello", max_tokens=5)).node_id == "a"


@pytest.mark.timeout(600)
async def test_killed_vllm_is_started_again_by_its_agent(
    vllm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a child of the agent, with all the processes that it starts itself; twice a slow start."""
    for name, value in VLLM_ENV.items():
        monkeypatch.setenv(name, value)
    args = ["--served-model-name", "m", "--max-num-seqs", "8", "--enforce-eager"]
    options = {
        "model": str(vllm_folder / "model"),
        "python": str(interpreter("vllm")),
        "args": args,
        "poll_interval": "100ms",
    }
    engine = build_engine(engine_id="e", kind="vllm", options=options)
    async with serving(engine, "m", {"ignore_eos": True}) as bench:
        assert isinstance(engine, OpenaiEngine)
        (running,) = bench.submit(bench.item(stream=True, max_tokens=20000))
        await bench.sink.until(lambda: bench.sink.pieces[running])
        assert engine.server.child is not None
        family = psutil.Process(engine.server.child.pid).children(recursive=True)
        family[0].kill()
        result = await bench.sink.end(running, within_s=2.0)
        assert result.error is not None
        assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
        await bench.sink.until(lambda: engine.load().health == DOWN, within_s=2.0)
        assert "killed by signal 9" in engine.load().message
        await bench.sink.until(lambda: engine.load().health == SERVING, within_s=START_S)
        assert not [process for process in family if process.is_running()]
        assert (await bench.run(bench.item(max_tokens=3))).error is None


async def _runs(running: Cluster, node_id: str) -> bool:
    return any(r.node_id == node_id for r in [r async for r in running.admin.requests()])


async def _refuses(running: Cluster, node_id: str) -> bool:
    return not await running.healthy(node_id)
