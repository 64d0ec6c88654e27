"""Whom does an agent's port for metrics answer?"""

from __future__ import annotations

import aiohttp

from node_agent.telemetry.metrics_port import MetricsPort


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
