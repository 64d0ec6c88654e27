"""A scheduler and agents as real processes on loopback, for tests of faults.

Processes are killed and stopped by their pids; every one is ended when the cluster closes, and what
they logged is kept: a traceback in any log fails the test (`Cluster.close`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from batchyard import AsyncAdmin, AsyncClient
from batchyard.errors import Unavailable

START_S = 90.0
PORTS = ("client", "node", "admin", "http")
BAD_WORDS = ("Traceback", "never retrieved", "was destroyed", "ExecuteBatchError")


class Process:
    """One child, its output collected."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._readers = [
            asyncio.create_task(self._read(process.stdout)),
            asyncio.create_task(self._read(process.stderr)),
        ]

    @classmethod
    async def start(
        cls, name: str, module: str, *arguments: str, env: dict[str, str] | None = None
    ) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        )  # fmt: skip
        return cls(name, process)

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        async for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            self.lines.append(line)
            if self.ready.done():
                continue
            if '"event": "ready"' in line:
                self.ready.set_result(json.loads(line))
            elif " is up: " in line:
                self.ready.set_result({})

    async def until_ready(self) -> dict[str, Any]:
        ended = asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait({self.ready, ended}, timeout=START_S, return_when="FIRST_COMPLETED")
            assert self.ready.done(), f"{self.name} did not start:\n" + "\n".join(self.lines)
            return self.ready.result()
        finally:
            ended.cancel()

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), 15)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.process.wait()
        await asyncio.gather(*self._readers)


class Cluster:
    """A scheduler, its agents, a client and an operator."""

    def __init__(self, scheduler: Process, addresses: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.addresses = addresses
        self.agents: dict[str, Process] = {}
        self.client = AsyncClient(addresses["client"], admin_address=addresses["admin"])
        self.env: dict[str, str] = {}
        self.settings: Sequence[str] = ()
        self.former: list[Process] = []  # schedulers of before

    @classmethod
    async def start(
        cls, *, env: dict[str, str] | None = None, settings: Sequence[str] = ()
    ) -> Cluster:
        scheduler = await _scheduler(dict.fromkeys(PORTS, "0"), settings, env)
        cluster = cls(scheduler, await scheduler.until_ready())
        cluster.env, cluster.settings = env or {}, settings
        return cluster

    async def restart_scheduler(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by that signal, and start the next one at the same addresses."""
        self.former.append(self.scheduler)
        self.scheduler.signal(number)
        await self.scheduler.process.wait()
        ports = {kind: str(self.addresses[kind]).rsplit(":", 1)[1] for kind in PORTS}
        self.scheduler = await _scheduler(ports, self.settings, self.env)
        await self.scheduler.until_ready()

    @property
    def admin(self) -> AsyncAdmin:
        return self.client.admin

    async def agent(
        self, node_id: str, *options: str, models: str = "m", role: str = "primary"
    ) -> Process:
        """Start an agent with one simulated engine; returns when it has a session."""
        engine = [f"models=[{models}]", *options]
        return await self.agent_of(
            node_id, "--role", role, "--engine", "simulated",
            *(a for o in engine for a in ("--engine-option", o)),
        )  # fmt: skip

    async def fleet(self, *node_ids: str, options: Sequence[str] = ()) -> list[Process]:
        """Start agents that are alike, all at once; returns when all have a session."""
        return await asyncio.gather(*(self.agent(node_id, *options) for node_id in node_ids))

    async def agent_of(self, node_id: str, *flags: str) -> Process:
        """Start an agent with the engines that the flags name; returns when it takes work."""
        process = await Process.start(
            node_id, "node_agent", "--scheduler", self.addresses["node"], "--node-id", node_id,
            *flags, env=self.env,
        )  # fmt: skip
        self.agents[node_id] = process
        await process.until_ready()
        await until(lambda: self.healthy(node_id))
        return process

    async def healthy(self, node_id: str) -> bool:
        try:
            nodes = [n async for n in self.admin.nodes()]
        except Unavailable:  # its channel waits before it dials a restarted scheduler again
            return False
        return any(n.summary.node_id == node_id and n.summary.can_accept for n in nodes)

    async def ended(self, node_id: str) -> bool:
        return self.agents[node_id].process.returncode is not None

    async def report(self) -> Any:
        return await self.admin.report()

    async def events(self, kind: str) -> list[Any]:
        return [e async for e in self.admin.events(events=[kind])]

    async def idle(self) -> bool:
        """Whether no request and no slot is in use anywhere."""
        report = await self.report()
        return report.queue_size == 0 and all(n.running == 0 for n in report.nodes)

    async def close(self) -> None:
        await self.client.close()
        processes = [*self.agents.values(), *self.former, self.scheduler]
        await asyncio.gather(*(p.end() for p in processes))
        bad = [
            f"{p.name}: {line}"
            for p in processes
            for line in p.lines
            if any(word in line for word in BAD_WORDS)
        ]
        assert not bad, "\n".join(bad)


async def _scheduler(
    ports: dict[str, str], settings: Sequence[str], env: dict[str, str] | None
) -> Process:
    given = [f"--{kind}-port={port}" for kind, port in ports.items()]
    arguments = [a for s in settings for a in ("--set", s)]
    return await Process.start("scheduler", "scheduler_service", *given, *arguments, env=env)


async def until(
    condition: Callable[[], Awaitable[bool]], *, within_s: float = 20.0, what: str = ""
) -> float:
    """Wait until it holds; returns the seconds that took."""
    start = time.monotonic()
    while not await condition():
        assert time.monotonic() - start < within_s, f"not within {within_s} s: {what or condition}"
        await asyncio.sleep(0.02)
    return time.monotonic() - start


@contextlib.asynccontextmanager
async def cluster(
    *, env: dict[str, str] | None = None, settings: Sequence[str] = ()
) -> AsyncIterator[Cluster]:
    """A running cluster, closed and checked at the end."""
    running = await Cluster.start(env=env, settings=settings)
    try:
        yield running
    finally:
        await running.close()
