"""The processes of a run: a scheduler, agents behind links of their own, and what they logged.

Nodes are called after their engines: `n1` is a simulated one, inside the agent; `server1` and
`function1` have engines with processes of their own. All have the same model, so that what one
leaves another goes on with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from batchyard import AsyncAdmin
from tests.chaos.history import History
from tests.chaos.plan import ENGINE_NODES, NODES, SERVER_NODES
from tests.integration.cluster import BAD_WORDS, PORTS, Process
from tests.integration.link import Link

SLOTS = 4
MODULES = ("tests.chaos.engine_server", "node_agent.engines.python_child")  # of engines' processes
GUARD = "node_agent.engines.child_guard"
_SERVER = json.dumps([sys.executable, "-m", MODULES[0], "{port}"])
_AGAIN = ("restart_delay=200ms", "restart_delay_max=1s")
ENGINES = {
    "n": ("simulated", "models=[m]", f"slots={SLOTS}", "latency=5ms", "latency_per_token=15ms"),
    "server": (
        "openai", f"command={_SERVER}", "priority=omit", f"slots={SLOTS}", "poll_interval=100ms",
        "stall_timeout=2s", "stall_kill=3s", "trial_interval=1s", *_AGAIN,
    ),
    "function": (
        "python", "callable=tests.chaos.marked_text:answer_batch", "model=m", "workers=2",
        f"max_batch_size={SLOTS}", "batch_timeout=5s", *_AGAIN,
    ),
}  # fmt: skip
SETTINGS = (
    "shutdown_grace=3s",
    "failover.max_attempts=10",
    "timeouts.first_output=4s",
    "timeouts.idle=4s",
    "timeouts.total=20s",
    "health.eject_base=1s",
    "health.warm_up=1s",
    "report.window=1m",
)


def name_nodes(simulated: int, servers: int, functions: int) -> dict[str, list[str]]:
    """Return the nodes of each group that faults are drawn for."""
    counts = {"n": simulated, "server": servers, "function": functions}
    names = {kind: [f"{kind}{i + 1}" for i in range(count)] for kind, count in counts.items()}
    engines = names["server"] + names["function"]
    return {NODES: names["n"] + engines, ENGINE_NODES: engines, SERVER_NODES: names["server"]}


class Site:
    """Nodes are started again by themselves when they end; the scheduler by whoever ends it."""

    def __init__(self, history: History, folder: Path, nodes: list[str]) -> None:
        self.history = history
        self.folder = folder
        self.nodes = nodes
        self.agents: dict[str, Process] = {}
        self.links: dict[str, Link] = {}
        self.pause_s: dict[str, float] = {}  # before a dead node's next start
        self.deaths = 0  # of nodes, whatever killed them
        self.stale_ids: set[int] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._closing = False

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, history: History, folder: Path, nodes: list[str]) -> AsyncIterator[Site]:
        site = cls(history, folder, nodes)
        try:
            async with AsyncExitStack() as stack:
                await site._start(stack)
                yield site
                await site._close()
        finally:
            await site._close()

    async def _start(self, stack: AsyncExitStack) -> None:
        self.scheduler = await self._scheduler(dict.fromkeys(PORTS, "0"))
        self.addresses = await self.scheduler.until_ready()
        self.client_link = await stack.enter_async_context(Link.to(self.addresses["client"]))
        self.admin = AsyncAdmin(self.addresses["admin"])
        for node_id in self.nodes:
            link = await stack.enter_async_context(Link.to(self.addresses["node"]))
            self.links[node_id] = link
            self._keepers.append(asyncio.create_task(self._keep(node_id)))

    def engines(self, node_id: str) -> list[psutil.Process]:
        """The processes of a node's engine that run now, without the guards of servers."""
        try:
            children = psutil.Process(self.agents[node_id].pid).children(recursive=True)
        except (KeyError, psutil.NoSuchProcess):
            return []
        return [child for child in children if _is_engine(child)]

    async def _scheduler(self, ports: dict[str, str]) -> Process:
        settings = [a for s in (f"state_dir={self.folder}", *SETTINGS) for a in ("--set", s)]
        given = [f"--{kind}-port={port}" for kind, port in ports.items()]
        return await Process.start(
            "scheduler", "tests.chaos.jumping_clock", "scheduler_service", *given, *settings
        )

    async def restart_scheduler(self, pause_s: float) -> None:
        """SIGKILL, and after the pause another one at the same addresses."""
        self.scheduler.signal(signal.SIGKILL)
        self.history.life += 1
        await self._ended(self.scheduler)
        await asyncio.sleep(pause_s)
        ports = {kind: str(self.addresses[kind]).rpartition(":")[2] for kind in PORTS}
        self.scheduler = await self._scheduler(ports)
        await self.scheduler.until_ready()

    async def _keep(self, node_id: str) -> None:
        kind, *options = ENGINES[node_id.rstrip("0123456789")]
        while not self._closing:
            process = await Process.start(
                node_id, "tests.chaos.jumping_clock", "node_agent",
                "--scheduler", self.links[node_id].address, "--node-id", node_id,
                "--engine", kind, *(a for o in options for a in ("--engine-option", o)),
            )  # fmt: skip
            self.agents[node_id] = process
            await process.process.wait()
            await self._ended(process)
            if not self._closing:
                self.deaths += 1
                await asyncio.sleep(self.pause_s.pop(node_id, 0.0))

    async def _ended(self, process: Process) -> None:
        """Keep what is bad in its log; the rest is let go."""
        await process.end()
        for line in process.lines:
            if any(word in line for word in BAD_WORDS):
                where = process.lines.index(line)
                text = "\n    ".join(process.lines[where : where + 40])
                self.history.note("logs", "bad", line=f"{process.name} (pid {process.pid}): {text}")
                break

    async def _close(self) -> None:
        if self._closing:
            return
        self._closing = True
        await self.admin.close()
        for process in self.agents.values():
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        await asyncio.gather(*self._keepers)
        await self._ended(self.scheduler)


def _is_engine(process: psutil.Process) -> bool:
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return GUARD not in command and any(module in command for module in MODULES)
