"""Schedulers behind locks: how are they started for a measure, and how does a load reach them?

Everything is made as an installation makes it: `batchyard certs init`, `batchyard tokens create`,
an agent with a certificate.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from batchyard import AsyncClient
from benchmarks.bench import INSTANT, Bench
from benchmarks.processes import Child, child

# All five; none of them is ever reached.
LIMITS = (
    "tenants.default={in_flight: 100000, queued: 100000, requests_per_minute: 100000000, "
    "tokens_per_minute: 100000000000, urgent_share: 1.0}"
)
SLOTS = 256


@dataclass(slots=True)
class Reached:
    """A scheduler, and what its callers need."""

    scheduler: Child
    token: str | None = None  # None: nobody has to say who they are
    authority: bytes | None = None  # None: plain text

    def channel(self) -> grpc.aio.Channel:
        """A connection that is shared with nobody."""
        address = self.scheduler.addresses["client"]
        options = [("grpc.use_local_subchannel_pool", 1)]
        if self.authority is None:
            return grpc.aio.insecure_channel(address, options)
        credentials = grpc.ssl_channel_credentials(self.authority)
        return grpc.aio.secure_channel(address, credentials, options)

    def client(self) -> AsyncClient:
        """The Python library, as anybody uses it."""
        address = self.scheduler.addresses["client"]
        return AsyncClient(address, api_key=self.token, tls=self.authority)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each RPC."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


@asynccontextmanager
async def reached(
    bench: Bench, *, tls: bool = True, token: bool = True, limits: bool = False
) -> AsyncIterator[Reached]:
    """A scheduler of its own with one agent: encrypted on all ports with a certificate for the
    agent, with a token for the client that is bound to a tenant, a model and a priority, with
    limits for all tenants; or without some of that.
    """
    with made_certificates() as name:
        folder = Path(name)
        settings: list[str] = []
        secret = authority = None
        if tls:
            authority = (folder / "ca.pem").read_bytes()
            settings += [f"tls.certificate={name}/scheduler.pem", f"tls.key={name}/scheduler.key",
                         f"tls.authority={name}/ca.pem"]  # fmt: skip
        if token:
            grants = f"{name}/grants.json"
            secret = _run("tokens", "create", "load", "--file", grants, "--tenant", "a",
                          "--model", INSTANT, "--max-priority", "9")  # fmt: skip
            settings.append(f"auth.file={grants}")
        if limits:
            settings.append(LIMITS)
        async with (
            bench.fresh_scheduler(*settings) as scheduler,
            _agent(bench, scheduler, folder, tls=tls, token=token),
        ):
            yield Reached(scheduler, secret, authority)


@contextlib.contextmanager
def made_certificates() -> Iterator[str]:
    """A folder with an authority, and certificates for loopback and for the agent."""
    with tempfile.TemporaryDirectory() as name:
        _run("certs", "init", "--dir", name, "--host", "127.0.0.1", "--node", INSTANT)
        yield name


def _agent(
    bench: Bench, scheduler: Child, folder: Path, *, tls: bool, token: bool
) -> contextlib.AbstractAsyncContextManager[Child]:
    """Its certificate says which node it is; without encryption a join token lets it in."""
    own: dict[str, object] = {}
    if tls:
        pair = f"{folder}/node-{INSTANT}"
        own = {"tls.authority": folder / "ca.pem", "tls.certificate": f"{pair}.pem",
               "tls.key": f"{pair}.key"}  # fmt: skip
    elif token:
        _run("tokens", "join", "--file", f"{folder}/grants.json", "--out", f"{folder}/join.token")
        own = {"token_file": folder / "join.token"}
    return child(
        "node_agent", "--scheduler", scheduler.addresses["node"], "--log-level", "error",
        "--set", f"node_id={INSTANT}",
        *(word for k, v in own.items() for word in ("--set", f"scheduler.{k}={v}")),
        "--engine", "simulated", "--engine-option", f"models=[{INSTANT}]",
        "--engine-option", f"slots={SLOTS}", cores=bench.cores.load,
    )  # fmt: skip


def _run(*words: str) -> str:
    """One of the security commands; what it printed."""
    command = [sys.executable, "-m", "scheduler_service.security", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
