"""The HTTP port: alive, ready, and why not."""

from __future__ import annotations

import logging

import aiohttp
import pytest

from scheduler_service.http import start_http


async def test_probes_are_answered_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiohttp.access")
    reasons = ["starting", ""]
    port = await start_http("127.0.0.1", 0, ready=lambda: reasons[0])
    base = f"http://127.0.0.1:{port.port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/healthz") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with session.get(f"{base}/readyz") as answer:
            assert answer.status == 503
            assert await answer.json() == {"status": "not ready", "reason": "starting"}
        del reasons[0]
        async with session.get(f"{base}/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ready"})
        async with session.get(f"{base}/other") as answer:
            assert answer.status == 404
    await port.stop()
    assert not [record for record in caplog.records if record.name == "aiohttp.access"]


async def test_a_port_that_is_taken_is_an_error() -> None:
    port = await start_http("127.0.0.1", 0, ready=lambda: "")
    with pytest.raises(OSError, match="in use"):
        await start_http("127.0.0.1", port.port, ready=lambda: "")
    await port.stop()
