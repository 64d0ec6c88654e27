"""The HTTP port: alive, ready, and why not."""

from __future__ import annotations

import asyncio
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


@pytest.mark.parametrize(
    "sent",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",  # what a gRPC client begins with
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_its_senders_fault(
    caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    """A line at most, and no traceback: anybody may knock at the wrong port."""
    port = await start_http("127.0.0.1", 0, ready=lambda: "")
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(sent)
    async with asyncio.timeout(10):
        assert b" 400 " in await reader.readline()
    writer.close()
    await port.stop()
    assert [r.levelname for r in caplog.records if r.exc_info or r.levelno > logging.WARNING] == []


async def test_a_port_that_is_taken_is_an_error() -> None:
    port = await start_http("127.0.0.1", 0, ready=lambda: "")
    with pytest.raises(OSError, match="in use"):
        await start_http("127.0.0.1", port.port, ready=lambda: "")
    await port.stop()
