"""What do encryption, identity and limits of tenants cost? `python -m benchmarks.security`.

    per connection   connect, and one answer: plain text | TLS and a token, in turns
    per RPC          one unary RPC on a standing connection, likewise
    per request      processor time of the scheduler for a multiplexed request, likewise; and, in
                     this process, what its gate adds by itself: the rule of the tenant, the model
                     and the priority, the reservation and its end

Both schedulers run on one core, load and agents on the others; medians of the rounds are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import grpc

from batchyard import AsyncClient
from batchyard.v1 import GetServerInfoRequest, SchedulerServiceStub
from benchmarks.bench import INSTANT, Bench, Side
from benchmarks.measures.multiplex import through
from benchmarks.processes import Child, child, pin
from scheduler_service.config_security import TenantSection, TenantsSection
from scheduler_service.core import records
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.records import Record
from scheduler_service.core.types import Request
from scheduler_service.security.permits import permit
from scheduler_service.security.principals import Principal, Right
from scheduler_service.security.quotas import Quotas
from service_kit.event_loop import loop_factory

LIMITS = "in_flight: 100000, queued: 100000, requests_per_minute: 100000000"
CONNECTIONS, RPCS = 30, 300


@dataclass(slots=True)
class Callers:
    """How a scheduler is reached."""

    scheduler: Child
    token: str | None = None
    authority: bytes | None = None

    def channel(self) -> grpc.aio.Channel:
        """A connection that is shared with nobody."""
        address = self.scheduler.addresses["client"]
        options = [("grpc.use_local_subchannel_pool", 1)]
        if self.authority is None:
            return grpc.aio.insecure_channel(address, options)
        credentials = grpc.ssl_channel_credentials(self.authority)
        return grpc.aio.secure_channel(address, credentials, options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each RPC."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    bench = Bench(rounds=options.rounds, round_s=options.seconds)
    figures: dict[str, float] = {"gate_us_per_request": gate_us()}
    pin(0, bench.cores.load)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        figures |= runner.run(_measure(bench))
    for name, value in figures.items():
        print(f"{name:34} {value:10.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def gate_us() -> float:
    """What the gate adds to one multiplexed request of a principal with all restrictions."""
    principal = Principal(
        "p", Right.USE, tenants=("a", "b"), models=frozenset({"m"}), max_priority=9
    )
    limits = TenantSection(
        in_flight=10_000, queued=10_000, requests_per_minute=10**9, tokens_per_minute=10**12,
        urgent_share=1.0,
    )  # fmt: skip
    quotas = Quotas(TenantsSection(default=limits))
    asked = Request(1, "r", "m", 6, output_tokens=10)
    ended = FinishRequest(asked, Outcome.SUCCEEDED)
    attempt = SimpleNamespace(request=asked)
    batch = SimpleNamespace(attempts=[attempt] * 8)  # as they go to a node under load
    sent = [Record(records.DISPATCH_BATCH, 0, batch=batch)]  # type: ignore[arg-type]
    now = time.monotonic_ns()

    def once() -> None:
        asked.tenant = ""
        permit(principal, asked, ())
        held = quotas.reserve(asked, now)
        asked.context = SimpleNamespace(reservation=held)
        quotas.release(held, ended, now)

    def observed() -> None:
        quotas.observe(sent)

    def bare() -> None:
        asked.tenant = ""
        asked.context = SimpleNamespace(reservation=None)

    rounds, times = 9, 20_000
    costs = [
        min(timeit.repeat(each, number=times, repeat=rounds)) / times * 1e6
        for each in (once, bare, observed)
    ]
    return costs[0] - costs[1] + costs[2] / 8


async def _measure(bench: Bench) -> dict[str, float]:
    async with bench, _plain(bench) as plain, _secured(bench) as secured:
        sides = {"plain": plain, "secured": secured}
        found: dict[str, list[float]] = {}
        for _ in range(bench.rounds):
            for name, side in sides.items():
                for what, us in (await _connect(side)).items():
                    found.setdefault(f"{what}_{name}_us", []).append(us)
        figures = {name: median(values) for name, values in found.items()}
        return figures | await _multiplexed(bench, plain, secured)


async def _connect(side: Callers) -> dict[str, float]:
    """Wall and processor time of a connection, and of an RPC on it."""
    cpu_s, began = side.scheduler.cpu_s(), time.perf_counter()
    for _ in range(CONNECTIONS):
        async with side.channel() as channel:
            await _info(side, channel)
    wall_us = (time.perf_counter() - began) / CONNECTIONS * 1e6
    cpu_us = (side.scheduler.cpu_s() - cpu_s) / CONNECTIONS * 1e6
    async with side.channel() as channel:
        await _info(side, channel)
        cpu_s = side.scheduler.cpu_s()
        for _ in range(RPCS):
            await _info(side, channel)
        rpc_us = (side.scheduler.cpu_s() - cpu_s) / RPCS * 1e6
    return {"connection_wall": wall_us, "connection_cpu": cpu_us, "rpc_cpu": rpc_us}


async def _info(side: Callers, channel: grpc.aio.Channel) -> None:
    stub = SchedulerServiceStub(channel)  # type: ignore[no-untyped-call]
    await stub.GetServerInfo(GetServerInfoRequest(), metadata=side.metadata)


async def _multiplexed(bench: Bench, plain: Callers, secured: Callers) -> dict[str, float]:
    async with _client(plain) as bare, _client(secured) as safe:

        async def bare_load(seconds: float) -> int:
            return await through(bare, seconds)

        async def safe_load(seconds: float) -> int:
            return await through(safe, seconds)

        subject, limit = await bench.alternate(
            Side(secured.scheduler, safe_load), Side(plain.scheduler, bare_load)
        )
    costs = [median(sample.cpu_us for sample in samples) for samples in (limit, subject)]
    return {
        "multiplex_plain_cpu_us": costs[0],
        "multiplex_secured_cpu_us": costs[1],
        "multiplex_added_cpu_us": costs[1] - costs[0],
    }


def _client(side: Callers) -> AsyncClient:
    address = side.scheduler.addresses["client"]
    return AsyncClient(address, api_key=side.token, tls=side.authority)


@asynccontextmanager
async def _plain(bench: Bench) -> AsyncIterator[Callers]:
    async with (
        bench.fresh_scheduler() as scheduler,
        bench.fresh_agent(scheduler, INSTANT, slots=256),
    ):
        yield Callers(scheduler)


@asynccontextmanager
async def _secured(bench: Bench) -> AsyncIterator[Callers]:
    """TLS on all ports, a certificate for the agent, a token for the client, limits for all."""
    with _folder() as folder:
        _run("certs", "init", "--dir", str(folder), "--host", "127.0.0.1", "--node", INSTANT)
        grants = folder / "grants.json"
        token = _run(
            "tokens", "create", "load", "--file", str(grants), "--tenant", "a",
            "--model", INSTANT, "--max-priority", "9",
        )  # fmt: skip
        settings = (
            f"tls.certificate={folder}/scheduler.pem", f"tls.key={folder}/scheduler.key",
            f"tls.authority={folder}/ca.pem", f"auth.file={grants}",
            f"tenants.default={{{LIMITS}}}",
        )  # fmt: skip
        async with bench.fresh_scheduler(*settings) as scheduler, _agent(bench, scheduler, folder):
            yield Callers(scheduler, token, (folder / "ca.pem").read_bytes())


def _agent(
    bench: Bench, scheduler: Child, folder: Path
) -> contextlib.AbstractAsyncContextManager[Child]:
    tls = {
        "authority": folder / "ca.pem",
        "certificate": folder / f"node-{INSTANT}.pem",
        "key": folder / f"node-{INSTANT}.key",
    }
    return child(
        "node_agent", "--scheduler", scheduler.addresses["node"], "--log-level", "error",
        *(word for name, path in tls.items() for word in ("--set", f"scheduler.tls.{name}={path}")),
        "--engine", "simulated", "--engine-option", f"models=[{INSTANT}]",
        "--engine-option", "slots=256", cores=bench.cores.load,
    )  # fmt: skip


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _run(*words: str) -> str:
    """One of the security commands; what it printed."""
    command = [sys.executable, "-m", "scheduler_service.security", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
