"""A request that kills whatever runs it, among others that do not. Real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from batchyard.errors import Poisoned
from batchyard.v1 import InferenceRequest, TextInput
from tests.integration.cluster import cluster, until

pytestmark = pytest.mark.slow

POISON = "[[sleep=300ms]] [[crash]]"


async def test_poison_kills_three_nodes_and_no_more_also_after_a_restart(tmp_path: Path) -> None:
    """Two deaths and a solo trial; who shared its batches completes; then it is refused at once,
    whatever its id, by this scheduler and by the next.
    """
    settings = [f"state_dir={tmp_path}", "health.resume_window=500ms"]
    async with cluster(settings=settings) as running:
        await running.fleet(*"abcd", options=("slots=2",))
        generate = running.client.generate
        healthy = [
            asyncio.create_task(generate("[[sleep=1s]] fine", model="m", max_tokens=3))
            for _ in range(6)
        ]
        with pytest.raises(Poisoned, match="not run again"):
            await generate(POISON, model="m", max_tokens=3)
        dead = [p for p in running.agents.values() if p.process.returncode is not None]
        assert len(dead) == 3
        answers = await asyncio.wait_for(asyncio.gather(*healthy), 30)
        assert all(answer.text for answer in answers)
        with pytest.raises(Poisoned, match="refused for the next"):
            await generate(POISON, model="m", max_tokens=3, request_id="another")
        await running.restart_scheduler(signal.SIGKILL)
        survivor = next(n for n, p in running.agents.items() if p.process.returncode is None)
        await until(lambda: running.healthy(survivor))
        with pytest.raises(Poisoned, match="refused for the next"):
            await generate(POISON, model="m", max_tokens=3)
        assert (await generate("fine", model="m", max_tokens=3)).text
        assert running.agents[survivor].process.returncode is None
        await until(running.idle)


async def test_deaths_count_on_when_the_scheduler_dies_between_them(tmp_path: Path) -> None:
    """Two nodes die with a job's item and a call under one scheduler, the third and last of each
    under the next one: the client comes back with the call, the item comes from the store. They are
    of two models, so that the verdict on one does not clear the other.
    """
    poison = "[[sleep=1s]] [[crash]]"
    times = ["health.resume_window=500ms", "failover.recovery_window=500ms"]
    models = "models=[{name: m}, {name: k}]"  # or the call may be back before any node has them
    settings = [f"state_dir={tmp_path}", models, *times]
    async with cluster(settings=settings) as running:
        await running.agent("a", "slots=4", models="m,k")
        item = InferenceRequest(request_id="item", model="k", text=TextInput(prompt=poison))
        await running.client.jobs.create([item])
        call = asyncio.create_task(
            running.client.generate(poison, model="m", max_tokens=3, request_id="call")
        )
        await until(lambda: running.ended("a"))
        await running.agent("b", "slots=4", models="m,k")

        async def remembered() -> bool:
            if not (tmp_path / "quarantine.json").exists():
                return False
            suspects = json.loads((tmp_path / "quarantine.json").read_text())["suspects"]
            return sorted(len(nodes) for *_, nodes in suspects) == [2, 2]

        await until(remembered)
        await running.restart_scheduler(signal.SIGKILL)
        await asyncio.gather(*(running.agent(n, "slots=4", models="m,k") for n in "cdef"))
        with pytest.raises(Poisoned, match="a, b, "):
            await call

        async def verdicts() -> bool:
            return len(await running.events("poisoned")) == 2

        await until(verdicts)
        dead = [n for n, p in running.agents.items() if p.process.returncode is not None]
        assert len(dead) == 4, f"one trial each: {dead}"
        await until(running.idle)
