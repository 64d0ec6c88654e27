"""`--doctor` looks at what an agent would need, and says what to do about what is missing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from node_agent import config_sources, doctor_scheduler
from node_agent import doctor as agent_doctor
from node_agent.engines.guarded_process import free_port
from node_agent.engines.registry import build_engine
from scheduler_service.security import grants
from service_kit import greeting
from service_kit.secret_files import write_secret
from tests.integration.cluster import cluster
from tests.integration.security.secured import NO_HOME, Files, secured
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
    assert "correct scheduler.address" in rows["scheduler"]["fix"]
    assert "client port" not in rows


async def about(kind: str, **options: Any) -> dict[str, str]:
    """The one row about an engine that does not serve."""
    engine = build_engine(engine_id="e", kind=kind, options=options)
    (finding,) = await agent_doctor.engine_findings("e", engine)
    row = finding.row()
    assert row["result"] == "failed"
    return row


async def test_engine_that_waiting_does_not_help_is_told_of_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing there, something else there, another model there, the key refused."""
    monkeypatch.setattr(agent_doctor, "IN_VAIN_S", 0.1)
    monkeypatch.setattr(agent_doctor, "LOOK_S", 0.02)
    dead = f"127.0.0.1:{free_port()}"
    row = await about("openai", url=f"http://{dead}")
    assert f"nothing answers at http://{dead}" in row["says"]
    assert row["fix"] == "start it, or correct its address (url)"
    row = await about("oip", address=dead)
    assert "answers UNAVAILABLE" in row["says"]
    assert "gRPC port" in row["fix"]
    async with hostile_server() as server:
        row = await about("openai", url=f"{server.url}/elsewhere")
        assert "answered 404 to /v1/models" in row["says"]
        assert "root of an OpenAI-compatible server" in row["fix"]
        row = await about("openai", url=server.url, models={"mine": "llama"})
        assert "it lists no model of `models`, but 'm'" in row["says"]
        assert "name in `models` what it lists" in row["fix"]
        row = await about("oip", address=server.url.removeprefix("http://"))
        assert "gRPC port" in row["fix"]
        server.key = "secret"
        row = await about("openai", url=server.url)
        assert "answered 401" in row["says"]
        assert row["fix"] == "set api_key_file to a file with its key"


async def test_engine_that_loads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_doctor, "IN_VAIN_S", 0.1)
    monkeypatch.setattr(agent_doctor, "LOOK_S", 0.02)
    monkeypatch.setattr(agent_doctor, "ENGINE_S", 0.5)
    async with hostile_server() as server:
        server.loading = 10**6
        row = await about("openai", url=server.url)
        assert row["says"].startswith("does not serve within 0.5 s")
        assert "its own log" in row["fix"]


async def test_engine_that_cannot_start_says_why() -> None:
    row = await about("python", callable="no_such_module:answer")
    assert "No module named 'no_such_module'" in row["says"]
    assert "options of the engine" in row["fix"]


async def test_what_is_missing_comes_with_its_remedy() -> None:
    dead = f"127.0.0.1:{free_port()}"
    code, text = await doctor(
        "--scheduler", dead, "--engine", "openai", "--url", f"http://{dead}",
        "--engine-option", "start_timeout=300ms", "--engine-option", "gpus=[0]",
    )  # fmt: skip
    assert code == 1
    assert f"nothing answers at http://{dead}" in text
    assert "install the driver" in text
    assert "start it, or correct scheduler.address: its node port" in text


async def about_scheduler(address: str, node_id: str = "n", **section: Any) -> list[dict[str, str]]:
    flags = {"scheduler": {"address": address, **section}, "engines": [{"kind": "simulated"}]}
    loaded = config_sources.load(path=None, environ=NO_HOME, flags=flags)
    found = await doctor_scheduler.scheduler_findings(loaded.config, node_id)
    return [finding.row() for finding in found]


async def refused(folder: Path, node_id: str = "n", **section: Any) -> str:
    """What fails about the scheduler, and what to do; empty: nothing."""
    section = {"tls": {"authority": str(folder / "ca.pem")}, **section}
    rows = await about_scheduler(section.pop("address"), node_id, **section)
    failed = [f"{row['says']} -> {row['fix']}" for row in rows if row["result"] == "failed"]
    assert len(failed) <= 1
    return "".join(failed)


async def test_each_way_of_not_being_let_in_has_its_remedy(tmp_path: Path) -> None:
    async with secured(tmp_path, "tls.agent_certificates=false") as world:
        files = {name: tmp_path / f"{name}.token" for name in ("wrong", "client", "join")}
        tokens = (grants.new_token(grants.new_id())[0], world.files.token(),
                  world.files.token(kind="join"))  # fmt: skip
        for path, token in zip(files.values(), tokens, strict=True):
            write_secret(path, token.encode())
        world.access.refresh()
        node = {"address": world.addresses.node}
        assert "UNAUTHENTICATED" in (said := await refused(tmp_path, **node))
        assert "set scheduler.token_file" in said
        said = await refused(tmp_path, **node, token_file=str(files["wrong"]))
        assert f"it does not know the token in {files['wrong']}" in said
        said = await refused(tmp_path, **node, token_file=str(files["client"]))
        assert "needs a join token of its own" in said
        joins = {**node, "token_file": str(files["join"])}
        assert await refused(tmp_path, **joins) == ""
        assert world.files.nodes(tokens[2]) == [], "nothing joined"
        world.start_agent("first", token=tokens[2])
        await world.joined("first")
        assert await refused(tmp_path, "first", **joins) == ""
        said = await refused(tmp_path, "second", **joins)
        assert "second would be turned away" in said
        assert "it admitted first" in said
        said = await refused(tmp_path, **joins, tls={})
        assert "if it is encrypted, set scheduler.tls.authority" in said.lower()
        said = await refused(tmp_path, **{**joins, "address": world.addresses.client})
        assert "its node port" in said
        stranger = tmp_path / "stranger"
        stranger.mkdir()
        Files(stranger)
        said = await refused(tmp_path, **joins, tls={"authority": str(stranger / "ca.pem")})
        assert "the authority of its certificate" in said


async def test_other_versions_are_told_and_strangers_are_no_schedulers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that says nothing, and one that greets with another version and other limits."""
    told: list[tuple[str, str]] = []

    async def connect(_: Any, context: Any) -> None:
        await context.send_initial_metadata(told)
        await context.read()

    server = grpc.aio.server()
    method: Any = grpc.stream_stream_rpc_method_handler(connect)
    handler = grpc.method_handlers_generic_handler("batchyard.v1.NodeService", {"Connect": method})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        monkeypatch.setattr(doctor_scheduler, "DIAL_S", 0.3)
        (row,) = await about_scheduler(f"127.0.0.1:{port}")
        assert row["says"].endswith("no answer within 0.3 s")
        assert "no older than this agent" in row["fix"]
        told += [(greeting.VERSION, "9.9.9"), (greeting.TIME_NS, "0")]
        told += [(greeting.MESSAGE_BYTES, str(1 << 40))]
        rows = {row["check"]: row for row in await about_scheduler(f"127.0.0.1:{port}")}
        assert "scheduler 9.9.9, agent" in rows["version"]["says"]
        assert rows["version"]["fix"] == "use the same version of both"
        assert rows["messages"]["result"] == "failed", "no message of it could be read"
        assert "limits.max_message_bytes" in rows["messages"]["fix"]
        assert "NTP" in rows["clock"]["fix"]
    finally:
        await server.stop(0)


async def test_options_that_cannot_be_understood_are_usage() -> None:
    code, text = await of_batchyard("doctor", "--agent", "--scheduler", "no-port")
    assert code == 2
    assert "write host:port" in text
