"""What if a link goes dead, a node hangs, a collector never answers, or we have to stop at once?"""

from __future__ import annotations

import asyncio
import signal

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from batchyard import BatchyardError, Result, errors
from batchyard.v1 import (
    GenerateStreamRequest,
    InferenceRequest,
    SchedulerServiceStub,
    TextInput,
)
from node_agent.engines.simulated_text import check_text, is_seamless
from tests.integration.cluster import Cluster, Process, cluster, until
from tests.integration.link import Link

pytestmark = pytest.mark.slow


async def _whole(running: Cluster, tokens: int) -> tuple[str, Result]:
    stream = running.client.stream("p", model="m", max_tokens=tokens)
    async with stream:
        async for _ in stream:
            pass
    assert stream.result is not None
    return stream.text, stream.result


async def test_work_behind_a_dead_link_moves_and_its_node_comes_back_when_it_heals() -> None:
    """Behaviour 72: no reset is ever seen; both ends notice, and no ghost is left."""
    async with cluster() as running, Link.to(running.addresses["node"]) as link:
        direct = running.addresses["node"]
        running.addresses["node"] = link.address
        await running.agent("far", "slots=4", "latency_per_token=40ms")
        running.addresses["node"] = direct
        tasks = [asyncio.create_task(_whole(running, 60)) for _ in range(2)]
        await until(lambda: _speaking(running, 2))
        await running.agent("near", "slots=4", "latency_per_token=5ms")
        link.up.clear()
        for text, result in await asyncio.wait_for(asyncio.gather(*tasks), 15):
            assert is_seamless(text)
            assert check_text(text)[-1][2] == 59
            assert result.node_id == "near"
        link.up.set()
        await until(lambda: running.healthy("far"), within_s=10)
        await until(running.idle)
        assert sorted(n.node_id for n in (await running.report()).nodes) == ["far", "near"]
        await running.admin.cordon("near")
        assert (await running.client.generate("p", model="m", max_tokens=2)).node_id == "far"


async def _speaking(running: Cluster, count: int) -> bool:
    found = [r async for r in running.admin.requests()]
    return sum(r.output_tokens > 3 for r in found) >= count


async def test_a_hung_node_slows_no_other() -> None:
    """Behaviour 7: fifty requests hang on one node; those of the other do not notice."""
    async with cluster() as running:
        await asyncio.gather(
            running.agent("hung", "slots=50", models="hangs"),
            running.agent("good", "slots=5", "latency=20ms"),
        )
        hanging = [
            asyncio.create_task(running.client.generate("[[stall]]", model="hangs"))
            for _ in range(50)
        ]

        async def all_hang() -> bool:
            return any(n.running == 50 for n in (await running.report()).nodes)

        await until(all_hang)
        start = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(running.client.generate("p", model="m", max_tokens=1) for _ in range(50))
        )
        assert asyncio.get_running_loop().time() - start < 2.0, "ten rounds of 20 ms"
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await until(running.idle, within_s=2)


async def test_every_open_stream_gets_a_status_when_there_is_no_time_to_finish() -> None:
    """Behaviour 110: grace 0 and ten open streams: ten statuses within two seconds."""
    async with cluster(settings=["shutdown_grace=0s"]) as running:
        await running.agent("a", "slots=10", "latency_per_token=20ms")
        async with grpc.aio.insecure_channel(running.addresses["client"]) as channel:
            stub = SchedulerServiceStub(channel)
            tasks = [asyncio.create_task(_status(stub)) for _ in range(10)]
            await until(lambda: _speaking(running, 10))
            running.scheduler.signal(signal.SIGTERM)
            codes = await asyncio.wait_for(asyncio.gather(*tasks), 2.0)
        assert codes == [grpc.StatusCode.UNAVAILABLE] * 10
        assert await asyncio.wait_for(running.scheduler.process.wait(), 5) == 0


async def _status(stub: SchedulerServiceStub) -> grpc.StatusCode:
    request = InferenceRequest(model="m", text=TextInput(prompt="p"))
    request.params.max_tokens = 2000
    try:
        async for _ in stub.GenerateStream(GenerateStreamRequest(request=request)):
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def _running(running: Cluster, count: int) -> bool:
    return sum(n.running for n in (await running.report()).nodes) == count


async def test_stopping_ends_what_is_short_and_tells_what_is_long() -> None:
    """Behaviours 42, 44, 79: idle sessions, callers that left and a hanging request hold nothing
    up beyond the grace. Who watches its health hears of it first.
    """
    async with cluster(settings=["shutdown_grace=3s"]) as running:
        await running.fleet(*(f"n{number}" for number in range(5)), options=("slots=1",))
        leavers = [
            asyncio.create_task(running.client.generate("[[stall]]", model="m")) for _ in range(5)
        ]
        await until(lambda: _running(running, 5))
        for leaver in leavers:
            leaver.cancel()
        await until(lambda: _running(running, 0), what="the slots of those that left are free")
        short = asyncio.create_task(
            running.client.generate("[[sleep=1s]]", model="m", max_tokens=1)
        )
        long = asyncio.create_task(running.client.generate("[[stall]]", model="m"))
        await until(lambda: _running(running, 2))
        async with grpc.aio.insecure_channel(running.addresses["client"]) as channel:
            watch = HealthStub(channel).Watch(HealthCheckRequest(service="readiness"))
            assert (await watch.read()).status == HealthCheckResponse.SERVING
            running.scheduler.signal(signal.SIGTERM)
            told = await asyncio.wait_for(watch.read(), 5)
            assert told.status == HealthCheckResponse.NOT_SERVING
            assert not short.done(), "health says so first, and what runs goes on"
            assert (await asyncio.wait_for(short, 5)).text
            watch.cancel()
        assert await asyncio.wait_for(running.scheduler.process.wait(), 5) == 0
        with pytest.raises(errors.Unavailable) as caught:
            await asyncio.wait_for(long, 5)
        assert caught.value.reason == "SCHEDULER_DRAINING"


@pytest.mark.parametrize("answers", ["nobody", "never"])
async def test_a_collector_that_does_not_answer_holds_up_neither_requests_nor_the_exit(
    answers: str,
) -> None:
    """Behaviours 114, 115: a connection that is refused, and one that is taken and left alone."""
    taken: list[asyncio.StreamWriter] = []
    collector = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    port = collector.sockets[0].getsockname()[1]
    if answers == "nobody":
        collector.close()
        await collector.wait_closed()
    env = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_TRACES_SAMPLER": "always_on",
    }
    try:
        async with cluster(env=env) as running:
            agent = await running.agent("a", "slots=8", "latency=2ms")
            for _ in range(10):
                async with asyncio.timeout(2):
                    await asyncio.gather(
                        *(running.client.generate("p", model="m", max_tokens=1) for _ in range(40))
                    )
            for process in (agent, running.scheduler):
                assert await _exit_within(process, 8.0) == 0
    finally:
        collector.close()
        for writer in taken:
            writer.close()


async def _exit_within(process: Process, limit_s: float) -> int:
    process.signal(signal.SIGTERM)
    return await asyncio.wait_for(process.process.wait(), limit_s)


async def test_a_node_that_warms_up_is_seen_to_and_serves_once_it_is_warm() -> None:
    """Behaviours 25, 111: the time of a request does not end the loading, nor is one sent early."""
    async with cluster() as running:
        process = await Process.start(
            "slow", "node_agent", "--scheduler", running.addresses["node"], "--node-id", "slow",
            "--engine", "simulated", "--engine-option", "models=[m]",
            "--engine-option", "warm_up=3s",
        )  # fmt: skip
        running.agents["slow"] = process

        async def starting() -> bool:
            nodes = (await running.report()).nodes
            return [n.can_accept for n in nodes] == [False]

        await until(starting)
        with pytest.raises(BatchyardError):
            await running.client.generate("p", model="m", max_tokens=1, timeout="500ms")
        assert await running.events("dispatch_batch") == []
        result = await running.client.generate("p", model="m", max_tokens=1, timeout="10s")
        assert result.text
        assert [a.number for a in result.attempts] == [1]
