"""What does one unary gRPC call cost, made with nothing but the generated stubs?"""

from __future__ import annotations

from typing import Any

from batchyard.v1 import GenerateRequest, SchedulerServiceStub
from benchmarks.bench import INSTANT, Bench, Side, cost_and_rates
from benchmarks.echo_load import channel, echo_unary
from benchmarks.loads import closed_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import request, unary_bytes

WIDTH = 64


async def measure(bench: Bench) -> list[Measured]:
    """The lines unary.*."""
    scheduler, echo = await bench.scheduler(INSTANT), await bench.echo()
    body = unary_bytes(INSTANT)
    asked = GenerateRequest(request=request(INSTANT))
    async with channel(scheduler) as real, channel(echo) as bare:
        stub: Any = SchedulerServiceStub(real)  # type: ignore[no-untyped-call]

        async def load(seconds: float) -> int:
            return await closed_loop(lambda: stub.Generate(asked), width=WIDTH, seconds=seconds)

        async def echo_load(seconds: float) -> int:
            return await echo_unary(bare, body, width=WIDTH, seconds=seconds)

        subject, limit = await bench.alternate(Side(scheduler, load), Side(echo, echo_load))
    return [
        *cost_and_rates("unary", subject, limit),
        Measured("unary.rate", [s.rate for s in subject], [s.rate for s in limit]),
    ]
