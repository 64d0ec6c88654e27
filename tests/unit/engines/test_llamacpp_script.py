"""What the llama.cpp engine makes of a server that loads late, stutters or breaks off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from batchyard.v1 import types_pb2
from node_agent.engines import llamacpp_process
from node_agent.engines.registry import build_engine
from tests.unit.engines.recording_sink import Bench, joined, serving
from tests.unit.engines.scripted_child import TEXT


@pytest_asyncio.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(llamacpp_process, "CHILD_MODULE", "tests.unit.engines.scripted_child")
    (tmp_path / "m.gguf").write_bytes(b"GGUF, and not read further")
    options: dict[str, Any] = {"model_path": str(tmp_path / "m.gguf"), "poll_interval": "20ms"}
    async with serving(build_engine(engine_id="e", kind="llamacpp", options=options), "m") as b:
        yield b


async def test_first_item_is_answered_though_the_server_was_ready_early(bench: Bench) -> None:
    """Behaviour 111: its port and health answered at once, its first two requests did not."""
    assert (await bench.run(bench.item())).error is None


async def test_stream_of_single_bytes_is_whole(bench: Bench) -> None:
    """Behaviour 95: one byte per write."""
    item = bench.item(stream=True)
    result = await bench.run(item)
    assert joined(result) == TEXT == bench.sink.texts[item.dispatch_id][0, 0]
    assert bench.sink.pieces[item.dispatch_id] == list(TEXT)


async def test_loading_server_gives_the_item_back(bench: Bench) -> None:
    error = (await bench.run(bench.item("503"))).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE, True)


async def test_server_fault_is_an_engine_error(bench: Bench) -> None:
    error = (await bench.run(bench.item("500"))).error
    assert error is not None
    assert (error.reason, error.refused) == (types_pb2.ERROR_REASON_ENGINE_ERROR, False)
    assert error.metadata == {"engineStatus": "500"}


async def test_broken_stream_keeps_its_beginning_and_the_engine_goes_on(bench: Bench) -> None:
    """Behaviour 29: one broken connection, and the next item runs all the same."""
    result = await bench.run(bench.item("break"))
    assert result.error is not None
    assert result.error.reason == types_pb2.ERROR_REASON_ENGINE_UNAVAILABLE
    assert joined(result) == TEXT
    assert (await bench.run(bench.item())).error is None
