"""Do the examples work as a newcomer would run them? Each is executed against real services."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


async def _run(example: Path, running: Cluster) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(example),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BATCHYARD_ADDRESS": running.addresses["client"]},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode or 0, out.decode(), err.decode()


async def test_every_example_runs_as_it_stands(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 4
    async with cluster(settings=["default_model=m", f"state_dir={tmp_path}"]) as running:
        await running.agent("a", "slots=4", "latency=5ms", "latency_per_token=1ms")
        for example in EXAMPLES:
            code, out, err = await _run(example, running)
            assert code == 0, f"{example.name}: {err}"
            assert out.strip(), example.name
            assert err == "", f"{example.name}: {err}"
        await until(running.idle)


def test_examples_are_short_enough_to_read() -> None:
    for example in EXAMPLES:
        lines = [x for x in example.read_text().splitlines() if x.strip()]
        assert len(lines) <= 40, example.name
