"""The process tree: starts it in order, watches it, and stops it in order.

start   scheduler -> ready -> agents (all at once) -> the scheduler calls them healthy
run     an agent that ends is told and the rest goes on (that is what failover is for);
        the scheduler's end stops the tree
stop    agents SIGTERM (drain) -> scheduler SIGTERM -> whatever is left SIGKILL, each bounded
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchyard.cli.dev.child import Child, LogSink
from batchyard.cli.dev.ports import HOST, Ports
from batchyard.cli.failures import CliError

LOOK_S = 0.2
SCHEDULER_READY_S = 30.0
AGENT_READY_S = 120.0
AGENT_GRACE_S = 10.0
# With autoscaling the scheduler drains the agents that it started before it ends.
SCHEDULER_GRACE_S = 15.0
LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent to start."""

    node_id: str
    config: Path


@dataclass(slots=True)
class Tree:
    """A scheduler and its agents, all owned by this process."""

    ports: Ports
    scheduler_config: Path
    on_line: LogSink
    log_level: str = "info"
    scheduler: Child | None = None
    scheduler_ready: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, Child] = field(default_factory=dict)

    async def start_scheduler(self) -> None:
        """Start the scheduler and wait until it serves."""
        arguments = ["-c", str(self.scheduler_config), *self.ports.flags()]
        arguments += ["--log-level", self.log_level]
        child = await Child.start("scheduler", "scheduler_service", arguments, on_line=self.on_line)
        self.scheduler = child
        self.scheduler_ready = await self._until_ready(child, SCHEDULER_READY_S)

    def address(self, port: str) -> str:
        """Where it answers on "http", "client", "node" or "admin": its own word, once it serves."""
        return str(self.scheduler_ready.get(port) or f"{HOST}:{self.ports.all()[port]}")

    async def start_agent(self, spec: AgentSpec) -> Child:
        """Start one agent and do not wait for it."""
        arguments = ["-c", str(spec.config), "--node-id", spec.node_id]
        arguments += ["--scheduler", self.address("node")]
        child = await Child.start(spec.node_id, "node_agent", arguments, on_line=self.on_line)
        self.agents[spec.node_id] = child
        return child

    async def until_healthy(self, count: int) -> list[str]:
        """Wait until the scheduler says that so many nodes can work; their ids."""
        healthy = asyncio.create_task(self._healthy_nodes(count))
        ends = {child.exited: child for child in self._children()}
        waits: set[asyncio.Task[Any]] = {healthy, *ends}
        try:
            await asyncio.wait(waits, timeout=AGENT_READY_S, return_when=asyncio.FIRST_COMPLETED)
            ended = [child for child in ends.values() if not child.alive]
            if healthy.done() and not ended:
                return healthy.result()
        finally:
            healthy.cancel()
        raise self._failure(ended[0] if ended else self._children()[-1], AGENT_READY_S)

    async def _healthy_nodes(self, count: int) -> list[str]:
        from batchyard import AsyncAdmin, BatchyardError
        from batchyard.v1 import NodeHealth

        seen: set[str] = set()
        why = "its report ended"
        try:
            async with AsyncAdmin(self.address("admin")) as admin:
                async for report in admin.watch_report(interval=LOOK_S, omit_queues=True):
                    healthy = {
                        node.node_id
                        for node in report.nodes
                        if node.health == NodeHealth.NODE_HEALTH_HEALTHY
                    }
                    for node_id in sorted(healthy - seen):
                        self.on_line("dev", f"node {node_id} is ready")
                    seen |= healthy
                    if len(healthy) >= count:
                        return sorted(healthy)
        except BatchyardError as error:
            why = str(error)
        raise CliError(
            "the scheduler does not tell how its nodes are",
            why=why,
            next_step="batchyard dev --verbose",
        )

    async def watch(self, stop: asyncio.Event) -> Child | None:
        """Wait for `stop`; the scheduler instead, if it ended by itself. Told: agents that end."""
        assert self.scheduler is not None
        stopping = asyncio.create_task(stop.wait())
        watched = {child.exited: child for child in self.agents.values()}
        try:
            while True:
                waits = {stopping, self.scheduler.exited, *watched}
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done:
                    return None
                if self.scheduler.exited in done:
                    return self.scheduler
                for ended in done & watched.keys():
                    self._tell_end(watched.pop(ended))
        finally:
            stopping.cancel()

    async def stop(self, hurry: asyncio.Event) -> bool:
        """Stop all in order; `hurry` skips the waiting. Whether none had to be killed."""
        ordered = asyncio.create_task(self._stop_in_order())
        hurrying = asyncio.create_task(hurry.wait())
        await asyncio.wait({ordered, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        if not ordered.done():
            self.kill()
        hurrying.cancel()
        return await ordered

    def pids(self) -> dict[str, int]:
        """The process id of every child, by name."""
        return {child.name: child.process.pid for child in self._children()}

    def kill(self) -> None:
        """SIGKILL whatever lives."""
        for child in self._children():
            child.kill()

    async def _stop_in_order(self) -> bool:
        agents = [child for child in self.agents.values() if child.alive]
        results = await asyncio.gather(*(child.stop(AGENT_GRACE_S) for child in agents))
        if self.scheduler is not None and self.scheduler.alive:
            results.append(await self.scheduler.stop(SCHEDULER_GRACE_S))
        return all(results)

    async def _until_ready(self, child: Child, timeout_s: float) -> dict[str, Any]:
        event = await child.ready(timeout_s)
        if event is None:
            raise self._failure(child, timeout_s)
        return event

    def _failure(self, child: Child, timeout_s: float) -> CliError:
        end = child.end_text() if not child.alive else f"was not ready within {timeout_s:.0f}s"
        tail = "\n       ".join(list(child.log)[-LOG_LINES_SHOWN:]) or "it wrote nothing"
        return CliError(f"the {child.name} {end}", why=tail, next_step="batchyard dev --verbose")

    def _tell_end(self, child: Child) -> None:
        left = sum(agent.alive for agent in self.agents.values())
        self.on_line("dev", f"agent {child.name} {child.end_text()}; {left} left")

    def _children(self) -> list[Child]:
        return [*([self.scheduler] if self.scheduler else []), *self.agents.values()]
