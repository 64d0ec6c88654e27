"""What do scheduler and agent add to a direct call of an engine? Interleaved, in one session.

For 1, 8 and 64 streams at once: time to first token (p50, p99), tokens per second, and processor
time of scheduler and agent per token. The engine is a server that writes a token every 20 ms, so
that its own speed does not vary; `--url` takes a real one.

    python -m benchmarks.engine_overhead [--url http://127.0.0.1:8000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from batchyard import AsyncClient
from benchmarks.processes import Child, Cores, child, pin

STREAMS = (1, 8, 64)
TOKENS = 50
PROMPT = "benchmark"


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

    def __init__(self, session: aiohttp.ClientSession, model: str) -> None:
        self._session = session
        self._model = model

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
            async for line in response.content:
                if b'"content"' not in line:
                    continue
                if first:
                    run.first_s.append(time.perf_counter() - began)
                    first = False
                run.tokens += 1


class Scheduled:
    """The same, through scheduler and agent."""

    def __init__(self, client: AsyncClient, model: str) -> None:
        self._client = client
        self._model = model

    async def stream(self, run: Run) -> None:
        """Read one stream."""
        began, first = time.perf_counter(), True
        stream = self._client.stream(
            PROMPT, model=self._model, max_tokens=TOKENS, ignore_eos=self._model != "m" or None
        )
        async with stream:
            async for _ in stream:
                if first:
                    run.first_s.append(time.perf_counter() - began)
                    first = False
        run.tokens += TOKENS


async def measure(way: Direct | Scheduled, streams: int, children: dict[str, Child]) -> Run:
    """Run so many streams at once, each three times over."""
    run = Run()
    before = {name: each.cpu_s() for name, each in children.items()}
    began = time.perf_counter()

    async def chain() -> None:
        for _ in range(3):
            await way.stream(run)

    await asyncio.gather(*(chain() for _ in range(streams)))
    run.wall_s = time.perf_counter() - began
    run.cpu_s = {name: each.cpu_s() - before[name] for name, each in children.items()}
    return run


async def main(url: str, model: str, rounds: int) -> None:
    """Measure, and print a table."""
    cores = Cores.divide()
    pin(0, cores.load)
    async with AsyncExitStack() as stack:
        if not url:
            engine = await stack.enter_async_context(
                child("benchmarks.paced_server", cores=cores.load)
            )
            url = engine.ready.strip()
        ports = [f"--{kind}-port=0" for kind in ("client", "node", "admin", "http")]
        scheduler = await stack.enter_async_context(
            child("scheduler_service", *ports, "--log-format=json", cores=cores.subject)
        )
        at = scheduler.addresses
        agent = await stack.enter_async_context(
            child(
                "node_agent", "--scheduler", at["node"], "--engine", "openai", "--url", url,
                "--engine-option", "slots=64", cores=cores.subject,
            )
        )  # fmt: skip
        client = await stack.enter_async_context(AsyncClient(at["client"]))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))
        )
        ways = {"direct": Direct(session, model), "scheduled": Scheduled(client, model)}
        children = {"scheduler": scheduler, "agent": agent}
        # The engine is warming up.
        while model not in [m.model async for m in client.list_models()]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await measure(ways["scheduled"], 4, children)  # everything is loaded and connected
        sys.stdout.write(
            "| streams | first token direct p50/p99 | scheduled p50/p99 | added p50/p99 "
            "| throughput kept | CPU per token: scheduler, agent |\n|---|---|---|---|---|---|\n"
        )
        for streams in STREAMS:
            runs: dict[str, list[Run]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, way in ways.items():
                    runs[name].append(await measure(way, streams, children))
            sys.stdout.write(_row(streams, runs["direct"], runs["scheduled"]))
            sys.stdout.flush()


def _row(streams: int, direct: list[Run], scheduled: list[Run]) -> str:
    ours, theirs = _first(scheduled), _first(direct)
    kept = statistics.median(b.rate / a.rate for a, b in zip(direct, scheduled, strict=True))
    tokens = sum(run.tokens for run in scheduled)
    costs = [
        sum(run.cpu_s[name] for run in scheduled) / tokens * 1e6 for name in ("scheduler", "agent")
    ]
    return (
        f"| {streams} | {theirs[0]:.1f} / {theirs[1]:.1f} ms | {ours[0]:.1f} / {ours[1]:.1f} ms "
        f"| {ours[0] - theirs[0]:+.1f} / {ours[1] - theirs[1]:+.1f} ms | {kept:.1%} "
        f"| {costs[0]:.0f} us, {costs[1]:.0f} us |\n"
    )


def _first(runs: list[Run]) -> tuple[float, float]:
    """Median and 99th percentile of the time to first token, in milliseconds."""
    times = sorted(t * 1e3 for run in runs for t in run.first_s)
    return statistics.median(times), times[min(len(times) - 1, int(0.99 * len(times)))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="")
    parser.add_argument("--model", default="m")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(main(options.url, options.model, options.rounds))
