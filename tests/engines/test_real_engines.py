"""Real engines behind the scheduler: they batch, free their slots, keep priorities."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import urllib.request
from typing import Any

import pytest

from batchyard import Result
from batchyard.v1 import InferenceRequest
from scripts.engine_environments import interpreter
from tests.integration.cluster import Cluster, cluster, until

SETTINGS = ["default_model=m"]


@pytest.fixture(params=["llamacpp", "vllm"])
def url(request: pytest.FixtureRequest) -> str:
    """Of an OpenAI-compatible server."""
    found = request.getfixturevalue(request.param)
    return str(getattr(found, "url", found))


def running_by_its_own_count(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as response:
        text = response.read().decode()
    names = r"(?:vllm:num_requests_running\{[^}]*\}|llamacpp:requests_processing)"
    return sum(float(value) for value in re.findall(rf"^{names} (\S+)$", text, re.MULTILINE))


async def settled(running: Cluster, url: str) -> None:
    async def none_runs() -> bool:
        return await asyncio.to_thread(running_by_its_own_count, url) == 0

    await until(none_runs, within_s=10)
    await until(running.idle)


@pytest.mark.timeout(400)
async def test_one_url_serves_and_batches_and_cancels(url: str) -> None:
    async with cluster(settings=SETTINGS) as running:
        await running.agent_of("a", "--engine", "openai", "--url", url)
        client = running.client
        options: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True, "timeout": "120s"}
        results = await asyncio.gather(*(client.generate(f"go {i}", **options) for i in range(24)))
        assert {result.usage.output_tokens for result in results} == {40}
        shaped = await client.generate(
            "hi", json_schema={"type": "boolean"}, max_tokens=20, timeout="120s"
        )
        assert json.loads(shaped.text) in (True, False)
        stream = client.stream("long", max_tokens=1500, ignore_eos=True)
        async with stream:
            async for _ in stream:
                break
        await settled(running, url)
        whole = asyncio.create_task(client.generate("long", max_tokens=1500, ignore_eos=True))

        async def runs() -> bool:
            return await asyncio.to_thread(running_by_its_own_count, url) == 1

        await until(runs)
        whole.cancel()
        await asyncio.gather(whole, return_exceptions=True)
        await settled(running, url)


@pytest.mark.timeout(400)
async def test_urgent_request_overtakes_inside_vllm(vllm: str) -> None:
    """Lower is more urgent there: with a wrong sign the batch would overtake the urgent one."""
    async with cluster(settings=SETTINGS) as running:
        options = ["slots=40", "poll_interval=200ms"]
        flags = [f for option in options for f in ("--engine-option", option)]
        await running.agent_of("a", "--engine", "openai", "--url", vllm, *flags)
        order: list[str] = []

        async def ask(name: str, priority: int, tokens: int) -> None:
            await running.client.generate(
                name, priority=priority, max_tokens=tokens, ignore_eos=True, timeout="120s"
            )
            order.append(name)

        blockers = [asyncio.create_task(ask("blocker", 5, 1500)) for _ in range(8)]

        async def full() -> bool:
            return await asyncio.to_thread(running_by_its_own_count, vllm) >= 6

        await until(full)
        patient = [asyncio.create_task(ask("patient", 2, 60)) for _ in range(12)]
        urgent = asyncio.create_task(ask("urgent", 10, 10))
        await asyncio.gather(*blockers, *patient, urgent)
        done = [name for name in order if name != "blocker"]
        assert done.index("urgent") < len(done) // 2, order


@pytest.mark.timeout(400)
async def test_triton_batches_streams_and_orders(triton: str) -> None:
    async with cluster() as running:
        await running.agent_of(
            "t", "--engine", "oip", "--engine-option", f"address={triton}",
            "--engine-option", "slots=16",
        )  # fmt: skip
        sent = [float(i) for i in range(32)]
        results = await asyncio.gather(*(infer(running, "double", x) for x in sent))
        assert [value_of(result, "y") for result in results] == [2 * x for x in sent]
        together = [struct.unpack("<i", tensor(r, "rows"))[0] for r in results]
        assert max(together) > 1
        stream = running.client.stream("three small words", model="words")
        async with stream:
            pieces = [event async for event in stream]
        assert stream.text == "three small words "
        assert len(pieces) >= 3
        cut = await running.client.generate("three small words", model="words", max_tokens=2)
        assert cut.text == "three small "
        order: list[int] = []

        async def ask(priority: int) -> None:
            await infer(running, "slow", 1.0, priority=priority)
            order.append(priority)

        await asyncio.gather(*(ask(p) for p in (2, 2, 2, 2, 2, 2, 9, 9)))
        assert sum(order[:5]) > 2 * 5, order
        stream = running.client.stream("word " * 5000, model="words")
        async with stream:
            async for _ in stream:
                break

        async def none_is_written() -> bool:
            return (await running.client.generate("count", model="words")).text == "0 "

        await until(none_is_written)
        await until(running.idle)


async def infer(running: Cluster, model: str, x: float, **options: Any) -> Result:
    request = InferenceRequest(model=model)
    request.tensors.tensors.add(name="x", datatype="FP32", shape=[1, 1], data=struct.pack("<f", x))
    for name, value in options.items():
        setattr(request, name, value)
    return await running.client.generate(request=request)


def tensor(result: Result, name: str) -> bytes:
    (found,) = (t for t in result.proto.outputs[0].tensors if t.name == name)
    return bytes(found.data)


def value_of(result: Result, name: str) -> float:
    return float(struct.unpack("<f", tensor(result, name))[0])


def test_environments_are_there() -> None:
    """What was skipped above is said."""
    missing = [name for name in ("triton", "vllm") if not interpreter(name).is_file()]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
