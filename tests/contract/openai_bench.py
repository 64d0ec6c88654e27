"""An openai engine before a scripted server, and what is asked of it in its tests."""

from __future__ import annotations

from typing import Any

from batchyard.v1 import node_service_pb2, types_pb2
from node_agent.engines.openai import OpenaiEngine
from node_agent.engines.registry import build_engine
from tests.unit.engines.recording_sink import Bench

QUICK = {"poll_interval": "20ms", "models_interval": "40ms", "trial_interval": "50ms"}


def engine(url: str, **options: Any) -> OpenaiEngine:
    """Return an engine of kind `openai` that looks at the server all the time."""
    built = build_engine(engine_id="e", kind="openai", options={"url": url, **QUICK, **options})
    assert isinstance(built, OpenaiEngine)
    return built


async def reason_of(bench: Bench, prompt: str) -> tuple[types_pb2.ErrorReason, bool]:
    """Return why a prompt fails, and whether it may go elsewhere uncharged."""
    error = (await bench.run(bench.item(prompt))).error
    assert error is not None
    return error.reason, error.refused


async def until_health(bench: Bench, health: node_service_pb2.EngineHealth) -> None:
    """Wait until the engine says so of itself."""
    await bench.sink.until(lambda: bench.engine.load().health == health)
