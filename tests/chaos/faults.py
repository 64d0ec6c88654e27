"""How is each fault of the plan made, and ended again?"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

import psutil

from tests.chaos.engine_server import GARBLING_S
from tests.chaos.plan import CLIENTS, SCHEDULER, Fault
from tests.chaos.site import Site
from tests.chaos.stale import speak_of_stale_ids
from tests.integration.cluster import PORTS, Process

OUTLIVE_S = 15.0  # by which engines of a dead agent must be gone
LOOK_S = 0.1


class Faults:
    """Carries out a plan. Of one target, one fault is made at a time; `done` counts them."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.done: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, plan: list[Fault]) -> None:
        """Returns when the last one is over."""
        start = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                left_s = start + fault.at_s - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, left_s))
                group.create_task(self._make(fault))

    async def _make(self, fault: Fault) -> None:
        async with self._turns[fault.target]:
            made = await getattr(self, f"_{fault.name}")(fault.target, fault.hold_s)
            self.done[fault.name] += made is not False

    def _process(self, target: str) -> Process | None:
        if target == SCHEDULER:
            return self.site.scheduler
        return self.site.agents.get(target)

    async def _kill_node(self, target: str, hold_s: float) -> bool:
        process = self._process(target)
        if process is None or process.process.returncode is not None:
            return False
        self.site.pause_s[target] = hold_s
        engines = self.site.engines(target)
        process.signal(signal.SIGKILL)
        await process.process.wait()
        await self._gone(target, engines)
        return True

    async def _gone(self, target: str, engines: list[psutil.Process]) -> None:
        """No engine outlives its agent."""
        for _ in range(round(OUTLIVE_S / LOOK_S)):
            if not any(map(_lives, engines)):
                return
            await asyncio.sleep(LOOK_S)
        left = [engine.pid for engine in engines if _lives(engine)]
        self.site.history.note("gauges", "end", **{f"engines without {target}": left})

    async def _kill_engine(self, target: str, _hold_s: float) -> bool:
        """One process of the engine; its agent lives on."""
        engines = self.site.engines(target)
        return bool(engines) and _send(self._dice.choice(engines), signal.SIGKILL)

    async def _freeze_engine(self, target: str, hold_s: float) -> bool:
        engines = self.site.engines(target)
        frozen = [engine for engine in engines if _send(engine, signal.SIGSTOP)]
        await asyncio.sleep(hold_s)
        for engine in frozen:
            _send(engine, signal.SIGCONT)
        return bool(frozen)

    async def _garble_engine(self, target: str, _hold_s: float) -> bool:
        garbling = [e for e in self.site.engines(target) if _send(e, signal.SIGUSR1)]
        await asyncio.sleep(GARBLING_S)
        return bool(garbling)

    async def _kill_scheduler(self, _target: str, hold_s: float) -> None:
        await self.site.restart_scheduler(hold_s)

    async def _freeze_node(self, target: str, hold_s: float) -> bool:
        process = self._process(target)
        if process is None or process.process.returncode is not None:
            return False
        process.signal(signal.SIGSTOP)
        await asyncio.sleep(hold_s)
        process.signal(signal.SIGCONT)
        return True

    _freeze_scheduler = _freeze_node

    async def _cut_node(self, target: str, _hold_s: float) -> bool:
        return self.site.links[target].cut() > 0

    async def _cut_clients(self, target: str, _hold_s: float) -> bool:
        assert target == CLIENTS
        return self.site.client_link.cut() > 0

    async def _blackhole_node(self, target: str, hold_s: float) -> None:
        self.site.links[target].up.clear()
        await asyncio.sleep(hold_s)
        self.site.links[target].up.set()

    async def _slow_node(self, target: str, hold_s: float) -> None:
        self.site.links[target].delay_s = 0.2
        await asyncio.sleep(hold_s)
        self.site.links[target].delay_s = 0.0

    async def _disk_full(self, target: str, hold_s: float) -> None:
        """No file of the scheduler can grow: writes fail as on a full disk."""
        process = self._process(target)
        assert process is not None
        _set_file_limit(process.pid, 4096)
        await asyncio.sleep(hold_s)
        _set_file_limit(process.pid, resource.RLIM_INFINITY)

    async def _clock_jump(self, target: str, hold_s: float) -> bool:
        process = self._process(target)
        if process is None or not process.ready.done() or process.process.returncode is not None:
            return False
        there, back = self._dice.sample([signal.SIGUSR1, signal.SIGUSR2], 2)
        process.signal(there)
        await asyncio.sleep(hold_s)
        process.signal(back)
        return True

    _clock_jump_node = _clock_jump

    async def _garbage(self, _target: str, _hold_s: float) -> None:
        """Bytes that are no protocol, at every port."""
        for kind in PORTS:
            host, _, port = str(self.site.addresses[kind]).rpartition(":")
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(self._dice.randbytes(2000))
                await writer.drain()
                writer.close()
                await writer.wait_closed()

    async def _stale_speaker(self, _target: str, _hold_s: float) -> bool:
        return await speak_of_stale_ids(self.site, self._dice)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(process: psutil.Process, number: signal.Signals) -> bool:
    """False: it has ended."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _set_file_limit(pid: int, limit: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@contextlib.asynccontextmanager
async def nothing_left_broken(site: Site) -> AsyncIterator[None]:
    """Whatever happens in the block, links are up and processes go on after it."""
    try:
        yield
    finally:
        for link in site.links.values():
            link.up.set()
            link.delay_s = 0.0
        for process in (*site.agents.values(), site.scheduler):
            process.signal(signal.SIGCONT)
        for node_id in site.agents:
            for engine in site.engines(node_id):
                _send(engine, signal.SIGCONT)
