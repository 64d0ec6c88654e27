"""The process tree: starts it in order, watches it, and stops it in order.

start   scheduler -> ready -> agents (all at once) -> ready
run     an agent that ends is told and the rest goes on (that is what failover is for);
        the scheduler's end stops the tree
stop    agents SIGTERM (drain) -> scheduler SIGTERM -> whatever is left SIGKILL, each bounded
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchyard.cli.dev.child import Child, LogSink
from batchyard.cli.dev.ports import HOST, Ports
from batchyard.cli.failures import CliError

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
        """Start it and wait until it serves."""
        arguments = ["-c", str(self.scheduler_config), *self.ports.flags()]
        arguments += ["--log-level", self.log_level, "--exit-with-stdin"]
        child = await Child.start("scheduler", "scheduler_service", arguments, on_line=self.on_line)
        self.scheduler = child
        self.scheduler_ready = await self._until_ready(child, SCHEDULER_READY_S)

    async def start_agents(self, specs: Sequence[AgentSpec]) -> None:
        """Start them side by side and wait until every session is up."""
        for spec in specs:
            await self.start_agent(spec)
        started = [self.agents[spec.node_id] for spec in specs]
        await asyncio.gather(*(self._until_ready(child, AGENT_READY_S) for child in started))

    async def start_agent(self, spec: AgentSpec) -> Child:
        """Start one agent and do not wait for it."""
        arguments = ["-c", str(spec.config), "--node-id", spec.node_id]
        arguments += ["--scheduler", f"{HOST}:{self.ports.node}", "--exit-with-stdin"]
        child = await Child.start(spec.node_id, "node_agent", arguments, on_line=self.on_line)
        self.agents[spec.node_id] = child
        return child

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
        if event is not None:
            return event
        end = child.end_text() if not child.alive else f"was not ready within {timeout_s:.0f}s"
        tail = "\n       ".join(list(child.log)[-LOG_LINES_SHOWN:]) or "it wrote nothing"
        raise CliError(f"the {child.name} {end}", why=tail, next_step="batchyard dev --verbose")

    def _tell_end(self, child: Child) -> None:
        left = sum(agent.alive for agent in self.agents.values())
        self.on_line("dev", f"agent {child.name} {child.end_text()}; {left} left")

    def _children(self) -> list[Child]:
        return [*self.agents.values(), *([self.scheduler] if self.scheduler else [])]
