"""Whom does an agent's port for metrics answer?"""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp

from node_agent.telemetry.metrics_port import CONNECTIONS, MetricsPort


async def test_on_loopback_only_names_of_this_machine_are_answered() -> None:
    """A web page from elsewhere whose name was made to point at 127.0.0.1 reads nothing."""
    port = await MetricsPort.start("127.0.0.1", 0, tuple)
    try:
        async with aiohttp.ClientSession() as session:
            for name, code in (
                ("evil.example", 403), ("127.0.0.1.evil.example:80", 403),
                ("localhost", 200), (f"127.0.0.1:{port.port}", 200),
            ):  # fmt: skip
                url = f"http://127.0.0.1:{port.port}/metrics"
                async with session.get(url, headers={"Host": name}) as answer:
                    assert answer.status == code, name
    finally:
        await port.stop()


async def test_a_connection_that_asks_for_nothing_is_ended() -> None:
    port = await MetricsPort.start("127.0.0.1", 0, tuple, idle_s=0.1)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"GET /metrics HT")  # and no more
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
    finally:
        await port.stop()


async def test_more_connections_than_allowed_are_turned_away() -> None:
    port = await MetricsPort.start("127.0.0.1", 0, tuple)
    kept: list[asyncio.StreamWriter] = []
    try:
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()
            kept.append(writer)
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        kept.append(writer)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
    finally:
        for writer in kept:
            writer.close()
        await port.stop()
