"""What the runbook says to do first works, as it stands there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import cluster

RUNBOOK = Path(__file__).resolve().parents[3] / "docs" / "runbook.md"
ENTRY = re.compile(r"^## (\w+)\n.*?^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def first_actions() -> dict[str, str]:
    return dict(ENTRY.findall(RUNBOOK.read_text(encoding="utf-8")))


@pytest.mark.slow
async def test_the_first_action_of_every_entry_works(tmp_path: Path) -> None:
    actions = first_actions()
    assert len(actions) == RUNBOOK.read_text(encoding="utf-8").count("\n## ")
    async with cluster() as running:
        await running.agent("n0")
        await running.client.generate("hi", model="m")
        env = {
            **os.environ,
            "BATCHYARD_ADDRESS": running.addresses["client"],
            "BATCHYARD_ADMIN_ADDRESS": running.addresses["admin"],
        }
        env.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        for line in sorted({line for each in actions.values() for line in each.splitlines()}):
            program, *arguments = shlex.split(line)
            assert program == "batchyard", line
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "batchyard.cli", *arguments,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                env=env, cwd=tmp_path,
            )  # fmt: skip
            said, _ = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, (line, said.decode())
    assert (tmp_path / "batchyard-dump.json").stat().st_size > 1_000
