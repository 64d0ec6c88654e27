"""A live scheduler under load, whose node is killed, is replayed to identical decisions."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from batchyard import Result
from batchyard.v1 import InferenceRequest, TextInput
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow
PROMPT = "a prompt that nobody may find in the recording"
AGENT = ("slots=4", "latency=5ms", "latency_per_token=10ms")


def replayed(path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """`batchyard replay FILE`: its exit code and its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "batchyard.cli", "replay", str(path), "-o", "json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


async def stream(running: Cluster, number: int) -> Result:
    """One answer, read to its end."""
    priority = number % 10 + 1
    answer = running.client.stream(PROMPT, model="m", priority=priority, max_tokens=25)
    async with answer:
        async for _ in answer:
            pass
        assert answer.result is not None
        return answer.result


async def load(running: Cluster) -> list[Result]:
    """Sixty requests of all priorities, half of them streamed, beside a job of twenty items; a node
    dies under them.
    """
    items = (InferenceRequest(model="m", text=TextInput(prompt=PROMPT)) for _ in range(20))
    job = await running.client.jobs.create(items)
    whole = [
        running.client.generate(PROMPT, model="m", priority=n % 10 + 1, max_tokens=25)
        for n in range(30)
    ]
    tasks = [asyncio.create_task(c) for c in (*whole, *(stream(running, n) for n in range(30)))]

    async def busy() -> bool:
        report = await running.report()
        return report.totals.succeeded > 4 and any(
            n.node_id == "a" and n.running >= 3 for n in report.nodes
        )

    await until(busy)
    running.agents["a"].signal(signal.SIGKILL)
    results = await asyncio.wait_for(asyncio.gather(*tasks), 60)
    done = await asyncio.wait_for(running.client.jobs.wait(job.job_id), 60)
    assert done.counts.succeeded == 20
    return results


async def test_a_live_scheduler_is_replayed_to_identical_decisions(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    settings = [f"recording.file={path}", f"state_dir={tmp_path / 'state'}"]
    async with cluster(settings=settings) as running:
        await running.fleet("a", "b", options=AGENT)
        results = await load(running)
        await until(running.idle)
        report = await running.report()
    assert len(results) == 60
    assert report.totals.succeeded == 80
    assert report.totals.failovers >= 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PROMPT.encode() not in zlib.decompress(path.read_bytes(), 31)

    code, same = await asyncio.to_thread(replayed, path)
    assert (code, same["identical"], same["end"]) == (0, True, "closed"), same["difference"]
    assert same["requests"] == 80
    code, other = await asyncio.to_thread(replayed, path, "--policy", "policies.order=fifo")
    assert code == 0
    assert other["first_differences"]["policies.order=fifo"] is not None
    happened, simulated, fifo = (run["summary"] for run in other["runs"])
    assert happened["outcomes"]["succeeded"] == 80
    assert happened["failovers"] == report.totals.failovers
    assert simulated["outcomes"]["succeeded"] == 80
    urgent = [summary["priorities"]["10"]["wait"]["mean"] for summary in (simulated, fifo)]
    assert urgent[0] < urgent[1]


async def test_a_scheduler_that_is_killed_leaves_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "core.rec"
    async with cluster(settings=[f"recording.file={path}"]) as running:
        await running.agent("a", *AGENT)
        results = await asyncio.gather(
            *(running.client.generate(PROMPT, model="m", max_tokens=5) for _ in range(8))
        )
        assert len(results) == 8
        size = path.stat().st_size

        async def flushed() -> bool:
            return path.stat().st_size > size

        await until(flushed)  # every second
        running.scheduler.signal(signal.SIGKILL)
        await running.scheduler.process.wait()
    code, same = await asyncio.to_thread(replayed, path)
    assert (code, same["identical"], same["end"]) == (0, True, "cut off"), same["difference"]
    assert same["requests"] == 8


async def test_a_place_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scheduler_service", "--port-base", "0"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--set", f"recording.file={tmp_path / 'absent' / 'core.rec'}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "recording.file" in done.stderr
    assert "Traceback" not in done.stderr
