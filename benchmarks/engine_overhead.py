"""What do scheduler and agent add to a direct call of an engine? Interleaved, in one session.

For 1, 8 and 64 streams at once: time to first token (p50, p99), tokens per second, and processor
time of scheduler and agent per token. Three engines:

    paced      writes a token every 20 ms, so that its own speed does not vary; it shares a core
               with the load, scheduler and agent have the other
    llamacpp   llama.cpp's server with the small real model (make model), one thread: it has a core
               of its own, all else shares the other
    --url      a server that runs, on cores that whoever started it chose

The rate hangs on what else runs on the machine; the engine's processor time per token does so much
less. Each number of streams is tried once before it counts, for a prompt that an engine has read
before costs it less.

    python -m benchmarks.engine_overhead [--engine llamacpp | --url http://...] [--unpinned]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import psutil

from batchyard import AsyncClient
from benchmarks import machine
from benchmarks.behind import behind_scheduler
from benchmarks.processes import Child, Cores, child, pin

STREAMS = (1, 8, 64)
TURNS = {1: 5, 8: 2, 64: 1}  # of each way in a round with a real engine: short ones, often
TOKENS = 50
PROMPT = "Tell me a long story about a harbour, its ships and the people who work there."
HEAD = (
    "| streams | tokens/s direct | scheduled | kept | first token direct p50/p99 "
    "| scheduled p50/p99 | added p50/p99 | CPU per token: scheduler, agent "
    "| engine direct, scheduled |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Engine:
    """What is called, directly and through the scheduler."""

    url: str
    model: str
    real: bool  # it may end where it likes, unless it is told not to
    pid: int = 0  # its processor time is read, with its children's; 0: unknown

    def cpu_s(self) -> float:
        """Processor time that its processes have used so far."""
        if not self.pid:
            return 0.0
        first = psutil.Process(self.pid)
        times = [each.cpu_times() for each in (first, *first.children(recursive=True))]
        return sum(each.user + each.system for each in times)


@dataclass(slots=True)
class Run:
    """What some streams took."""

    first_s: list[float] = field(default_factory=list)
    tokens: int = 0
    wall_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.wall_s


class Direct:
    """The engine itself."""

    def __init__(self, session: aiohttp.ClientSession, engine: Engine) -> None:
        self._session = session
        self._model = engine.model

    async def stream(self, run: Run) -> None:
        """Read one stream."""
        began, first = time.perf_counter(), True
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": TOKENS,
            "stream": True,
            "ignore_eos": True,
        }
        async with self._session.post("/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if first and _has_text(line):
                    run.first_s.append(time.perf_counter() - began)
                    first = False
        run.tokens += TOKENS


def _has_text(line: bytes) -> bool:
    """Whether an event has output; servers begin with one that has the role only."""
    if not line.startswith(b"data: {"):
        return False
    choices = json.loads(line[6:]).get("choices")
    return bool(choices and choices[0]["delta"].get("content"))


class Scheduled:
    """The same, through scheduler and agent."""

    def __init__(self, client: AsyncClient, engine: Engine) -> None:
        self._client = client
        self._engine = engine

    async def stream(self, run: Run) -> None:
        """Read one stream."""
        began, first = time.perf_counter(), True
        stream = self._client.stream(
            PROMPT,
            model=self._engine.model,
            max_tokens=TOKENS,
            ignore_eos=self._engine.real or None,
        )
        async with stream:
            async for event in stream:
                if first and event.text:
                    run.first_s.append(time.perf_counter() - began)
                    first = False
        run.tokens += TOKENS


async def measure(
    way: Direct | Scheduled, streams: int, in_a_row: int, children: dict[str, Child | Engine]
) -> Run:
    """Run so many streams at once, each so many times over."""
    run = Run()
    before = {name: each.cpu_s() for name, each in children.items()}
    began = time.perf_counter()

    async def chain() -> None:
        for _ in range(in_a_row):
            await way.stream(run)

    await asyncio.gather(*(chain() for _ in range(streams)))
    run.wall_s = time.perf_counter() - began
    run.cpu_s = {name: each.cpu_s() - before[name] for name, each in children.items()}
    return run


@asynccontextmanager
async def _engine(options: argparse.Namespace, cores: Cores) -> AsyncIterator[Engine]:
    if options.url:
        yield Engine(options.url, options.model, real=True, pid=options.engine_pid)
        return
    real = options.engine == "llamacpp"
    module = "benchmarks.llamacpp_server" if real else "benchmarks.paced_server"
    async with child(module, cores=cores.load) as engine:
        yield Engine(engine.ready.strip(), "m", real=real, pid=engine.pid)


async def main(options: argparse.Namespace) -> None:
    """Measure, and print a table."""
    about = machine.describe()
    cores = Cores(frozenset(), frozenset()) if options.unpinned else Cores.divide()
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(_engine(options, cores))
        pin(0, cores.subject if engine.real else cores.load)
        client, scheduler, agent = await stack.enter_async_context(
            behind_scheduler(
                "--engine", "openai", "--url", engine.url,
                models=[engine.model], cores=cores.subject,
            )
        )  # fmt: skip
        # A new connection for each call, as the agent does: servers close those that are kept.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(engine.url, connector=connector)
        )
        ways: dict[str, Direct | Scheduled] = {
            "direct": Direct(session, engine),
            "scheduled": Scheduled(client, engine),
        }
        children: dict[str, Child | Engine] = {
            "scheduler": scheduler, "agent": agent, "engine": engine
        }  # fmt: skip
        _say(f"{about}, commit {machine.commit()}; {_places(cores, engine)}\n{HEAD}")
        for streams in options.streams:
            in_a_row, turns = (1, TURNS[streams]) if engine.real else (3, 1)
            for way in ways.values():
                await measure(way, streams, 1, children)
            runs: dict[str, list[Run]] = {name: [] for name in ways}
            for turn in range(options.rounds * turns):
                order = list(ways) if turn % 2 else list(ways)[::-1]
                for name in order:
                    runs[name].append(await measure(ways[name], streams, in_a_row, children))
            _say(_row(streams, runs["direct"], runs["scheduled"]))


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _places(cores: Cores, engine: Engine) -> str:
    if not cores.subject:
        return "not pinned"
    load = "scheduler, agent and load" if engine.real else "scheduler and agent"
    return f"{load} on cores {sorted(cores.subject)}, the rest on {sorted(cores.load)}"


def _row(streams: int, direct: list[Run], scheduled: list[Run]) -> str:
    ours, theirs = _first(scheduled), _first(direct)
    kept = statistics.median(b.rate / a.rate for a, b in zip(direct, scheduled, strict=True))
    costs = [_cost_us(scheduled, name) for name in ("scheduler", "agent")]
    costs += [_cost_us(runs, "engine") for runs in (direct, scheduled)]
    rates = [statistics.median(run.rate for run in runs) for runs in (direct, scheduled)]
    return (
        f"| {streams} | {rates[0]:.1f} | {rates[1]:.1f} | {kept:.1%} "
        f"| {theirs[0]:.1f} / {theirs[1]:.1f} ms | {ours[0]:.1f} / {ours[1]:.1f} ms "
        f"| {ours[0] - theirs[0]:+.1f} / {ours[1] - theirs[1]:+.1f} ms "
        f"| {costs[0]:.0f} us, {costs[1]:.0f} us | {costs[2]:.0f} us, {costs[3]:.0f} us |\n"
    )


def _cost_us(runs: list[Run], name: str) -> float:
    """Processor time of one of the processes per token."""
    return sum(run.cpu_s[name] for run in runs) / sum(run.tokens for run in runs) * 1e6


def _first(runs: list[Run]) -> tuple[float, float]:
    """Median and 99th percentile of the time to first token, in milliseconds."""
    times = sorted(t * 1e3 for run in runs for t in run.first_s)
    return statistics.median(times), times[min(len(times) - 1, int(0.99 * len(times)))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("paced", "llamacpp"), default="paced")
    parser.add_argument("--url", default="", help="of a server that runs, instead of --engine")
    parser.add_argument("--model", default="m", help="of the server at --url")
    parser.add_argument("--engine-pid", type=int, default=0, help="of the server at --url")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", choices=STREAMS, default=STREAMS)
    parser.add_argument("--unpinned", action="store_true")
    asyncio.run(main(parser.parse_args()))
