"""What do encryption and authentication cost? The same scheduler in plain text | behind TLS, with
a token for the client and a certificate for the agent, in turns.

The whole per request is too small to be seen beside the noise of a whole scheduler, so `added` is
put together from parts that can be measured: what TLS adds to the echo server for a request's bytes
in packed messages, twice (a request passes the scheduler's clients' and its agents' port), and the
check of tenant, model and priority by itself.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

import grpc

from batchyard.v1 import GetServerInfoRequest, SchedulerServiceStub
from benchmarks import security_costs
from benchmarks.bench import Bench, Sample, Side
from benchmarks.echo_load import PACKED, channel, echo_messages
from benchmarks.measured import Measured
from benchmarks.measures.multiplex import WIDTH, through
from benchmarks.processes import Child, child
from benchmarks.secured import Reached, made_certificates, reached

CONNECTIONS, RPCS = 30, 300
# Mean of the messages in which a request stands: call 145, dispatch 204, item result and result
# about 200 each.
BYTES: Final = 190
TURNS: Final = 6


async def measure(bench: Bench) -> list[Measured]:
    """The lines security.*."""
    async with reached(bench, tls=False, token=False) as plain, reached(bench) as secured:
        connections = await _connections(bench, secured, plain)
        async with plain.client() as bare, secured.client() as safe:
            subject, limit = await bench.alternate(
                Side(secured.scheduler, lambda s: through(safe, s)),
                Side(plain.scheduler, lambda s: through(bare, s)),
                turns=TURNS,
            )
    return [
        *connections,
        Measured("security.multiplex", _costs(subject), _costs(limit)),
        *await _parts(bench),
    ]


def _costs(samples: list[Sample]) -> list[float]:
    return [sample.cpu_us for sample in samples]


async def _parts(bench: Bench) -> list[Measured]:
    """What is added to one request."""
    encrypted, plain = await _echoes(bench)
    checks = [security_costs.check_us() for _ in range(bench.rounds)]
    check = median(checks)
    added = [2 * (one - other) + check for one, other in zip(encrypted, plain, strict=True)]
    limits = [security_costs.limits_us() for _ in range(bench.rounds)]
    return [
        Measured("security.echo", encrypted, plain),
        Measured("security.check", checks),
        Measured("security.added", added),
        Measured("security.limits", limits),
    ]


async def _echoes(bench: Bench) -> tuple[list[float], list[float]]:
    """Costs of a request in the echo server, with TLS and without."""
    message = bytes(BYTES * PACKED)
    async with _encrypted_echo(bench) as (secured, safe), channel(await bench.echo()) as bare:

        async def echo(opened: grpc.aio.Channel, seconds: float) -> int:
            width = WIDTH // PACKED
            return PACKED * await echo_messages(opened, message, width=width, seconds=seconds)

        subject, limit = await bench.alternate(
            Side(secured, lambda s: echo(safe, s)),
            Side(await bench.echo(), lambda s: echo(bare, s)),
            turns=TURNS,
        )
    return _costs(subject), _costs(limit)


@asynccontextmanager
async def _encrypted_echo(bench: Bench) -> AsyncIterator[tuple[Child, grpc.aio.Channel]]:
    with made_certificates() as folder:
        credentials = grpc.ssl_channel_credentials((Path(folder) / "ca.pem").read_bytes())
        async with child("benchmarks.echo_server", folder, cores=bench.cores.subject) as server:
            address = server.addresses["client"]
            async with grpc.aio.secure_channel(address, credentials) as opened:
                yield server, opened


async def _connections(bench: Bench, secured: Reached, plain: Reached) -> list[Measured]:
    """A connection and its first answer, and an RPC on one that stands."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(bench.rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            for name, value in (await _connect((secured, plain)[index])).items():
                found.setdefault(name, ([], []))[index].append(value)
    return [Measured(f"security.{name}", *samples) for name, samples in found.items()]


async def _connect(side: Reached) -> dict[str, float]:
    cpu_s, began = side.scheduler.cpu_s(), time.perf_counter()
    for _ in range(CONNECTIONS):
        async with side.channel() as opened:
            await _info(side, opened)
    wall_ms = (time.perf_counter() - began) / CONNECTIONS * 1e3
    cpu_us = (side.scheduler.cpu_s() - cpu_s) / CONNECTIONS * 1e6
    async with side.channel() as opened:
        await _info(side, opened)
        cpu_s = side.scheduler.cpu_s()
        for _ in range(RPCS):
            await _info(side, opened)
        rpc_us = (side.scheduler.cpu_s() - cpu_s) / RPCS * 1e6
    return {"connection": wall_ms, "connection_cpu": cpu_us, "rpc": rpc_us}


async def _info(side: Reached, opened: grpc.aio.Channel) -> None:
    stub = SchedulerServiceStub(opened)  # type: ignore[no-untyped-call]
    await stub.GetServerInfo(GetServerInfoRequest(), metadata=side.metadata)
