"""One run: which processes are up, and how are a subject and its limit measured in turns?

    round 1   subject | limit
    round 2   limit   | subject        each round also turns the order round, so that a machine
    round 3   subject | limit          that drifts favours neither; medians are compared

One scheduler, an agent for each kind of engine, and the echo server serve all measures but those of
memory and cold start. They are started when first asked for; an agent that is done with idles.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from benchmarks.measured import Measured
from benchmarks.processes import Child, Cores, child, scheduler

# Engines, each with an agent of its own.
INSTANT, PACED, SLOW, FAST, STATIC, AHEAD = "instant", "paced", "slow", "fast", "static", "ahead"
STREAMS = 64
BATCH = 32
BATCH_S = 0.020
# An agent gathers output for 5 ms under load, so at 6 ms a token each delta has one token.
PACED_TOKEN_S, SLOW_TOKEN_S, FAST_TOKEN_S = 0.006, 0.016, 0.001

_ENGINES: dict[str, dict[str, object]] = {
    INSTANT: {"slots": 256},
    PACED: {"slots": STREAMS, "latency_per_token": f"{PACED_TOKEN_S * 1e3:g}ms"},
    SLOW: {"slots": STREAMS, "latency_per_token": f"{SLOW_TOKEN_S * 1e3:g}ms"},
    FAST: {"slots": STREAMS, "latency_per_token": f"{FAST_TOKEN_S * 1e3:g}ms"},
    STATIC: {"slots": BATCH, "mode": "static", "latency": f"{BATCH_S * 1e3:g}ms"},
    AHEAD: {
        "slots": BATCH, "mode": "static", "latency": f"{BATCH_S * 1e3:g}ms", "look_ahead": BATCH,
    },
}  # fmt: skip


@dataclass(slots=True)
class Sample:
    """One round of one side."""

    count: int  # requests, tokens or deltas
    wall_s: float
    cpu_s: float  # of the process under measurement
    preemptions: int  # likewise; many: the machine is not quiet

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time for each."""
        return self.cpu_s / self.count * 1e6

    @property
    def rate(self) -> float:
        """How many a second."""
        return self.count / self.wall_s


@dataclass(slots=True)
class Side:
    """A process and the load that it gets for so many seconds; the load returns the count."""

    process: Child
    load: Callable[[float], Awaitable[int]]

    async def sample(self, seconds: float) -> Sample:
        """One round."""
        cpu_s, preemptions = self.process.cpu_s(), self.process.preemptions()
        began = time.perf_counter()
        count = await self.load(seconds)
        if count == 0:
            raise RuntimeError(f"nothing was answered: {self.process.name} {self.process.said()}")
        return Sample(
            count,
            time.perf_counter() - began,
            self.process.cpu_s() - cpu_s,
            self.process.preemptions() - preemptions,
        )


class Bench:
    """What the measures share."""

    def __init__(
        self, *, rounds: int, round_s: float, quick: bool = False, black_hole_s: float = 60.0
    ) -> None:
        self.rounds = rounds
        self.round_s = round_s
        self.quick = quick
        self.black_hole_s = black_hole_s  # of load while a collector never answers
        self.cores = Cores.divide()
        self._up = contextlib.AsyncExitStack()
        self._scheduler: Child | None = None
        self._agents: set[str] = set()
        self._echo: Child | None = None

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._up.aclose()

    def say(self, text: str) -> None:
        """Tell a person how far it is."""
        print(text, file=sys.stderr, flush=True)

    async def scheduler(self, *engines: str) -> Child:
        """The shared scheduler, with an agent for each of these engines."""
        if self._scheduler is None:
            self._scheduler = await self._up.enter_async_context(self.fresh_scheduler())
        for name in engines:
            if name not in self._agents:
                self._agents.add(name)
                agent = self.fresh_agent(self._scheduler, name, **_ENGINES[name])
                await self._up.enter_async_context(agent)
        return self._scheduler

    async def echo(self) -> Child:
        """The shared echo server."""
        if self._echo is None:
            self._echo = await self._up.enter_async_context(
                child("benchmarks.echo_server", cores=self.cores.subject)
            )
        return self._echo

    def fresh_scheduler(
        self, *settings: str, env: Mapping[str, str] | None = None
    ) -> contextlib.AbstractAsyncContextManager[Child]:
        """A scheduler of its own, with these settings and variables over the defaults."""
        words = [w for s in ("log.level=error", *settings) for w in ("--set", s)]
        return scheduler(*words, cores=self.cores.subject, env=env)

    def fresh_agent(
        self, scheduler: Child, name: str, **options: object
    ) -> contextlib.AbstractAsyncContextManager[Child]:
        """An agent of that scheduler with one simulated engine; node, engine and model have that
        name. It has its session when this returns.
        """
        given = {"id": name, "models": f"[{name}]", **options}
        words = [w for k, v in given.items() for w in ("--engine-option", f"{k}={v}")]
        return child(
            "node_agent", "--scheduler", scheduler.addresses["node"], "--node-id", name,
            "--log-level", "error", "--engine", "simulated", *words, cores=self.cores.load,
        )  # fmt: skip

    async def alternate(
        self, subject: Side, limit: Side, *, turns: int = 1
    ) -> tuple[list[Sample], list[Sample]]:
        """Warm both up, then measure them in turns. `turns`: of each in a round, so much shorter;
        for small differences, which a machine that drifts would hide.
        """
        sides = (subject, limit)
        samples: tuple[list[Sample], list[Sample]] = ([], [])
        for side in sides:
            await side.sample(self.round_s / 5)
        for number in range(self.rounds * turns):
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                samples[index].append(await sides[index].sample(self.round_s / turns))
        return samples


def cost_and_rates(name: str, subject: list[Sample], limit: list[Sample]) -> list[Measured]:
    """The lines `name`.cpu and `name`.core_rate."""
    costs = [s.cpu_us for s in subject]
    wall_s = sum(s.wall_s for s in subject)
    detail: dict[str, float | int | str] = {
        "scheduler_busy": round(sum(s.cpu_s for s in subject) / wall_s, 3),
        "preemptions_per_s": round(sum(s.preemptions for s in subject) / wall_s),
    }
    return [
        Measured(f"{name}.cpu", costs, [s.cpu_us for s in limit], detail),
        Measured(f"{name}.core_rate", [1e6 / cost for cost in costs]),
    ]
