"""A run: faults against steady load, then quiet, then the verdict.

python -m tests.chaos --minutes 10 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from batchyard import AsyncClient
from batchyard.errors import BatchyardError
from batchyard.v1 import RequestState
from tests.chaos.checker import Verdict, check
from tests.chaos.clients import Clients
from tests.chaos.faults import Faults, nothing_left_broken
from tests.chaos.history import History
from tests.chaos.job_clients import JobClients
from tests.chaos.plan import NODES, Fault, draw
from tests.chaos.site import Site, name_nodes

QUIET_S = 60.0  # in which all gauges must be back at zero
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is. The same seed draws the same faults and the same requests.

    `nodes`: those whose engine is simulated, in the agent; `servers` and `functions`: those whose
    engine is a server, or a function, in processes of its own; at least one of each.
    """

    seed: int = 1
    seconds: float = 60.0
    nodes: int = 4
    servers: int = 1
    functions: int = 1
    callers: int = 12
    history: Path | None = None
    """Where to write the history; None: nowhere."""


@dataclass
class Outcome:
    """What came of it. `faults`: those that were made, by kind."""

    settings: Settings
    verdict: Verdict
    faults: Counter[str]
    deaths: int

    def line(self) -> str:
        """The counts, in one line."""
        done, counts = self.faults, self.verdict.counts
        others = ", ".join(
            f"{done[name]} {name.replace('_', ' ')}"
            for name in ("slow_node", "disk_full", "clock_jump", "clock_jump_node", "garbage",
                         "stale_speaker")
        )  # fmt: skip
        return (
            f"chaos seed {self.settings.seed}, {self.settings.seconds:.0f} s:"
            f" {self.deaths} deaths of nodes ({done['kill_node']} kills),"
            f" {done['kill_scheduler']} scheduler kills,"
            f" {done['kill_engine']} engine kills, {done['freeze_engine']} engine freezes,"
            f" {done['garble_engine']} garbled engines,"
            f" {done['freeze_node'] + done['freeze_scheduler']} freezes,"
            f" {done['cut_node'] + done['cut_clients']} cuts,"
            f" {done['blackhole_node']} black holes, {others};"
            f" {counts['calls']} calls ({counts['ok']} ok, {counts['failed']} failed,"
            f" {counts['unknown']} unknown, {counts['asked again']} asked again),"
            f" {counts['jobs']} jobs of {counts['items']} items ({counts['lost items']} lost);"
            f" {len(self.verdict.findings)} findings"
        )


async def run(settings: Settings) -> Outcome:
    """Do all of it; the processes are gone when it returns."""
    history = History()
    groups = name_nodes(settings.nodes, settings.servers, settings.functions)
    plan = draw(settings.seed, settings.seconds, groups)
    with tempfile.TemporaryDirectory() as folder:
        async with Site.running(history, Path(folder), groups[NODES]) as site:
            await _quiet(site, "start")
            faults = await _under_load(site, settings, plan)
            await _quiet(site, "end")
        if settings.history is not None:
            history.write(settings.history)
    return Outcome(settings, check(history.events), faults.done, site.deaths)


async def _under_load(site: Site, settings: Settings, plan: list[Fault]) -> Faults:
    faults = Faults(site, settings.seed)
    client = AsyncClient(site.client_link.address)
    clients = Clients(client, site.history, settings.seed)
    jobs = JobClients(client, site.history, settings.seed)
    watch = asyncio.create_task(_watch(site, client))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(clients.run(settings.callers))
            group.create_task(jobs.run())
            async with nothing_left_broken(site):
                await faults.run(plan)
            clients.stop.set()
            jobs.stop.set()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await client.close()
    return faults


async def _watch(site: Site, client: AsyncClient) -> None:
    """Note sessions and terms, and gather ids for those who speak of stale ones."""
    term = 0
    while True:
        try:
            info = await client.server_info()
            if info.term != term:
                term = info.term
                site.history.note("term", "seen", term=term)
            async for node in site.admin.nodes():
                site.history.note(
                    f"node {node.node_id}", "seen", epoch=node.session_epoch, term=term
                )
            async for request in site.admin.requests():
                site.stale_ids.update(request.live_dispatch_ids)
        except BatchyardError:
            pass
        await asyncio.sleep(LOOK_S)


async def _quiet(site: Site, when: str) -> None:
    """Wait until all nodes can work and nothing is in use; what is not so in the end, is noted."""
    left: dict[str, object] = {"report": "none"}
    try:
        async with asyncio.timeout(QUIET_S):
            while left:
                try:
                    left = await _left(site)
                except BatchyardError as error:
                    left = {"report": str(error)}
                if left:
                    await asyncio.sleep(LOOK_S)
    except TimeoutError:
        pass
    site.history.note("gauges", when, **left)


async def _left(site: Site) -> dict[str, object]:
    report = await site.admin.report()
    nodes = [node async for node in site.admin.nodes() if node.node_id != "ghost"]
    live = [
        request.request_id
        async for request in site.admin.requests()
        if request.live_dispatch_ids or request.state != RequestState.REQUEST_STATE_FINISHED
    ]
    held = [
        number
        for node in nodes
        for engine in node.report.engines
        for number in (*engine.running_dispatch_ids, *engine.waiting_dispatch_ids)
    ]
    shown: dict[str, object] = {
        "queue": report.queue_size,
        "backlog": report.backlog,
        "running": sum(node.running for node in report.nodes),
        "in flight": sum(ledger.in_flight for node in nodes for ledger in node.ledgers),
        "nodes away": sorted(set(site.nodes) - {n.node_id for n in nodes if n.summary.can_accept}),
        "live requests": live[:10],
        "held by agents": held[:10],
    }
    return {name: value for name, value in shown.items() if value}


def main() -> int:
    """Returns 1 where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=4, help="with the simulated engine")
    parser.add_argument("--servers", type=int, default=1, help="nodes whose engine is a server")
    parser.add_argument("--functions", type=int, default=1, help="nodes with the engine python")
    parser.add_argument("--callers", type=int, default=12)
    parser.add_argument("--history", type=Path, help="write the history there, as JSON lines")
    given = parser.parse_args()
    settings = Settings(
        given.seed, given.minutes * 60, given.nodes, given.servers, given.functions,
        given.callers, given.history,
    )  # fmt: skip
    outcome = asyncio.run(run(settings))
    for finding in outcome.verdict.findings:
        print("FOUND", finding)
    for name, count in sorted(outcome.verdict.counts.items()):
        print(f"{count:8} {name}")
    print(outcome.line())
    return 1 if outcome.verdict.findings else 0
