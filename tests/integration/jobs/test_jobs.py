"""Jobs from the client's side, with real processes: stored, fed, watched, cancelled, refused."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from pathlib import Path

import grpc
import pytest

from batchyard import errors
from batchyard.v1 import (
    CreateJobRequest,
    InferenceRequest,
    JobInput,
    JobItem,
    JobState,
    WatchJobRequest,
)
from tests.integration.cluster import until
from tests.integration.jobs.job_world import JobWorld, check_each_once, item, job_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def test_file_of_both_forms_runs_and_keeps_its_custom_ids(tmp_path: Path) -> None:
    lines = [
        {"custom_id": "own", "request": {"model": "m", "text": {"prompt": "hi"}}},
        {
            "custom_id": "chat",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "m",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 3,
            },
        },
        {
            "custom_id": "embedding",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "m", "input": ["a", "b"]},
        },
    ]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with job_world(tmp_path / "state") as world:
        jobs = world.client.jobs
        assert "jobs" in (await world.client.server_info()).features
        job = await jobs.create_from_file(file, labels={"team": "x"})
        assert job.state == JobState.JOB_STATE_PENDING
        assert (await world.report()).backlog == 3, "no node: nothing is fed"
        await world.agent("n1", "slots=4")
        done = await jobs.wait(job.job_id)
        assert done.state == JobState.JOB_STATE_SUCCEEDED
        assert done.usage.output_tokens >= 3
        assert done.HasField("start_time")
        results = {r.custom_id: r async for r in jobs.results(job.job_id)}
        assert set(results) == {"own", "chat", "embedding"}
        assert results["chat"].result.usage.output_tokens == 3
        assert len(results["embedding"].result.outputs) == 2
        assert results["own"].result.request_id == f"{job.job_id}/0"
        assert [j.job_id async for j in jobs.list(labels={"team": "x"})] == [job.job_id]
        call = world.rpc.WatchJob(WatchJobRequest(job_id=job.job_id, results=True))
        changes = [change async for change in call]
        assert sum(len(change.results) for change in changes) == 3, "also after its end"
        again = await jobs.create_from_file(file, job_id=job.job_id, labels={"team": "x"})
        assert again.state == JobState.JOB_STATE_SUCCEEDED, "the same job, not another"
        with pytest.raises(errors.RequestIdConflict):
            await jobs.create_from_file(file, job_id=job.job_id)
        (created,) = await world.events("job_created")
        assert created.attributes["job_id"] == job.job_id
        (ended,) = await world.events("job_finished")
        assert ended.message.startswith(f"job {job.job_id} ended as succeeded: 3 of 3 succeeded")


async def test_bad_line_is_refused_by_its_number_and_nothing_is_stored(tmp_path: Path) -> None:
    bad = b'{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"m",'
    cases = {
        b'{"request":{"text":{"prompt":" "}}}': "input.json_lines[2].request",
        b'{"request":{"nonsense":1}}': "input.json_lines[2]",
        b"[1": "input.json_lines[2]",
        bad + b'"prompt":"x","best_of":3}}': "input.json_lines[2].body.best_of",
        bad + b'"prompt":"x","n":"many"}}': "input.json_lines[2].body.n",
    }
    good = b'{"request":{"model":"m","text":{"prompt":"x"}}}\n'
    async with job_world(tmp_path / "state") as world:
        for line, field in cases.items():
            request = CreateJobRequest(job_id="bad", input=JobInput(json_lines=good + line))
            with pytest.raises(errors.BatchyardError) as refused:
                await world.client.jobs._call("CreateJob", request)
            assert (refused.value.field or "").startswith(field), refused.value
        with pytest.raises(errors.NotFound):
            await world.client.jobs.get("bad")


async def test_long_input_comes_in_parts_and_runs_once_it_is_complete(tmp_path: Path) -> None:
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=64")
        requests = [item(f"{n} " + "x" * 2_000).request for n in range(1_300)]
        job = await world.client.jobs.create(requests, job_id="long")
        assert job.counts.total == 1_300
        assert (await world.client.jobs.create(requests, job_id="long")).job_id == "long"
        await world.until_done("long")
        check_each_once(await world.results("long", page_size=500), 1_300)


async def test_watch_tells_each_result_once_also_over_a_restart(tmp_path: Path) -> None:
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=4", "latency_per_token=2500us")
        await world.create("watched", 40)
        seen = []
        states = []

        async def watch() -> None:
            async for change in world.client.jobs.watch("watched", results=True):
                seen.extend(change.results)
                states.append(change.job.state)

        watching = asyncio.create_task(watch())
        await world.until_finished("watched", 15)
        await world.restart(signal.SIGTERM, keep_client=True)
        await asyncio.wait_for(watching, 60)
        check_each_once(seen, 40)
        assert states[-1] == JobState.JOB_STATE_SUCCEEDED


async def test_stopping_scheduler_keeps_the_items_that_run(tmp_path: Path) -> None:
    """Behaviour: a stop waits for calls, not for stored work; that goes on with the next start."""
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=2", "latency_per_token=100ms")
        await world.create("slow", 4)
        await until(lambda: _runs(world, "slow", 2), what="two items run")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await world.restart(signal.SIGTERM)
        assert loop.time() - began < 12
        done = await world.until_done("slow")
        assert done.counts.succeeded == 4
        check_each_once(await world.results("slow"), 4)


async def _runs(world: JobWorld, job_id: str, items: int) -> bool:
    return (await world.job(job_id)).counts.running == items


async def test_cancelled_job_stops_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=4", "latency=30s")
        await world.create("c", 1_000)
        await until(lambda: _runs(world, "c", 4), what="four items run")
        await world.client.jobs.cancel("c", reason="not needed")
        done = await world.until_done("c")
        assert done.state == JobState.JOB_STATE_CANCELLED
        assert done.counts.cancelled == 1_000
        (asked,) = await world.events("job_cancelled")
        assert asked.message == "job c is to end: not needed"
        (ended,) = await world.events("job_finished")
        assert ended.attributes["cancelled"] == "1000"
        check_each_once(await world.results("c", page_size=400), 1_000)
        await until(world.idle, what="the slots are free")


async def test_job_expires_when_its_window_ends(tmp_path: Path) -> None:
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=1", "latency=500ms")
        items = [item(f"item {n}") for n in range(50)]
        await world.client.jobs.create(items, job_id="w", completion_window="2s")
        done = await world.until_done("w")
        assert done.state == JobState.JOB_STATE_EXPIRED
        assert done.counts.succeeded >= 1
        assert done.counts.expired + done.counts.succeeded == 50
        check_each_once(await world.results("w"), 50)
        await until(world.idle, what="the slot is free")


async def test_unknown_model_is_waited_for_and_others_pass_it(tmp_path: Path) -> None:
    async with job_world(tmp_path / "state", "jobs.unknown_model_grace=2s") as world:
        await world.agent("n1", "slots=2")
        unknown = InferenceRequest(model="nowhere")
        unknown.text.prompt = "hi"
        await world.client.jobs.create([JobItem(request=unknown)] * 3, job_id="lost")
        await world.create("fine", 20)
        fine = await world.until_done("fine")
        assert fine.state == JobState.JOB_STATE_SUCCEEDED
        lost = await world.until_done("lost")
        assert lost.state == JobState.JOB_STATE_FAILED
        (first, *_) = await world.results("lost")
        assert first.result.error.code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_full_disk_refuses_jobs_keeps_results_and_recovers(tmp_path: Path) -> None:
    """Behaviour 128: by a real limit on the size of files of the running scheduler."""
    async with job_world(tmp_path / "state") as world:
        await world.agent("n1", "slots=2", "latency_per_token=6ms")
        await world.create("first", 30)
        await world.until_finished("first", 4)
        pid = world.scheduler.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(errors.BatchyardError) as refused:
            await world.create_typed("second", 30)
        assert refused.value.reason == "STORE_FAILED"
        answer = await world.client.generate("calls go on", model="m", timeout="30s")
        assert answer.text
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        done = await world.until_done("first")
        assert done.counts.succeeded == 30
        check_each_once(await world.results("first"), 30)
        with pytest.raises(errors.NotFound):
            await world.client.jobs.get("second")
        assert (await world.create_typed("second", 5)).counts.total == 5
        await world.restart(signal.SIGKILL)
        assert (await world.until_done("second")).counts.succeeded == 5


async def _cli(world: JobWorld, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchyard.cli", "jobs", *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BATCHYARD_ADDRESS": world.addresses["client"]},
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_command_line_from_file_to_results(tmp_path: Path) -> None:
    good = {"custom_id": "ok", "request": {"text": {"prompt": "hi"}}}
    bad = {"custom_id": "bad", "request": {"text": {"prompt": "hi [[fail]]"}}}
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(good) + "\n" + json.dumps(bad))
    folder = tmp_path / "state"
    async with job_world(folder) as world:
        await world.agent("n1", "slots=2", "fail_marker='[[fail]]'")
        code, out, err = await _cli(
            world, "create", str(file), "-m", "m", "--id", "x", "-o", "json"
        )
        assert code == 0, err
        assert json.loads(out)["counts"]["total"] == 2
        code, out, err = await _cli(world, "watch", "x")
        assert code == 5, "some of it succeeded"
        assert "1 succeeded, 1 failed" in err
        code, out, err = await _cli(world, "results", "x", "--failed", "-o", "json")
        assert code == 0
        (line,) = out.splitlines()
        assert json.loads(line)["custom_id"] == "bad"
        code, out, err = await _cli(world, "show", "y")
        assert code == 1
        assert "no job 'y'" in err
        code, out, err = await _cli(world, "check", str(folder), "-o", "json")
        assert code == 0
        assert json.loads(out)["results"] == 2
