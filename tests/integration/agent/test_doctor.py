"""`--doctor` looks at what an agent would need, and says what to do about what is missing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from node_agent import doctor as agent_doctor
from node_agent.engines.guarded_process import free_port
from node_agent.engines.registry import build_engine
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


async def of_batchyard(*words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchyard.cli", *words, env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, fault = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode() or fault.decode()


async def test_sound_host_is_told_so_with_what_was_found() -> None:
    async with hostile_server() as server, cluster() as running:
        node = running.addresses["node"]
        code, text = await doctor("--scheduler", node, "--engine", "openai", "--url", server.url)
        assert code == 0, text
        assert "vLLM serves" in text
        assert "model m, context 4096" in text
        assert "16 slots (assumed)" in text
        assert "--scheduling-policy priority" in text
        assert f"scheduler: {node} answers in" in text
        assert "no connected agent has it" in text
        assert "s from the scheduler's" in text
        assert "messages: up to 64 MiB" in text
        await running.agent("taken")
        own = ("--scheduler", node, "--engine", "simulated", "--node-id", "taken")
        code, text = await of_batchyard("doctor", "--agent", *own, "-o", "json")
        assert code == 0, text
        rows = {row["check"]: row for row in json.loads(text)["checks"]}
        assert rows["engine simulated"]["result"] == "ok"
        assert rows["name"]["result"] == "warning"
        assert "taken is connected, from ipv4:127.0.0.1:" in rows["name"]["says"]
        assert [n.node_id async for n in running.admin.nodes()] == ["taken"]  # it joined nothing


async def test_host_is_examined_as_what_is_set_up_there(tmp_path: Path) -> None:
    """With an agent's file and nothing said, as a node."""
    folder = tmp_path / "batchyard"
    folder.mkdir()
    (folder / "agent.yaml").write_text(
        f"scheduler: {{address: '127.0.0.1:{free_port()}'}}\nengines: [{{kind: simulated}}]\n"
    )
    code, text = await of_batchyard("doctor", "-o", "json", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert code == 1
    rows = {row["check"]: row for row in json.loads(text)["checks"]}
    assert rows["scheduler"]["result"] == "failed"
    assert "is this its node port" in rows["scheduler"]["fix"]
    assert "client port" not in rows


async def test_engine_that_is_not_there_is_not_waited_for_as_one_that_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_doctor, "AWAY_S", 0.2)
    for kind, option, scheme in (("openai", "url", "http://"), ("oip", "address", "")):
        options = {option: f"{scheme}127.0.0.1:{free_port()}", "poll_interval": "20ms"}
        engine = build_engine(engine_id="e", kind=kind, options=options)
        (finding,) = await agent_doctor.engine_findings("e", engine)
        row = finding.row()
        assert row["result"] == "failed"
        assert row["says"] == "does not serve within 0.2 s"
        assert "answers" in row["fix"]


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
