"""What an operator is shown of nodes none of whose engines serves: real processes, real faults."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import aiohttp
import pytest

from batchyard.cli.views.nodes import node_document
from batchyard.cli.views.plain import Document
from batchyard.cli.views.report import report_document
from tests.integration.cluster import Cluster, Process, cluster, until
from tests.unit.engines.hostile_server import HostileServer, hostile_server

pytestmark = pytest.mark.slow

BROKEN = 'command=[no-such-server, "{port}"]'
STATES = {
    "broken": "down",
    "gone": "down",
    "hung": "stalled",
    "keyless": "down",
    "warming": "loading",
}


async def start(running: Cluster, gone: HostileServer, keyless: HostileServer) -> None:
    """One node for each state, all at once."""
    option = "--engine-option"
    engines = {
        "broken": ("openai", option, BROKEN, option, "models={b: b}"),
        "gone": ("openai", "--url", gone.url),
        "hung": ("simulated", option, "models=[h]", option, "stalled=true"),
        "keyless": ("openai", "--url", keyless.url),
        "warming": ("simulated", option, "models=[w]", option, "warm_up=10m"),
    }
    scheduler = running.addresses["node"]
    for node_id, engine in engines.items():
        flags = ("--scheduler", scheduler, "--node-id", node_id, "--engine", *engine)
        running.agents[node_id] = await Process.start(node_id, "node_agent", *flags)


async def doctor(running: Cluster) -> tuple[int, list[Document]]:
    """What `batchyard doctor` says of nodes."""
    addresses = {
        "BATCHYARD_ADDRESS": running.addresses["client"],
        "BATCHYARD_ADMIN_ADDRESS": running.addresses["admin"],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchyard.cli", "doctor", "-o", "json",
        env={**os.environ, **addresses}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    rows: list[Document] = json.loads(out)["checks"]
    return process.returncode or 0, [row for row in rows if row["check"] == "nodes"]


async def metrics(running: Cluster) -> set[str]:
    """The series of node states that are 1."""
    url = f"http://{running.addresses['http']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        lines = (await answer.text()).splitlines()
    return {x for x in lines if x.startswith("batchyard_node_health{") and x.endswith(" 1.0")}


async def test_operator_is_shown_what_keeps_each_node_from_serving() -> None:
    async with hostile_server() as gone, hostile_server() as keyless, cluster() as running:
        keyless.refuses["m"] = 401
        await start(running, gone, keyless)
        await until(lambda: running.healthy("gone"), within_s=60)
        await gone.stop()
        seen: dict[str, str] = {}

        async def as_told() -> bool:
            nodes = report_document(await running.report())["nodes"]
            seen.update({node["node_id"]: node["state"] for node in nodes})
            return seen == STATES

        await until(as_told, within_s=60)
        documents = [node_document(node) async for node in running.admin.nodes()]
        assert {d["node_id"]: d["state"] for d in documents} == STATES
        why = {d["node_id"]: d["state_reason"] for d in documents}
        assert "no-such-server: No such file" in why["broken"]
        assert why["broken"].startswith("it left: no engine can serve: "), "its agent is gone"
        (draining,) = await running.events("node_draining")
        assert "no-such-server: No such file" in draining.message
        assert "api_key_file" in why["keyless"]
        assert why["gone"].startswith(f"nothing answers at {gone.url}")
        assert why["hung"] == "stalled on order"
        assert await metrics(running) == {
            f'batchyard_node_health{{node="{node_id}",state="{state}"}} 1.0'
            for node_id, state in STATES.items()
            if node_id != "broken"  # no series of what is gone
        }
        models = {model.model: model.state async for model in running.client.list_models()}
        assert (models["h"], models["w"]) == (5, 2), "failed, loading"
        code, rows = await doctor(running)
        assert code == 1, "no node works"
        told = [row["says"].split(":")[0] for row in rows if row["result"] == "warning"]
        assert told == ["broken is down", "gone is down", "hung is stalled", "keyless is down"]
