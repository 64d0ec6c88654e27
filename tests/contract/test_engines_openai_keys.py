"""Whose fault is a 401 or 403: the key's, or the one request's? And what becomes of either?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from batchyard.v1 import node_service_pb2, types_pb2
from tests.contract.openai_bench import engine, reason_of, until_health
from tests.unit.engines.hostile_server import TEXT, HostileServer, hostile_server
from tests.unit.engines.recording_sink import joined, serving

SERVING = node_service_pb2.ENGINE_HEALTH_SERVING
STALLED = node_service_pb2.ENGINE_HEALTH_STALLED
STARTING = node_service_pb2.ENGINE_HEALTH_STARTING
DOWN = node_service_pb2.ENGINE_HEALTH_DOWN


@pytest_asyncio.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with hostile_server() as server:
        yield server


async def test_trial_of_an_engine_that_hung_tells_of_a_refused_key(server: HostileServer) -> None:
    options = {"first_token_timeout": "200ms", "trial_interval": "50ms"}
    async with serving(engine(server.url, **options), "m") as bench:
        server.hangs = True
        assert await reason_of(bench, "x") == (types_pb2.ERROR_REASON_ENGINE_STALLED, False)
        await until_health(bench, STALLED)
        server.refuses["m"] = 401
        await until_health(bench, DOWN)
        assert "api_key_file" in bench.engine.load().message
        server.refuses["m"] = 503
        await bench.sink.until(lambda: "503" in bench.engine.load().message)
        server.refuses.clear()
        server.hangs = False
        await until_health(bench, SERVING)
        assert (await bench.run(bench.item())).error is None


@pytest.mark.parametrize(
    ("status", "words", "health"),
    [(401, "api_key_file", DOWN), (403, "api_key_file", DOWN), (503, "answered 503", STARTING)],
)
async def test_server_that_refuses_our_calls_gets_none_until_it_answers(
    server: HostileServer,
    status: int,
    words: str,
    health: node_service_pb2.EngineHealth,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says so once, however often it is tried."""
    caplog.set_level("INFO", "node_agent.engines.openai_server")
    async with serving(engine(server.url), "m") as bench:
        server.refuses["m"] = status
        assert (await reason_of(bench, "x"))[1]
        await until_health(bench, health)
        assert words in bench.engine.load().message
        asked = server.refused
        await bench.sink.until(lambda: server.refused > asked + 3)
        assert [words in record.getMessage() for record in caplog.records] == [True]
        server.refuses.clear()
        await until_health(bench, SERVING)
        assert (await bench.run(bench.item())).error is None


async def test_requests_that_are_denied_end_while_others_are_served(server: HostileServer) -> None:
    """Behaviour 59: the key is asked about once for all of them, and is not at fault."""
    async with serving(engine(server.url, slots=60), "m") as bench:
        served = bench.submit(*(bench.item("slow") for _ in range(4)))
        asked, changes = len(server.bodies), bench.sink.changes
        for _ in range(2):
            denied = bench.submit(*(bench.item("403") for _ in range(25)))
            for dispatch_id in denied:
                error = (await bench.sink.end(dispatch_id)).error
                assert error is not None
                assert error.reason == types_pb2.ERROR_REASON_PERMISSION_DENIED
                assert not error.refused
                assert "answered 403" in error.message
                assert "told to" in error.message
        assert len(server.bodies) - asked - server.denied < 4 + 25
        for dispatch_id in served:
            assert (await bench.sink.end(dispatch_id)).error is None
        assert (bench.engine.load().health, bench.sink.changes) == (SERVING, changes)
        moderated = await bench.run(bench.item("moderated", stream=True))
        assert moderated.error is not None
        assert moderated.error.reason == types_pb2.ERROR_REASON_PERMISSION_DENIED
        assert joined(moderated) == TEXT


async def test_new_key_is_taken_up_and_no_request_pays_for_it(
    server: HostileServer, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("old\n")
    server.key = "old"
    async with serving(engine(server.url, api_key_file=str(file), slots=8), "m") as bench:
        (late,) = bench.submit(bench.item("late"))
        early = bench.submit(*(bench.item("slow") for _ in range(4)))
        await bench.sink.until(lambda: server.open == 5)
        server.key = "new"
        outcomes = [await reason_of(bench, "hello") for _ in range(3)]
        await until_health(bench, DOWN)
        outcomes.append(await reason_of(bench, "hello"))
        assert set(outcomes) == {(types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)}
        file.write_text("new\n")
        await until_health(bench, SERVING)
        assert (await bench.run(bench.item())).error is None
        server.may_deny.set()  # what went out with the old key is no other's fault
        error = (await bench.sink.end(late)).error
        assert error is not None
        assert (error.reason, error.refused) == outcomes[0]
        for dispatch_id in early:
            assert (await bench.sink.end(dispatch_id)).error is None
