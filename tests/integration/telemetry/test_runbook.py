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


async def run(line: str, folder: Path, **env: str) -> tuple[int, str]:
    """Exit code and all that it said."""
    program, *arguments = shlex.split(line)
    assert program == "batchyard", line
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchyard.cli", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **env}, cwd=folder,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.slow
async def test_the_first_action_of_every_entry_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a scheduler that is well; then on one that is down, which `doctor` must say."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    actions = first_actions()
    assert len(actions) == RUNBOOK.read_text(encoding="utf-8").count("\n## ")
    async with cluster() as running:
        await running.agent("n0")
        await running.client.generate("hi", model="m")
        env = {
            "BATCHYARD_ADDRESS": running.addresses["client"],
            "BATCHYARD_ADMIN_ADDRESS": running.addresses["admin"],
        }
        for line in sorted({line for each in actions.values() for line in each.splitlines()}):
            code, said = await run(line, tmp_path, **env)
            assert code == 0, (line, said)
        await running.scheduler.end()
        code, said = await run(actions["BatchyardDown"], tmp_path, **env)
        assert code == 1
        assert running.addresses["client"] in said
    assert (tmp_path / "batchyard-dump.json").stat().st_size > 1_000
