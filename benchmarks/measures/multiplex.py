"""What does one request cost that comes through the Python client's shared stream?

512 at a time; the engine has 256 slots and answers at once, so half of them pass through the
queue. The scheduler reads and writes each request twice (client, agent), the echo server once.
"""

from __future__ import annotations

from batchyard import AsyncClient
from benchmarks.bench import INSTANT, Bench, Side, cost_and_rates
from benchmarks.echo_load import PACKED, channel, echo_messages
from benchmarks.loads import closed_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import OPTIONS, PROMPT, packed_bytes

WIDTH = 512


async def measure(bench: Bench) -> list[Measured]:
    """The lines multiplex.*."""
    scheduler, echo = await bench.scheduler(INSTANT), await bench.echo()
    message = packed_bytes(INSTANT) * PACKED
    async with AsyncClient(scheduler.addresses["client"]) as client, channel(echo) as opened:

        async def load(seconds: float) -> int:
            return await through(client, seconds)

        async def echo_load(seconds: float) -> int:
            width = WIDTH // PACKED
            return PACKED * await echo_messages(opened, message, width=width, seconds=seconds)

        subject, limit = await bench.alternate(Side(scheduler, load), Side(echo, echo_load))
    return [
        *cost_and_rates("multiplex", subject, limit),
        Measured("multiplex.rate", [s.rate for s in subject], [s.rate for s in limit]),
    ]


async def through(client: AsyncClient, seconds: float) -> int:
    """As many requests as the client gets done; returns their number."""
    return await closed_loop(
        lambda: client.generate(PROMPT, model=INSTANT, **OPTIONS), width=WIDTH, seconds=seconds
    )
