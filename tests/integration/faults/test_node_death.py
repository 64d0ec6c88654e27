"""What happens to running work when its node dies, freezes or is restarted? Real processes."""

from __future__ import annotations

import asyncio
import signal

import pytest

from batchyard import AsyncStream, Result
from batchyard.cli.views.nodes import node_document
from batchyard.errors import Unavailable
from batchyard.v1 import NodeAvailability, NodeHealth, RequestState, RequestSummary
from node_agent.engines.simulated_text import check_text, is_seamless
from tests.integration.cluster import Cluster, cluster, until

pytestmark = pytest.mark.slow

SLOW_TOKENS = "latency_per_token=40ms"
AGENT = ("slots=4", "latency=5ms", SLOW_TOKENS)
TOKENS = 60  # 2.4 s of streaming


async def _read(stream: AsyncStream) -> Result:
    async with stream:
        async for _ in stream:
            pass
        assert stream.result is not None
        return stream.result


async def _streams(running: Cluster, count: int) -> list[asyncio.Task[tuple[str, Result]]]:
    async def one() -> tuple[str, Result]:
        stream = running.client.stream("p", model="m", max_tokens=TOKENS)
        result = await _read(stream)
        return stream.text, result

    return [asyncio.create_task(one()) for _ in range(count)]


async def _speaking(running: Cluster, node_id: str, count: int) -> None:
    """Wait until so many requests that run on the node have sent output."""

    def speaks(request: RequestSummary) -> bool:
        runs = request.state == RequestState.REQUEST_STATE_RUNNING
        return runs and request.node_id == node_id and request.output_tokens > 3

    async def enough() -> bool:
        return sum([speaks(r) async for r in running.admin.requests()]) >= count

    await until(enough, what=f"{count} requests speak on {node_id}")


def _is_whole(text: str, parts: int) -> None:
    runs = check_text(text)
    assert is_seamless(text), runs
    assert runs[-1][2] == TOKENS - 1, runs
    assert len({nonce for nonce, _, _ in runs}) <= parts, runs


async def test_streams_go_on_seamlessly_after_sigkill_of_their_node() -> None:
    """Behaviours 50, 56: the text is continued at the exact offset; none is lost, none doubled."""
    async with cluster() as running:
        a = await running.agent("a", *AGENT)
        tasks = await _streams(running, 4)
        await _speaking(running, "a", 4)
        await running.agent("b", *AGENT)
        a.signal(signal.SIGKILL)
        answers = await asyncio.wait_for(asyncio.gather(*tasks), 30)
        for text, result in answers:
            _is_whole(text, parts=2)
            assert [x.node_id for x in result.attempts] == ["a", "b"]
            assert result.attempts[0].error == "NODE_LOST"
        report = await running.report()
        assert report.totals.succeeded == report.totals.received == 4
        assert report.totals.failovers == 4
        await until(running.idle)


async def test_undelivered_work_of_a_killed_node_moves_at_once() -> None:
    """Behaviour 50: no output reached the client, so nothing waits for the resume window."""
    async with cluster() as running:
        a = await running.agent("a", "slots=2")
        tasks = [
            asyncio.create_task(running.client.generate("[[sleep=20s@1]]", model="m", max_tokens=3))
            for _ in range(2)
        ]

        async def busy() -> bool:
            return any(n.running == 2 for n in (await running.report()).nodes)

        await until(busy)
        await running.agent("b", "slots=2", "latency=1ms")
        a.signal(signal.SIGKILL)
        took = asyncio.get_running_loop().time()
        results = await asyncio.wait_for(asyncio.gather(*tasks), 30)
        took = asyncio.get_running_loop().time() - took
        assert [r.node_id for r in results] == ["b", "b"]
        moved = await running.events("failover")
        assert len(moved) == 2
        lost = await running.events("node_lost")
        # Both had moved, and most likely ended, before the node counted as lost.
        assert not lost or all(
            m.create_time.ToNanoseconds() < lost[0].create_time.ToNanoseconds() for m in moved
        )
        assert took < 2.0, "it waited for the resume window"


async def test_a_pause_of_two_seconds_is_no_failover() -> None:
    """SIGSTOP for less than the session timeout: work is where it was, and goes on."""
    async with cluster() as running:
        a, _ = await asyncio.gather(
            running.agent("a", *AGENT), running.agent("b", *AGENT, role="backup")
        )
        tasks = await _streams(running, 2)
        await _speaking(running, "a", 2)
        a.signal(signal.SIGSTOP)
        await asyncio.sleep(2.0)
        a.signal(signal.SIGCONT)
        for text, result in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            _is_whole(text, parts=1)
            assert [x.node_id for x in result.attempts] == ["a"]
        assert await running.events("failover") == []
        assert await running.events("node_lost") == []


async def test_a_frozen_agent_is_failed_over_and_told_to_abandon_on_waking() -> None:
    """Behaviours 47, 54: what it says later is dropped and counted, its slots are free again."""
    async with cluster() as running:
        a = await running.agent("a", *AGENT)
        tasks = await _streams(running, 3)
        await _speaking(running, "a", 3)
        await running.agent("b", *AGENT)
        a.signal(signal.SIGSTOP)

        async def lost() -> bool:
            return bool(await running.events("node_lost"))

        took = await until(lost, within_s=10)
        assert took > 3.0, "it was given up before its silence was long enough"
        for text, result in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            _is_whole(text, parts=2)
            assert [x.node_id for x in result.attempts] == ["a", "b"]
        a.signal(signal.SIGCONT)

        async def back() -> bool:
            return len([e for e in await running.events("node_joined") if e.node_id == "a"]) == 2

        await until(back, what="the frozen agent comes back")
        again = next(e for e in await running.events("node_joined") if e.node_id == "a")
        assert int(again.attributes["abandoned"]) == 3
        await until(running.idle)
        result = await running.client.generate("after", model="m", max_tokens=2)
        assert result.text


async def test_every_agent_dies_under_load_and_the_scheduler_serves_again_when_one_returns() -> (
    None
):
    """Behaviour 58: nothing has to be restarted; what was accepted is answered."""
    async with cluster() as running:
        agents = await running.fleet("n0", "n1", options=("slots=4", "latency=50ms"))
        tasks = [
            asyncio.create_task(running.client.generate(f"p{i}", model="m", max_tokens=4))
            for i in range(40)
        ]
        await until(lambda: _some_done(tasks))
        for agent in agents:
            agent.signal(signal.SIGKILL)

        async def gone() -> bool:
            return not any(n.can_accept for n in (await running.report()).nodes)

        await until(gone)
        await running.agent("fresh", "slots=4", "latency=5ms")
        results = await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert all(r.text for r in results)
        report = await running.report()
        assert report.totals.received == report.totals.succeeded == 40
        await until(running.idle)


async def _some_done(tasks: list[asyncio.Task[Result]]) -> bool:
    await asyncio.sleep(0)
    return sum(t.done() for t in tasks) >= 4


async def test_a_restarted_agent_with_the_same_id_takes_over_at_once() -> None:
    """A new boot id proves the old work dead: nobody waits for a window."""
    async with cluster() as running:
        a = await running.agent("a", *AGENT)
        tasks = await _streams(running, 2)
        await _speaking(running, "a", 2)
        a.signal(signal.SIGKILL)
        await a.process.wait()
        await running.agent("a", *AGENT)
        for text, result in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            _is_whole(text, parts=2)
            assert [x.node_id for x in result.attempts] == ["a", "a"]
        await until(running.idle)


async def test_a_second_live_agent_with_the_same_id_is_refused_and_exits() -> None:
    """Behaviour 52: one session, no flapping; the newcomer exits non-zero and says why."""
    async with cluster() as running:
        await running.agent("a", "latency=1ms")
        from tests.integration.cluster import Process

        twin = await Process.start(
            "twin", "node_agent", "--scheduler", running.addresses["node"], "--node-id", "a",
            "--engine", "simulated", "--engine-option", "models=[m]",
        )  # fmt: skip
        code = await asyncio.wait_for(twin.process.wait(), 20)
        await twin.end()
        assert code == 3
        assert any("'a'" in line or " a " in line for line in twin.lines), twin.lines
        assert len(await running.events("node_joined")) == 1
        assert (await running.client.generate("p", model="m", max_tokens=2)).node_id == "a"


async def test_drain_waits_for_running_work_and_proves_that_nothing_was_lost() -> None:
    """Behaviour 107: cordoned at once, the stream ends whole, the rest moves, lost is 0."""
    async with cluster() as running:
        await running.agent("a", *AGENT)
        tasks = await _streams(running, 2)
        await _speaking(running, "a", 2)
        await running.agent("b", *AGENT)
        await running.admin.drain("a", grace="20s")
        late = await running.client.generate("late", model="m", max_tokens=2)
        assert late.node_id == "b"
        for text, _ in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            _is_whole(text, parts=1)

        async def drained() -> bool:
            return (await running.admin.node("a")).drain.HasField("end_time")

        await until(drained)
        proof = (await running.admin.node("a")).drain
        assert (proof.finished, proof.moved, proof.lost) == (2, 0, 0)


async def test_drain_with_a_short_grace_moves_streams_that_still_run() -> None:
    """Behaviour 108: at the limit the work goes on elsewhere, from where it was."""
    async with cluster() as running:
        a = await running.agent("a", *AGENT)
        tasks = await _streams(running, 2)
        await _speaking(running, "a", 2)
        await running.agent("b", *AGENT)
        await running.admin.drain("a", grace="100ms", terminate=True)
        for text, result in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            _is_whole(text, parts=2)
            assert result.node_id == "b"
        assert await asyncio.wait_for(a.process.wait(), 10) == 0
        (drained,) = await running.events("node_drained")
        assert drained.attributes["lost"] == "0"
        assert drained.attributes["moved"] == "2"


async def test_a_node_that_is_called_back_from_its_drain_serves_again() -> None:
    """Behaviour 107: `uncordon` reaches the agent, while it drains and after; or it is refused."""
    async with cluster() as running:
        a = await running.agent("a", *AGENT)
        tasks = await _streams(running, 2)
        await _speaking(running, "a", 2)
        for terminate in (False, True):
            await running.admin.drain("a", grace="500ms", terminate=terminate)
            await running.admin.uncordon("a")
            late = await running.client.generate("late", model="m", max_tokens=2)
            assert [attempt.error for attempt in late.attempts] == [""]
        for text, result in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            _is_whole(text, parts=1)  # the grace of a drain that was lifted ends nothing
            assert len(result.attempts) == 1
        await running.admin.drain("a")
        await running.admin.uncordon("a")
        assert (await running.client.generate("p", model="m", max_tokens=2)).node_id == "a"
        tasks = await _streams(running, 1)
        await _speaking(running, "a", 1)
        a.signal(signal.SIGTERM)

        async def leaves() -> bool:
            return (
                await running.admin.node("a")
            ).availability == NodeAvailability.NODE_AVAILABILITY_DRAINING

        await until(leaves)
        with pytest.raises(Unavailable, match=r"told to stop on its host.*start the agent again"):
            await running.admin.uncordon("a")
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert await asyncio.wait_for(a.process.wait(), 10) == 0

        async def shown() -> bool:
            node = await running.admin.node("a")
            gone = node.health == NodeHealth.NODE_HEALTH_LOST
            return gone and node_document(node)["state"] == "drained"

        await until(shown, what="who left in good order is not shown as lost")
