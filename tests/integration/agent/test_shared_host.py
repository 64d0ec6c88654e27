"""Several engines in one agent and several agents on one host, and nobody named anything."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from batchyard.v1 import Node
from node_agent.engines.guarded_process import free_port
from tests.integration.cluster import Cluster, Process, cluster, until
from tests.unit.engines.hostile_server import hostile_server

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).with_name("fake_nvml.c")


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A folder with a GPU driver's library that says what it is told."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    pytest.importorskip("pynvml")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return tmp_path


async def nodes(world: Cluster) -> list[Node]:
    return [node async for node in world.admin.nodes()]


async def owners(world: Cluster) -> dict[str, list[int]]:
    """GPUs by engine, of the only node."""
    (node,) = await nodes(world)
    return {e.engine_id: list(e.gpu_indexes) for e in node.descriptor.engines}


async def test_engines_of_one_agent_are_told_apart_with_their_own_gpus_and_slots(
    driver: Path,
) -> None:
    """Which GPU is whose is found out; an adapter adds no slots to its base's engine."""
    async with hostile_server() as first, cluster() as world:
        first.models.append({"id": "lora", "parent": "m"})
        port = free_port()
        command = (sys.executable, "-m", "tests.unit.engines.hostile_server", str(port))
        second = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        pids = f"{second.pid},{os.getpid()}"
        try:
            agent = await Process.start(
                "agent", "node_agent", "--scheduler", world.addresses["node"],
                "--engine", "openai", "--url", first.url, "--engine-option", "slots=2",
                "--engine", "openai", "--url", f"http://127.0.0.1:{port}",
                "--engine-option", "models={other: m}",
                env={"LD_LIBRARY_PATH": str(driver), "FAKE_NVML_PIDS": pids},
            )  # fmt: skip
            world.agents["agent"] = agent
            await agent.until_ready()
            one = f"openai-{first.url.rsplit(':', 1)[1]}"
            wanted = {one: [1], f"openai-{port}": [0]}
            await until(lambda: _is(owners(world), wanted))
            (node,) = await nodes(world)
            assert [gpu.model for gpu in node.descriptor.gpus] == ["fake 0", "fake 1"]
            assert [gpu.utilization for gpu in node.report.gpus] == [0.4, 0.4]
            assert not node.report.gpus[0].HasField("power_watts")  # this driver tells none
            await until(lambda: _serves(world, {"m", "lora", "other"}))
            models = ["m", "lora"] * 4 + ["other"] * 2
            answers = [world.client.generate("slow", model=model) for model in models]
            assert len(await asyncio.gather(*answers)) == 10
            assert first.peak == 2
        finally:
            second.kill()
            await second.wait()


async def test_agents_of_one_command_work_side_by_side(tmp_path: Path) -> None:
    async with cluster() as world:
        for name in ("one", "two"):
            world.agents[name] = await Process.start(
                name, "node_agent", "--scheduler", world.addresses["node"],
                "--engine", "simulated", "--engine-option", "slots=1",
                env={"XDG_RUNTIME_DIR": str(tmp_path)},
            )  # fmt: skip
        for agent in world.agents.values():
            await agent.until_ready()
        await until(lambda: _work(world, 2))
        long = [world.client.generate("[[sleep=500ms]]", model="simulated") for _ in range(2)]
        used = Counter(result.node_id for result in await asyncio.gather(*long))
        first, second = sorted(used)
        assert second == f"{first}-2"


async def _is(asked: object, wanted: object) -> bool:
    return await asked == wanted  # type: ignore[misc]


async def _serves(world: Cluster, models: set[str]) -> bool:
    (node,) = await nodes(world)
    return set(node.summary.models) == models


async def _work(world: Cluster, count: int) -> bool:
    return sum(node.summary.can_accept for node in await nodes(world)) == count
