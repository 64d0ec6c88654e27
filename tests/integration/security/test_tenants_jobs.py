"""Stored work belongs to a tenant: others cannot see it, stop it or learn that it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard import AsyncClient, errors
from batchyard.v1 import InferenceRequest, JobState, TextInput
from tests.integration.security.secured import MODEL, secured

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def requests(count: int) -> list[InferenceRequest]:
    return [InferenceRequest(model=MODEL, text=TextInput(prompt=f"{n}")) for n in range(count)]


async def test_tenants_see_and_stop_only_their_own_jobs(tmp_path: Path) -> None:
    state = f"state_dir={tmp_path / 'state'}"
    async with secured(tmp_path, "tls.agent_certificates=false", state) as world:
        files = world.files
        join = files.token(kind="join")
        tokens = [
            files.token("a", tenants=["a"], rights=["jobs"]),
            files.token("b", tenants=["b"], rights=["jobs"], models=["other"]),
            files.token("c", tenants=["a"], rights=["use"]),
        ]
        world.access.refresh()
        one, two, three = (
            AsyncClient(world.addresses.client, api_key=token, tls=files.ca) for token in tokens
        )
        async with one, two, three:
            mine = await one.jobs.create(requests(3), job_id="j")
            assert mine.tenant == "a"
            for refused in (two.jobs.get("j"), two.jobs.cancel("j"), two.jobs.wait("j")):
                with pytest.raises(errors.NotFound):
                    await refused
            with pytest.raises(errors.PermissionDenied):
                await two.jobs.get("j", tenant="a")
            assert [job.job_id async for job in two.jobs.list()] == []
            with pytest.raises(errors.PermissionDenied):
                await two.jobs.create(requests(1), job_id="j")
            with pytest.raises(errors.PermissionDenied):
                await three.jobs.get("j")
            assert [job.job_id async for job in one.jobs.list()] == ["j"]
            world.start_agent("n1", token=join, slots=2)
            done = await one.jobs.wait("j")
            assert done.state == JobState.JOB_STATE_SUCCEEDED
            results = [result async for result in one.jobs.results("j")]
            assert len(results) == 3
    assert {r.tenant for r in world.state.finished} == {"a"}
