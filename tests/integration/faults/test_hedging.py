"""A node is well and slow: whoever is sent there is answered by another one. Real processes."""

from __future__ import annotations

import asyncio
import time

import pytest

from batchyard import Result
from node_agent.engines.simulated_text import check_text, is_seamless
from tests.integration.cluster import cluster, until

pytestmark = pytest.mark.slow

SETTINGS = ("hedging.enabled=true", "hedging.share=0.5", "hedging.least_delay=200ms")
SLOW_S = 20
TOKENS = 8


async def test_request_on_a_slow_node_is_answered_by_its_rival_and_the_slow_one_is_cancelled() -> (
    None
):
    """Each caller has one attempt's text; the slow node's slots are free long before it answers."""
    async with cluster(settings=SETTINGS) as running:
        await running.agent("quick", "slots=16", "latency=5ms")

        async def stream() -> tuple[str, Result]:
            started = running.client.stream("p", model="m", max_tokens=TOKENS)
            async with started:
                async for _ in started:
                    pass
                assert started.result is not None
                return started.text, started.result

        for _ in range(2):  # of both kinds it learns what is usual
            await asyncio.gather(*(stream() for _ in range(30)))
            await asyncio.gather(
                *(running.client.generate("p", model="m", max_tokens=TOKENS) for _ in range(30))
            )
        await running.agent("slow", "slots=4", f"latency={SLOW_S}s")
        began = time.monotonic()
        streams = asyncio.gather(*(stream() for _ in range(8)))
        whole = asyncio.gather(
            *(running.client.generate("p", model="m", max_tokens=TOKENS) for _ in range(8))
        )
        results = [r for _, r in await streams] + list(await whole)
        texts = [text for text, _ in await streams] + [r.text for r in await whole]
        await until(running.idle)
        assert time.monotonic() - began < SLOW_S, "somebody waited for the slow node"
        for text in texts:
            runs = check_text(text)
            assert is_seamless(text), runs
            assert len({nonce for nonce, _, _ in runs}) == 1, "of one attempt"
            assert runs[-1][2] == TOKENS - 1
        hedged = [r for r in results if len(r.attempts) == 2]
        assert hedged, "nobody was sent to the slow node"
        for result in hedged:
            assert [a.node_id for a in result.attempts] == ["slow", "quick"]
            assert [a.state for a in result.attempts] == ["revoked", "succeeded"]
        events = await running.events("hedged")
        assert len(events) == len(hedged)
        assert events[0].attributes["slow_node"] == "slow"
        explained = await running.admin.explain(events[0].request_id)
        assert "hedge" in [d.kind for d in explained.decisions]
