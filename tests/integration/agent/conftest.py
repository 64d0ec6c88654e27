"""A scripted scheduler, and an agent that runs in the test's own process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from node_agent import config_sources
from node_agent.app import App
from node_agent.core import Limits
from node_agent.engines.registry import build_engine
from node_agent.hardware import FixedProbe, HardwareSample
from tests.integration.agent.scripted_scheduler import ScriptedScheduler

RECONNECT = {"first": "20ms", "longest": "100ms"}


class RunningAgent:
    """An App as a task."""

    def __init__(self, app: App, lines: list[str]) -> None:
        self.app = app
        self.lines = lines
        self.task: asyncio.Task[int] = asyncio.create_task(app.run())

    @property
    def engine(self) -> Any:
        """The one engine."""
        return next(iter(self.app._cares.values())).engine

    async def exit_code(self) -> int:
        """Wait for the end."""
        async with asyncio.timeout(10):
            return await self.task

    async def stop(self) -> int:
        """Drain it now."""
        if not self.task.done():
            self.app.on_signal(signal.SIGTERM)
            self.app.on_signal(signal.SIGTERM)
        return await self.exit_code()


StartAgent = Callable[..., Awaitable[RunningAgent]]


@pytest.fixture
async def scheduler() -> AsyncIterator[ScriptedScheduler]:
    scripted = ScriptedScheduler()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def start_agent(scheduler: ScriptedScheduler) -> AsyncIterator[StartAgent]:
    """Starts agents with a simulated engine; keywords are its options."""
    agents: list[RunningAgent] = []

    async def start(*, environ: dict[str, str] | None = None, **options: Any) -> RunningAgent:
        flags = {
            "node_id": "n1",
            "scheduler": {"address": scheduler.address},
            "reconnect": RECONNECT,
            "drain_grace": options.pop("drain_grace", "5s"),
            "engines": [{"kind": "simulated", **options}],
        }
        loaded = config_sources.load(path=None, environ={"HOME": "/nowhere"}, flags=flags)
        engine = build_engine(engine_id="simulated", kind="simulated", options=options)
        lines: list[str] = []
        probe = FixedProbe(HardwareSample(cpu_utilization=0.5, memory_utilization=0.25))
        app = App(
            loaded,
            {"simulated": engine},
            environ=environ or {},
            make_probe=lambda: probe,
            say=lines.append,
            limits=Limits(linger_ns=50_000_000),
        )
        agents.append(RunningAgent(app, lines))
        return agents[-1]

    yield start
    for agent in agents:
        await agent.stop()
