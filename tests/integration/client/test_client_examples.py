"""The examples run against anything that speaks the protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from batchyard.v1 import GenerateStreamResponse, InferenceResult, TokenDeltas
from tests.integration.client.scripted_scheduler import (
    ScriptedScheduler,
    ScriptedStream,
    answer,
)

EXAMPLES = Path(__file__).parents[3] / "examples"


def speak(stream: ScriptedStream, call: Any) -> None:
    if call.stream:
        stream.start(call)
        stream.delta(call, 0, "hello there")
        stream.result(call, InferenceResult(finish_reason=1))  # type: ignore[arg-type]
    else:
        stream.result(call, answer(call.request, "hello there", node_id="n1"))


def spoken(request: Any, _: Any) -> list[GenerateStreamResponse]:
    return [
        GenerateStreamResponse(deltas=TokenDeltas(offsets=[0], texts=["hello there"])),
        GenerateStreamResponse(result=answer(request.request, "", node_id="n1")),
    ]


@pytest.mark.parametrize("name", ["library.py", "stubs_only.py", "many_async.py"])
async def test_example_runs(scheduler: ScriptedScheduler, name: str) -> None:
    scheduler.on_call = speak
    scheduler.on_generate = spoken
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        env={**os.environ, "BATCHYARD_ADDRESS": scheduler.address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, stderr.decode()
    assert "hello there" in stdout.decode()
    assert not stderr
