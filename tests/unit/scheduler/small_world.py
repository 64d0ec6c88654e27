"""A real core and driver with a clock in hand, and agents that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from scheduler_service.clock import Clock
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core.commands import CancelAttempts, Command, FinishRequest
from scheduler_service.core.events import (
    CreditsGranted,
    Event,
    ItemEnd,
    ItemsFinished,
    NodeJoined,
    NodesHeard,
)
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import EngineMode, Reason
from scheduler_service.core.records import Record
from scheduler_service.core.types import SECOND, EngineSpec, ModelSpec, Node, NodeSpec, Request
from scheduler_service.driver import Driver
from scheduler_service.eventlog import WATCH_BUFFER, EventFilter, EventLog, Watcher
from scheduler_service.policies import build
from scheduler_service.report.statistics import Statistics

EPOCH_NS = 1_700_000_000 * SECOND  # wall time of instant 0


class HandClock(Clock):
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.instant = 1_000 * SECOND

    def now(self) -> int:
        return self.instant

    def wall_ns(self, instant: int) -> int:
        return EPOCH_NS + instant


class NotedLog(EventLog):
    """Tells when readers come and go."""

    def __init__(self, happened: asyncio.Event) -> None:
        super().__init__(term=3)
        self._happened = happened

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def watch(
        self, wanted: EventFilter, *, after: int | None = None, capacity: int = WATCH_BUFFER
    ) -> Watcher:
        self._happened.set()
        return super().watch(wanted, after=after, capacity=capacity)

    def unwatch(self, watcher: Watcher) -> None:
        super().unwatch(watcher)
        self._happened.set()


class SmallWorld:
    """Made on a running loop."""

    def __init__(
        self, settings: CoreSettings | None = None, policies: PolicySet | None = None
    ) -> None:
        self.clock = HandClock()
        self._settings = settings or CoreSettings(check_every=1)
        self._policies = policies or build()
        self.commands: list[Command] = []
        self.records: list[Record] = []
        self._happened = asyncio.Event()
        self.eventlog = NotedLog(self._happened)
        self.statistics = Statistics(self.clock, window=60 * SECOND)
        self.driver = Driver(
            self.new_scheduler(),
            clock=self.clock,
            execute=self._execute,
            observers=[self.records.extend, self.eventlog, self.statistics, self._turned],
            on_fault=self._on_fault,
        )
        self.fault: BaseException | None = None
        self._rid = 0
        self._epoch = 0
        self.statistics.start(self.driver)
        self.statistics.stop()  # sampled by hand, as time is

    def new_scheduler(self) -> Scheduler:
        return Scheduler(self._settings, self._policies)

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, FinishRequest):
                command.request.context = None  # as the edge does
            if isinstance(command, CancelAttempts):
                items = [ItemEnd(i, command.reason) for i in command.dispatch_ids]
                self.driver.post(ItemsFinished(command.node_id, command.epoch, items))
        self.commands += commands

    def _turned(self, _records: Sequence[Record]) -> None:
        self._happened.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that happens here makes the condition true."""
        async with asyncio.timeout(5):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    def _on_fault(self, fault: BaseException) -> Scheduler:
        self.fault = fault
        return self.new_scheduler()

    async def post(self, *events: Event) -> None:
        """Let it happen, and let the core come to rest."""
        for event in events:
            self.driver.post(event)
        for _ in range(100):
            if not (self.driver._inbox or self.driver._turn_due):
                break
            await asyncio.sleep(0)
        assert self.fault is None, self.fault

    async def join(
        self,
        node_id: str = "n0",
        *,
        models: Sequence[str] = ("m",),
        slots: int = 1,
        mode: EngineMode = EngineMode.CONTINUOUS,
        credit: int = 1_000_000,
        **fields: Any,
    ) -> Node:
        """An agent with one engine says hello."""
        self._epoch += 1
        specs = tuple(ModelSpec(name) for name in models)
        spec = NodeSpec((EngineSpec("e0", mode, slots, models=specs),), **fields)
        boot_id = f"boot-{self._epoch}"
        await self.post(
            NodeJoined(node_id, boot_id, self._epoch, spec),
            CreditsGranted(node_id, self._epoch, [("e0", credit, None)]),
        )
        return self.nodes[node_id]

    @property
    def nodes(self) -> dict[str, Node]:
        return self.driver.scheduler.state.nodes

    async def submit(self, count: int = 1, **fields: Any) -> list[Request]:
        """So many requests arrive at once."""
        requests = []
        for _ in range(count):
            self._rid += 1
            known: dict[str, Any] = {"model": "m", "received_at": self.clock.now(), **fields}
            known.setdefault("request_id", f"r{self._rid}")
            requests.append(Request(self._rid, **known))
            self.driver.submit(requests[-1])
        await self.post()
        return requests

    async def finish(self, *requests: Request, reason: Reason = Reason.NONE, **end: Any) -> None:
        """Their nodes answer."""
        for request in requests:
            (attempt,) = request.live.values()
            node = attempt.node
            item = ItemEnd(attempt.dispatch_id, reason, **end)
            await self.post(ItemsFinished(node.node_id, node.epoch, [item]))

    async def pass_time(self, seconds: float, *, silent: Sequence[str] = ()) -> None:
        """Second after second: agents live, samples are taken."""
        left = round(seconds * SECOND)
        while left > 0:
            step = min(SECOND, left)
            left -= step
            self.clock.instant += step
            alive = [(n.node_id, n.epoch) for n in self.nodes.values() if n.node_id not in silent]
            await self.post(NodesHeard([pair for pair in alive if self.nodes[pair[0]].alive]))
            self.statistics.sample()
