"""`batchyard dev`: everything on this machine, in one process tree."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from batchyard.cli.dev import engines, files
from batchyard.cli.dev.ports import DEFAULT_BASE, HOST, Ports, require_free
from batchyard.cli.dev.tree import Tree
from batchyard.cli.failures import FAILURE, INTERRUPTED, OK
from batchyard.cli.installed import require_services
from batchyard.cli.options import output_option, pass_settings
from batchyard.cli.output import emit_line
from batchyard.cli.settings import Settings


@click.command()
@click.option(
    "--agents", type=click.IntRange(1, 64), default=2, show_default=True, help="How many."
)
@click.option("--autoscale", is_flag=True, help="Let the scheduler start and drain the agents.")
@click.option("--min", "minimum", type=click.IntRange(0, 64), help="Fewest agents. [default: 1]")
@click.option("--max", "maximum", type=click.IntRange(1, 64), help="Most agents. [default: 4]")
@click.option(
    "--engine",
    type=click.Choice(["simulated", "llamacpp"]),
    help="What answers. [default: llamacpp with the small model if installed, else simulated]",
)
@click.option(
    "--port-base",
    type=click.IntRange(1024, 65532),
    default=DEFAULT_BASE,
    show_default=True,
    help="HTTP here; clients, nodes and administration on the next three ports.",
)
@click.option("--verbose", is_flag=True, help="Show the logs of every process.")
@output_option
@pass_settings
def dev(
    settings: Settings,
    agents: int,
    autoscale: bool,
    minimum: int | None,
    maximum: int | None,
    engine: str | None,
    port_base: int,
    verbose: bool,
) -> int:
    """Start a scheduler and agents on this machine, to try things; Ctrl-C stops them all."""
    if not autoscale and (minimum is not None or maximum is not None):
        raise click.UsageError("--min and --max need --autoscale")
    bounds = (1 if minimum is None else minimum, 4 if maximum is None else maximum)
    if bounds[0] > bounds[1]:
        raise click.UsageError(f"--min {bounds[0]} is above --max {bounds[1]}")
    require_services("scheduler_service", "node_agent")
    choice = engines.choose(engine)
    ports = Ports(port_base)
    require_free(ports)
    with tempfile.TemporaryDirectory(prefix="batchyard-dev-") as folder:
        plan = files.write(
            Path(folder), choice, agents=agents, autoscale=bounds if autoscale else None
        )
        return asyncio.run(_Dev(settings, plan, ports, verbose=verbose).run())


class _Dev:
    """One run of `dev`: what is printed, and when it stops."""

    def __init__(
        self, settings: Settings, plan: files.Plan, ports: Ports, *, verbose: bool
    ) -> None:
        self.json = settings.output == "json"
        self.plan = plan
        self.ports = ports
        self.verbose = verbose
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.exit_code = OK
        self.nodes: list[str] = []

    async def run(self) -> int:
        self._listen_for_signals()
        tree = Tree(
            ports=self.ports,
            scheduler_config=self.plan.scheduler,
            on_line=self._on_line,
            log_level="info" if self.verbose else "warning",
        )
        try:
            if await self._start(tree):
                self._announce(tree)
                ended = await tree.watch(self.stop)
                if ended is not None:
                    self.exit_code = FAILURE
                    self._say("\n".join([f"the scheduler {ended.end_text()}", *ended.log]))
        finally:
            self._say("stopping: agents finish or hand over their work (Ctrl-C again: at once)")
            if not await tree.stop(self.hurry):
                self._say("some processes had to be killed")
        return self.exit_code

    async def _start(self, tree: Tree) -> bool:
        """Start everything; False when a signal came first."""
        starting = asyncio.create_task(self._start_all(tree))
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            return False
        starting.result()
        return True

    async def _start_all(self, tree: Tree) -> None:
        choice = self.plan.choice
        self._say(f"engine: {choice.kind}, model {choice.model} ({choice.reason})")
        self._say("starting the scheduler")
        await tree.start_scheduler()
        low, high = self.plan.autoscale or (len(self.plan.agents), 0)
        if self.plan.autoscale:
            self._say(f"the scheduler starts the agents: {low} now, at most {high}")
        else:
            self._say(f"starting {low} agents")
            for spec in self.plan.agents:
                await tree.start_agent(spec)
        self.nodes = await tree.until_healthy(low) if low else []

    def _announce(self, tree: Tree) -> None:
        if self.json:
            emit_line(
                {
                    "event": "ready",
                    **{name: f"{HOST}:{port}" for name, port in self.ports.all().items()},
                    "engine": self.plan.choice.kind,
                    "model": self.plan.choice.model,
                    "nodes": self.nodes,
                    "pids": tree.pids(),
                }
            )
            return
        print(ready_text(self.ports, self.nodes), flush=True)

    def _on_line(self, name: str, line: str) -> None:
        """Logs of the children: prefixed with --verbose, kept for errors without."""
        if name == "dev":
            self._say(line)
        elif self.verbose:
            print(f"{name:<10} | {line}", file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        """Progress: to standard output for people, away from it for programs."""
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_signal, INTERRUPTED)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, OK)

    def _on_signal(self, exit_code: int) -> None:
        if self.stop.is_set():
            self.hurry.set()
        self.exit_code = exit_code
        self.stop.set()


def ready_text(ports: Ports, nodes: list[str]) -> str:
    """Where it is, and what to try."""
    lines = [
        "",
        "Batchyard is running." + (f" Nodes: {', '.join(nodes)}" if nodes else ""),
        f"  clients  {HOST}:{ports.client}",
        f"  nodes    {HOST}:{ports.node}",
        f"  admin    {HOST}:{ports.admin}",
        f"  http     http://{HOST}:{ports.http}",
        "",
        "Next, in another terminal:",
    ]
    if ports.base != DEFAULT_BASE:
        lines.append(f"  export BATCHYARD_ADDRESS={HOST}:{ports.client}")
    program = _as_typed()
    lines += [
        f'  {program} run "Why is the sky blue?" --stream',
        f"  {program} status --watch",
        "Ctrl-C stops it all.",
    ]
    return "\n".join(lines)


def _as_typed() -> str:
    """What another terminal can type for `batchyard`: its path, where it is not on PATH."""
    if shutil.which("batchyard") or Path(sys.argv[0]).name != "batchyard":
        return "batchyard"
    return shlex.quote(sys.argv[0])
