"""Do scale decisions start and stop real nodes? The process actuator, and the user's command."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from batchyard import Result
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow

AGENT_YAML = """
engines:
  - id: sim
    kind: simulated
    models: [m]
    slots: 1
    latency: 300ms
"""
AGENT_THAT_CANNOT = """
engines:
  - id: openai
    kind: openai
    command: [no-such-server, "{port}"]
    models: {m: m}
"""


def _settings(*more: str) -> list[str]:
    return [
        "models=[m]",
        "autoscale.enabled=true",
        "autoscale.min=1",
        "autoscale.max=2",
        "autoscale.tick=100ms",
        "autoscale.cooldown_out=1s",
        "autoscale.cooldown_in=1s",
        "autoscale.idle=2s",
        *more,
    ]


async def _count(running: Cluster) -> int:
    return sum(n.can_accept for n in (await running.report()).nodes)


async def test_pressure_starts_a_process_and_idleness_drains_it(tmp_path: Path) -> None:
    """From the minimum (started by itself) to the maximum and back; nothing is lost on the way."""
    config = tmp_path / "agent.yaml"
    config.write_text(AGENT_YAML)
    settings = _settings("autoscale.actuator=process", f"autoscale.process.agent_config={config}")
    async with cluster(settings=settings) as running:

        async def nodes_are(count: int) -> bool:
            return await _count(running) == count

        await until(lambda: nodes_are(1), what="the minimum is started")
        tasks: list[asyncio.Task[Result]] = [
            asyncio.create_task(running.client.generate(f"p{i}", model="m", max_tokens=2))
            for i in range(16)
        ]
        await until(lambda: nodes_are(2), what="a second node joins")
        results = await asyncio.gather(*tasks)
        assert len({r.node_id for r in results}) == 2
        outs = await running.events("scale_out")
        assert [e.attributes["target"] for e in sorted(outs, key=lambda e: e.event_id)] == [
            "1",
            "2",
        ]

        await until(lambda: nodes_are(1), what="the idle node leaves")
        (scale_in,) = await running.events("scale_in")
        assert scale_in.attributes["target"] == "1"
        (drained,) = await running.events("node_drained")
        assert drained.attributes["lost"] == "0"
        report = await running.report()
        assert report.totals.succeeded == report.totals.received == 16


async def test_the_users_command_gets_the_desired_count_as_json(tmp_path: Path) -> None:
    """What a cluster needs: one line of JSON per decision on the command's standard input."""
    log = tmp_path / "asked.jsonl"
    script = tmp_path / "scale.py"
    script.write_text(f"import sys\nopen({str(log)!r}, 'a').write(sys.stdin.read() + chr(10))\n")
    settings = _settings(
        "autoscale.actuator=command", f"autoscale.command=[{sys.executable}, {script}]"
    )
    async with cluster(settings=settings):

        async def asked() -> bool:
            return log.exists() and log.read_text().endswith("\n")

        await until(asked)
        first = json.loads(log.read_text().splitlines()[0])
        assert first["pool"] == "m"
        assert (first["desired"], first["ready"], first["drained"]) == (1, 0, [])
        assert first["reason"]


async def test_a_command_that_fails_is_told_and_asked_again(tmp_path: Path) -> None:
    """Its word counts: what it did not start is not awaited until a time-out."""
    settings = _settings(
        "autoscale.actuator=command",
        f"autoscale.command=[{sys.executable}, -c, 'import sys; sys.exit(\"no quota\")']",
    )
    async with cluster(settings=settings) as running:

        async def twice() -> bool:
            return len(await running.events("scale_failed")) >= 2

        await until(twice)
        assert "no quota" in (await running.events("scale_failed"))[0].message
        running.scheduler.lines.clear()


async def test_agent_whose_engine_cannot_start_is_a_failed_start_with_its_words(
    tmp_path: Path,
) -> None:
    """It joins to say why it leaves; it is no node that served."""
    config = tmp_path / "agent.yaml"
    config.write_text(AGENT_THAT_CANNOT)
    settings = _settings("autoscale.actuator=process", f"autoscale.process.agent_config={config}")
    async with cluster(settings=settings) as running:

        async def told() -> bool:
            return bool(await running.events("scale_failed"))

        await until(told)
        message = (await running.events("scale_failed"))[-1].message
        assert "ended with code 1" in message
        assert "no-such-server: No such file" in message
