"""A whole scheduler behind TLS and tokens, agents and clients, in the test's own process."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from node_agent import config_sources as agent_sources
from node_agent.app import App as AgentApp
from node_agent.engines.registry import build_engine
from node_agent.hardware import FixedProbe, HardwareSample
from scheduler_service import config_sources
from scheduler_service.app import Addresses, App
from scheduler_service.identity import load_identity
from scheduler_service.security import grants
from scheduler_service.security.authority import Authority
from scheduler_service.security.grants import Grant
from scheduler_service.security.refusals import Refusals
from service_kit.secret_files import write_secret

WAIT_S = 20.0
MODEL = "m"
NO_HOME = {"HOME": "/nowhere"}


class Files:
    """Certificates and grants of one installation, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.grants = folder / "grants.json"
        self.authority = Authority.create("test authority", now())
        self.authority.save(folder)
        self.issue_server()
        with grants.changing(self.grants):
            pass

    @property
    def ca(self) -> bytes:
        return (self.folder / "ca.pem").read_bytes()

    def issue_server(self, days: float = 1.0) -> None:
        self.put("scheduler", *self.authority.issue("", ["127.0.0.1", "localhost"], days, now()))

    def issue_node(self, node_id: str) -> None:
        self.put(f"node-{node_id}", *self.authority.issue_node(node_id, 1.0, now()))

    def issue_client(self, name: str) -> None:
        self.put(f"client-{name}", *self.authority.issue_client(name, 1.0, now()))

    def put(self, name: str, certificate: bytes, key: bytes) -> None:
        write_secret(self.folder / f"{name}.key", key)
        write_secret(self.folder / f"{name}.pem", certificate)

    def pair(self, name: str) -> tuple[bytes, bytes]:
        """Key and certificate."""
        return (
            (self.folder / f"{name}.key").read_bytes(),
            (self.folder / f"{name}.pem").read_bytes(),
        )

    def token(self, principal: str = "team", kind: str = "client", **fields: Any) -> str:
        """A new token; `fields` of its grant."""
        given: dict[str, Any] = {"rights": ["use"]} if kind == "client" else {"uses": 1}
        grant = Grant(
            id=grants.new_id(),
            kind=kind,  # type: ignore[arg-type]
            principal=principal,
            **{**given, **fields},
        )
        token, grant.digest = grants.new_token(grant.id)
        with grants.changing(self.grants) as written:
            written.add(grant)
        return token

    def allow_certificate(self, name: str, **fields: Any) -> None:
        grant = Grant(id=grants.new_id(), kind="certificate", principal=name, **fields)
        with grants.changing(self.grants) as written:
            written.add(grant)

    def nodes(self, token: str) -> list[str]:
        """That a join token has admitted."""
        return grants.read(self.grants).entries[grants.id_of(token)].nodes

    def revoke(self, token: str) -> None:
        with grants.changing(self.grants) as written:
            written.entries[grants.id_of(token)].revoked = 1


class Secured:
    """The scheduler and what reaches it."""

    def __init__(self, files: Files, app: App, addresses: Addresses, tls: bool) -> None:
        self.files = files
        self.app = app
        self.addresses = addresses
        self.tls = tls
        self.agents: list[tuple[AgentApp, asyncio.Task[int]]] = []

    @property
    def access(self) -> Any:
        return self.app._guard.access

    @property
    def gate(self) -> Any:
        return self.app._guard.gate

    @property
    def refusals(self) -> Refusals:
        found: Refusals = self.app._guard.refusals
        return found

    @property
    def state(self) -> Any:
        return self.app.driver.scheduler.state

    def channel(
        self, port: str, *, certificate: str = "", ca: bytes | None = None
    ) -> grpc.aio.Channel:
        address = getattr(self.addresses, port)
        if not self.tls:
            return grpc.aio.insecure_channel(address)
        key, chain = self.files.pair(certificate) if certificate else (None, None)
        credentials = grpc.ssl_channel_credentials(ca or self.files.ca, key, chain)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        return grpc.aio.secure_channel(address, credentials, options=options)

    def start_agent(
        self, node_id: str = "", *, token: str = "", certificate: str = "", **options: Any
    ) -> AgentApp:
        scheduler: dict[str, Any] = {"address": self.addresses.node}
        if self.tls:
            scheduler["tls"] = {"authority": str(self.files.folder / "ca.pem")}
        if certificate:
            for name in ("certificate", "key"):
                suffix = "pem" if name == "certificate" else "key"
                scheduler["tls"][name] = str(self.files.folder / f"{certificate}.{suffix}")
        if token:
            path = self.files.folder / f"token-{grants.id_of(token)}"
            write_secret(path, token.encode())
            scheduler["token_file"] = str(path)
        flags = {
            "node_id": node_id,
            "scheduler": scheduler,
            "reconnect": {"first": "20ms", "longest": "100ms"},
            "engines": [{"kind": "simulated", "models": [MODEL], **options}],
        }
        loaded = agent_sources.load(path=None, environ=NO_HOME, flags=flags)
        engine = build_engine(
            engine_id="simulated", kind="simulated", options={"models": [MODEL], **options}
        )
        probe = FixedProbe(HardwareSample(cpu_utilization=0.5, memory_utilization=0.25))
        app = AgentApp(
            loaded,
            {"simulated": engine},
            environ={},
            make_probe=lambda: probe,
            say=lambda _line: None,
        )
        self.agents.append((app, asyncio.create_task(app.run())))
        return app

    async def joined(self, node_id: str) -> None:
        await until(lambda: node_id in self.state.nodes and self.state.nodes[node_id].alive)

    async def close(self) -> None:
        for app, task in self.agents:
            if not task.done():
                app.on_signal(signal.SIGTERM)
                app.on_signal(signal.SIGTERM)
        await asyncio.gather(*(task for _, task in self.agents))
        await self.app.stop()


@asynccontextmanager
async def secured(
    folder: Path, *settings: str, tls: bool = True, auth: bool = True, files: Files | None = None
) -> AsyncIterator[Secured]:
    """Serve. `settings`: more of the scheduler's configuration, as "section.key=value"."""
    files = files or Files(folder)
    flags = [f"listen.{kind}_port=0" for kind in ("client", "node", "admin", "http")]
    flags.append("shutdown_grace=0")
    if tls:
        flags += [
            f"tls.certificate={folder}/scheduler.pem",
            f"tls.key={folder}/scheduler.key",
            f"tls.authority={folder}/ca.pem",
        ]
    if auth:
        flags.append(f"auth.file={files.grants}")
    loaded = config_sources.load(None, environ=NO_HOME, flags=[*flags, *settings])
    app = App(loaded.config, load_identity(loaded.config.state_dir), "1.2.3")
    world = Secured(files, app, await app.start(), tls)
    try:
        yield world
    finally:
        await world.close()


async def until(condition: Callable[[], Any], within_s: float = WAIT_S) -> None:
    """Poll: what is waited for happens in files, other threads and timers."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.01)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def code_of(call: Awaitable[Any]) -> grpc.StatusCode:
    """How a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def try_method(
    channel: grpc.aio.Channel,
    method: str,
    streams: tuple[bool, bool],
    metadata: Sequence[tuple[str, str]] = (),
) -> grpc.StatusCode:
    """Call any method with one empty message; OK also stands for "it was let in and answers"."""
    kinds: dict[tuple[bool, bool], Any] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    make = kinds[streams](method)
    if streams == (False, False):
        return await code_of(make(b"", metadata=metadata, timeout=WAIT_S))
    call = make(b"", metadata=metadata) if not streams[0] else make(metadata=metadata)
    try:
        async with asyncio.timeout(1.5):
            if streams[0]:
                with_error = await code_of(call.write(b""))
                if with_error is not grpc.StatusCode.OK:
                    return await call.code()
            while await call.read() is not grpc.aio.EOF:
                return grpc.StatusCode.OK
            return await call.code()
    except TimeoutError:
        return grpc.StatusCode.OK  # it is open and waits for more
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return await call.code()
    finally:
        call.cancel()


def now() -> datetime:
    return datetime.now(UTC)
