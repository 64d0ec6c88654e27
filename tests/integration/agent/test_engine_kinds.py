"""Engines of every kind behind one scheduler: attached, killed, found again, a user's own."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchyard.v1 import InferenceRequest
from scripts.make_tiny_model import write_tiny_model
from tests.integration.cluster import Cluster, cluster, until
from tests.unit.engines.hostile_server import TEXT, hostile_server
from tests.unit.engines.llamacpp_http import HttpServer, llamacpp_server
from tests.unit.engines.oip_server import oip_server

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[3] / "examples" / "language_classifier"


@pytest.fixture
def llamacpp(tmp_path: Path) -> Iterator[HttpServer]:
    model = tmp_path / "tiny.gguf"
    write_tiny_model(model)
    with llamacpp_server(str(model), slots=2, context=8000) as server:
        yield server


async def test_one_command_with_a_url_serves_what_is_there(llamacpp: HttpServer) -> None:
    """Models, context and slots are found out; tools and schemas work from end to end."""
    async with cluster(settings=["default_model=m"]) as running:
        await running.agent_of("a", "--engine", "openai", "--url", llamacpp.url)
        (summary,) = [n.summary async for n in running.admin.nodes()]
        assert summary.slots == 2
        client = running.client
        answers = await asyncio.gather(*(client.generate("hi", max_tokens=9) for _ in range(6)))
        assert {answer.usage.output_tokens for answer in answers} == {9}
        shaped = await client.generate("hi", json_schema={"type": "boolean"}, max_tokens=20)
        assert json.loads(shaped.text) in (True, False)
        request = InferenceRequest(model="m")
        request.raw.content_type = "application/json; api=openai.chat.v1"
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        request.raw.data = json.dumps(body).encode()
        raw = await client.generate(request=request)
        assert json.loads(raw.proto.outputs[0].raw.data)["usage"]["completion_tokens"] == 3
        await until(running.idle)


async def test_killed_engine_fails_over_to_an_engine_of_another_kind(llamacpp: HttpServer) -> None:
    async with cluster(settings=["default_model=m"]) as running:
        await running.agent_of("a", "--engine", "openai", "--url", llamacpp.url)
        work = asyncio.create_task(running.client.generate("hi", max_tokens=7000, ignore_eos=True))
        await until(lambda: _runs(running, "a"))
        await running.agent("b", "slots=4", "latency_per_token=1ms")
        llamacpp.process.send_signal(signal.SIGKILL)
        result = await asyncio.wait_for(work, 30)
        assert [attempt.node_id for attempt in result.attempts] == ["a", "b"]
        assert result.usage.output_tokens
        await until(lambda: _refuses(running, "a"))
        await until(running.idle)


async def test_fifty_faults_of_callers_leave_the_node_in_service() -> None:
    """Behaviour 59: too long prompts, bad parameters, and what a gate before the engine lets not
    in, are never the node's fault; none is tried again.
    """
    async with hostile_server() as server, cluster(settings=["default_model=m"]) as running:
        await running.agent_of("a", "--engine", "openai", "--url", server.url)
        tasks = [
            running.client.generate(("400", "x " * 400, "403")[i % 3], timeout=60)
            for i in range(50)
        ]
        faults = await asyncio.gather(*tasks, return_exceptions=True)
        reasons = {getattr(fault, "reason", repr(fault)) for fault in faults}
        assert reasons == {"CONTEXT_TOO_LONG", "INVALID_ARGUMENT", "PERMISSION_DENIED"}
        assert server.denied == 16
        assert await running.healthy("a")
        assert (await running.client.generate("hello")).text == TEXT


async def test_hanging_engine_is_out_of_service_until_it_answers_a_trial() -> None:
    """Behaviour 22: the first-token limit of the agent moves the work; no operator is needed."""
    async with hostile_server() as server, cluster(settings=["default_model=m"]) as running:
        await running.agent_of(
            "a", "--engine", "openai", "--url", server.url,
            "--engine-option", "first_token_timeout=400ms",
            "--engine-option", "trial_interval=100ms",
        )  # fmt: skip
        server.hangs = True
        work = asyncio.create_task(running.client.generate("hello"))
        await until(lambda: _refuses(running, "a"))
        await running.agent("b", "slots=4")
        assert (await asyncio.wait_for(work, 30)).node_id == "b"
        server.hangs = False
        await until(lambda: running.healthy("a"), within_s=40)


async def test_stream_of_one_model_of_a_triton_holds_up_no_other_work() -> None:
    """Beside a model that takes batches; there is room for both."""
    async with oip_server() as server, cluster() as running:
        options = (f"address={server.address}", "slots=4")
        flags = [flag for option in options for flag in ("--engine-option", option)]
        await running.agent_of("a", "--engine", "oip", *flags)
        stream = asyncio.create_task(running.client.generate("some wait", model="words"))
        await until(lambda: _runs(running, "a"))
        request = InferenceRequest(model="double")
        request.tensors.tensors.add(name="x", datatype="UINT8", shape=[1, 1], data=b"\4")
        answer = await asyncio.wait_for(running.client.generate(request=request), 20)
        assert answer.proto.outputs[0].tensors[0].data == b"\x08"
        assert (await running.client.generate("hello", model="words", timeout=20)).text == "hello"
        assert not stream.done()
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        await until(running.idle)


async def test_users_own_classifier_is_served_in_batches() -> None:
    """The example, as it stands; its weights are inside the package."""
    pytest.importorskip("langid")
    texts = {"Guten Morgen, wie geht es dir heute?": "de", "The ship left at dawn": "en"}
    async with cluster(settings=["default_model=m"]) as running:
        await running.agent_of(
            "a", "--engine", "python",
            "--engine-option", "callable=classifier:LanguageClassifier",
            "--engine-option", f"path={EXAMPLE}", "--engine-option", "max_batch_size=16",
        )  # fmt: skip

        async def classify(text: str) -> Any:
            result = await running.client.generate(text, model="LanguageClassifier")
            return json.loads(result.proto.outputs[0].raw.data)["language"]

        asked = list(texts) * 20
        assert await asyncio.gather(*map(classify, asked)) == [texts[text] for text in asked]
        events = [e async for e in running.admin.events(events=["dispatch_batch"])]
        assert len(events) < len(asked)
        await until(running.idle)


async def _runs(running: Cluster, node_id: str) -> bool:
    return any(r.node_id == node_id for r in [r async for r in running.admin.requests()])


async def _refuses(running: Cluster, node_id: str) -> bool:
    return not await running.healthy(node_id)
