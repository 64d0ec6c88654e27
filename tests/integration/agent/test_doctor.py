"""`--doctor` looks at what an agent would need, and says what to do about what is missing."""

from __future__ import annotations

import asyncio
import sys

import pytest

from node_agent.engines.guarded_process import free_port
from tests.integration.cluster import cluster
from tests.unit.engines.hostile_server import hostile_server

pytestmark = pytest.mark.slow


async def doctor(*flags: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "node_agent", "--doctor", *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode()


async def test_sound_host_is_told_so_with_what_was_found() -> None:
    async with hostile_server() as server, cluster() as running:
        node = running.addresses["node"]
        code, text = await doctor("--scheduler", node, "--engine", "openai", "--url", server.url)
        assert code == 0, text
        assert "vLLM serves" in text
        assert "model m, context 4096" in text
        assert "16 slots (assumed)" in text
        assert "--scheduling-policy priority" in text
        assert "connected in" in text


async def test_what_is_missing_comes_with_its_remedy() -> None:
    dead = f"127.0.0.1:{free_port()}"
    code, text = await doctor(
        "--scheduler", dead, "--engine", "openai", "--url", f"http://{dead}",
        "--engine-option", "start_timeout=300ms", "--engine-option", "gpus=[0]",
    )  # fmt: skip
    assert code == 1
    assert f"nothing answers at http://{dead}" in text
    assert "install the driver" in text
    assert "is this its node port" in text
