"""The scheduler goes and comes back while nodes work. Real processes, one cluster id."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from batchyard import AsyncStream, Result
from node_agent.engines.simulated_text import check_text, is_seamless
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow

AGENT = ("slots=4", "latency=5ms", "latency_per_token=40ms")
TOKENS = 150  # 6 s


async def read(stream: AsyncStream) -> tuple[str, Result]:
    """The whole stream."""
    async with stream:
        async for _ in stream:
            pass
        assert stream.result is not None
        return stream.text, stream.result


async def speaking(running: Cluster, count: int) -> None:
    """Wait until so many requests have sent output."""

    async def enough() -> bool:
        found = [r async for r in running.admin.requests()]
        return sum(r.output_tokens > 5 for r in found) >= count

    await until(enough, what=f"{count} requests speak")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_running_work_is_adopted_and_not_repeated(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Streams go on without a gap or a repeat, plain calls get their answer; every one of them has
    been run once. SIGTERM: the grace is shorter than the work, which is handed over.
    """
    settings = [f"state_dir={tmp_path}", "shutdown_grace=200ms"]
    async with cluster(settings=settings) as running:
        await running.fleet("a", "b", options=AGENT)
        client = running.client
        streams = [
            asyncio.create_task(read(client.stream(f"p{n}", model="m", max_tokens=TOKENS)))
            for n in range(4)
        ]
        await speaking(running, 4)
        calls = [
            asyncio.create_task(client.generate("[[sleep=4s]] hi", model="m", max_tokens=3))
            for _ in range(2)
        ]

        async def all_run() -> bool:
            report = await running.report()
            return bool(sum(n.running for n in report.nodes) == 6)

        await until(all_run)
        await running.restart_scheduler(number)
        for text, result in await asyncio.wait_for(asyncio.gather(*streams), 40):
            runs = check_text(text)
            assert is_seamless(text), runs
            assert len(runs) == 1, "one attempt wrote all of it"
            assert runs[0][2] == TOKENS - 1
            assert [a.number for a in result.attempts] == [1], "it has been run once"
        for answer in await asyncio.wait_for(asyncio.gather(*calls), 40):
            assert answer.text
            assert [a.number for a in answer.attempts] == [1]
        await until(running.idle)
        report = await running.report()
        assert report.totals.succeeded == 6
        assert report.totals.failovers == 0


async def test_adopted_work_whose_node_dies_runs_elsewhere_with_the_body_of_its_caller(
    tmp_path: Path,
) -> None:
    """Behaviour 56: callers that came back brought their requests; text goes on where it was."""
    settings = [f"state_dir={tmp_path}", "health.resume_window=500ms"]
    async with cluster(settings=settings) as running:
        a, _ = await asyncio.gather(
            running.agent("a", *AGENT), running.agent("b", *AGENT, role="backup")
        )
        client = running.client
        streams = [client.stream(f"p{n}", model="m", max_tokens=TOKENS) for n in range(2)]
        texts = [asyncio.create_task(read(stream)) for stream in streams]
        call = asyncio.create_task(
            client.generate("[[sleep=5s@1]] hi", model="m", max_tokens=3, request_id="sleeper")
        )
        await speaking(running, 2)
        await running.restart_scheduler()
        had = [len(stream.text) for stream in streams]

        async def all_are_back() -> bool:
            heard = zip(streams, had, strict=True)
            return all(len(stream.text) > before + 50 for stream, before in heard)

        await until(all_are_back)
        a.signal(signal.SIGKILL)
        for text, result in await asyncio.wait_for(asyncio.gather(*texts), 40):
            runs = check_text(text)
            assert is_seamless(text), runs
            assert runs[-1][2] == TOKENS - 1, runs
            assert [x.node_id for x in result.attempts] == ["a", "b"]
        answer = await asyncio.wait_for(call, 40)
        assert [x.node_id for x in answer.attempts] == ["a", "b"]
        assert answer.node_id == "b"
        await until(running.idle)
