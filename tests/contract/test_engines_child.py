"""A server kept as a child is watched, told of when it dies, started again, and ends with us."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.interface import EngineStartError
from node_agent.engines.openai import OpenaiEngine
from node_agent.engines.registry import build_engine
from tests.unit.engines.recording_sink import Bench, joined, serving

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN
COMMAND = [sys.executable, "-m", "tests.unit.engines.hostile_server", "{port}"]


def engine(*command: str, **options: Any) -> OpenaiEngine:
    quick = {"poll_interval": "30ms", "restart_delay": "50ms"}
    given = {"command": list(command or COMMAND), **quick, **options}
    built = build_engine(engine_id="e", kind="openai", options=given)
    assert isinstance(built, OpenaiEngine)
    return built


def server_of(bench: Bench) -> psutil.Process:
    assert isinstance(bench.engine, OpenaiEngine)
    child = bench.engine.server.child
    assert child is not None
    (server,) = psutil.Process(child.pid).children()
    return server


async def start_long(bench: Bench) -> int:
    (dispatch_id,) = bench.submit(bench.item("hold", stream=True))
    await bench.sink.until(lambda: bench.sink.pieces[dispatch_id])
    return dispatch_id


async def until_health(bench: Bench, health: node_service_pb2.EngineHealth) -> None:
    await bench.sink.until(lambda: bench.engine.load().health == health)


async def test_killed_server_is_told_of_and_started_again() -> None:
    """Behaviour 78: a child is exec'd again and again beside the agent's threads."""
    async with serving(engine(), "m") as bench:
        for _ in range(2):
            dispatch_id = await start_long(bench)
            server = server_of(bench)
            os.kill(server.pid, signal.SIGKILL)
            result = await bench.sink.end(dispatch_id, within_s=1.0)
            assert result.error is not None
            assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
            assert joined(result) == "a"
            await until_health(bench, DOWN)
            assert "killed by signal 9: hostile server: starting" in bench.engine.load().message
            await until_health(bench, SERVING)
            assert server_of(bench).pid != server.pid
            assert (await bench.run(bench.item())).error is None


async def test_frozen_server_is_replaced() -> None:
    options = {"stall_timeout": "200ms", "stall_kill": "200ms"}
    async with serving(engine(**options), "m") as bench:
        dispatch_id = await start_long(bench)
        server = server_of(bench)
        server.suspend()
        await until_health(bench, STALLED)
        error = (await bench.run(bench.item())).error
        assert error is not None
        assert error.refused
        assert (await bench.sink.end(dispatch_id)).error is not None
        await until_health(bench, SERVING)
        assert server_of(bench).pid != server.pid


async def test_server_ends_with_its_engine() -> None:
    async with serving(engine(), "m") as bench:
        server = server_of(bench)
        await start_long(bench)
    assert not server.is_running()


async def test_server_ends_when_the_agent_is_gone() -> None:
    """The guard sees its input close, however the agent died."""
    async with serving(engine(), "m") as bench:
        server = server_of(bench)
        assert isinstance(bench.engine, OpenaiEngine)
        assert bench.engine.server.child is not None
        assert bench.engine.server.child.process.stdin is not None
        bench.engine.server.child.process.stdin.close()
        await bench.sink.until(lambda: not server.is_running())


async def test_server_ends_with_a_guard_that_is_told_to_end() -> None:
    """And is started again, as after any other death of its."""
    async with serving(engine(), "m") as bench:
        server = server_of(bench)
        psutil.Process(server.ppid()).terminate()
        await bench.sink.until(lambda: not server.is_running())
        await until_health(bench, DOWN)
        await until_health(bench, SERVING)
        assert server_of(bench).pid != server.pid


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-server", "{port}"), "no-such-server: No such file"),
        ((sys.executable, "-c", "raise SystemExit('wants more memory {port}')"), "wants more"),
    ],
)
async def test_server_that_cannot_start_says_why(command: tuple[str, ...], words: str) -> None:
    built = engine(*command)
    with pytest.raises(EngineStartError, match=words):
        await built.start(Bench(built, "m").sink)
    await built.stop(0)


async def test_server_that_comes_back_and_never_serves_is_started_anew(tmp_path: Path) -> None:
    """Of three starts the second one hangs: the limit of the first start holds for it, too."""
    starts = tmp_path / "starts"
    script = (
        "import pathlib, sys, time\n"
        "log = pathlib.Path(sys.argv[2])\n"
        "number = len(log.read_text()) if log.exists() else 0\n"
        "log.write_text('x' * (number + 1))\n"
        "if number == 1: time.sleep(3600)\n"
        "import asyncio, tests.unit.engines.hostile_server as server\n"
        "asyncio.run(server._serve(int(sys.argv[1])))\n"
    )
    command = (sys.executable, "-c", script, "{port}", str(starts))
    async with serving(engine(*command, start_timeout="5s"), "m") as bench:
        os.kill(server_of(bench).pid, signal.SIGKILL)
        await until_health(bench, STARTING)
        await bench.sink.until(lambda: "did not serve within 5 s" in bench.engine.load().message)
        await until_health(bench, SERVING)
        assert len(starts.read_text()) == 3
