"""Models are loaded and unloaded on running nodes, through the scheduler, by operators."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batchyard import errors
from batchyard.v1 import Node, report_pb2, types_pb2
from scripts.make_tiny_model import write_tiny_model
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Node "a" has a simulated engine and a true llama.cpp with a folder of models."""
    for name in ("m", "later"):
        write_tiny_model(tmp_path / f"{name}.gguf")
    async with cluster(settings=["default_model=m"]) as world:
        await world.agent_of(
            "a",
            "--engine", "simulated",
            "--engine-option", "models=[s]", "--engine-option", "load_time=1500ms",
            "--engine", "llamacpp", "--engine-option", f"model_path={tmp_path / 'm.gguf'}",
            "--engine-option", f"model_folder={tmp_path}", "--engine-option", "threads=1",
            "--engine-option", "slots=2",
        )  # fmt: skip
        yield world


def state_of(node: Node, model: str) -> str:
    """Of the model on the node, as its agent reports it; empty: it is not there."""
    states = [m.state for e in node.report.engines for m in e.models if m.model == model]
    return types_pb2.ModelState.Name(states[0]).removeprefix("MODEL_STATE_") if states else ""


async def state(world: Cluster, model: str) -> str:
    return state_of(await world.admin.node("a"), model)


async def is_in(world: Cluster, model: str, wanted: str) -> bool:
    return await state(world, model) == wanted


async def happened(world: Cluster, event: str, model: str) -> Any:
    found = [e async for e in world.admin.events(events=[event])]
    return next((e for e in found if e.pool == model), None)


async def test_models_come_and_go_while_the_node_works(running: Cluster) -> None:
    await _gets_work_once_it_serves_and_goes_when_drained(running)
    await _llama_cpp_serves_another_file_by_a_command(running)
    await _what_takes_too_long_is_given_up(running)


async def _gets_work_once_it_serves_and_goes_when_drained(world: Cluster) -> None:
    """Loading is a state with a reason; nothing is refused, moved or lost by an unloading."""
    admin, client = world.admin, world.client
    with pytest.raises(errors.InvalidRequest, match="name one: simulated, llamacpp"):
        await admin.load_model("a", "late")
    node = await admin.load_model("a", "late", engine_id="simulated", reason="a new task")
    assert state_of(node, "late") == "LOADING"
    asked = asyncio.create_task(client.generate("hi", model="late", request_id="early"))
    await until(lambda: _waits_for(world, "early", "loading"))
    assert (await asked).node_id == "a"
    begun = await happened(world, "model_load", "late")
    assert begun.reason == "a new task"
    assert begun.principal.startswith("anonymous@")
    await until(lambda: happened(world, "model_loaded", "late"))

    long = asyncio.create_task(client.generate("[[sleep=1500ms]]", model="late"))
    await until(lambda: _runs(world))
    node = await admin.unload_model("a", "late", engine_id="simulated")
    assert state_of(node, "late") == "UNLOADING"
    waiting = asyncio.create_task(client.generate("hi", model="late", max_wait="60s"))
    assert len((await long).attempts) == 1  # it finished where it ran
    await until(lambda: happened(world, "model_unloaded", "late"))
    await until(lambda: is_in(world, "late", ""))
    assert not waiting.done()  # no node has it: it waits, and runs when one has
    await admin.load_model("a", "late", engine_id="simulated")
    assert (await waiting).node_id == "a"
    with pytest.raises(errors.ModelNotFound, match="not loaded"):
        await admin.unload_model("a", "never", engine_id="simulated")


async def _llama_cpp_serves_another_file_by_a_command(world: Cluster) -> None:
    where = ("--node", "a", "--engine", "llamacpp")
    assert "active" in await cli(world, "models", "load", "later", *where)
    both = [world.client.generate("hi", model=m, max_tokens=4) for m in ("m", "later")]
    assert [r.usage.output_tokens for r in await asyncio.gather(*both)] == [4, 4]
    assert "unloaded" in await cli(world, "models", "unload", "later", *where)
    assert await state(world, "later") == "AVAILABLE"  # it is in the folder
    said = await cli(world, "models", "load", "nobody", *where, code=1)
    assert "there is no file 'nobody.gguf' in the model folder" in said
    failed = await happened(world, "model_failed", "nobody")
    assert "no file" in failed.message


async def _what_takes_too_long_is_given_up(world: Cluster) -> None:
    """A model that does not come up; and work that does not end when its model is to go."""
    await world.agent_of(
        "b", "--engine", "simulated", "--engine-option", "load_time=60s",
        "--set", "models.load_timeout=300ms", "--set", "models.unload_grace=300ms",
    )  # fmt: skip
    await world.admin.load_model("b", "slow")
    await until(lambda: happened(world, "model_failed", "slow"))
    failed = await happened(world, "model_failed", "slow")
    assert "did not serve within 0.3 s" in failed.message
    assert not state_of(await world.admin.node("b"), "slow")
    held = asyncio.create_task(world.client.generate("[[sleep=60s]]", model="simulated"))
    await until(lambda: _runs(world))
    await world.admin.unload_model("b", "simulated")
    await until(lambda: happened(world, "model_unloaded", "simulated"))
    await until(lambda: _waits(world))  # it went back, uncharged
    held.cancel()


async def cli(world: Cluster, *words: str, code: int = 0) -> str:
    """What a command says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchyard.cli", *words,
        "--address", world.addresses["client"], "--admin-address", world.addresses["admin"],
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == code, said.decode()
    return said.decode()


async def _waits_for(world: Cluster, request_id: str, code: str) -> bool:
    try:
        return (await world.admin.explain(request_id)).wait.code == code
    except errors.NotFound:
        return False


async def _runs(world: Cluster) -> bool:
    return report_pb2.REQUEST_STATE_RUNNING in [r.state async for r in world.admin.requests()]


async def _waits(world: Cluster) -> bool:
    return report_pb2.REQUEST_STATE_QUEUED in [r.state async for r in world.admin.requests()]
