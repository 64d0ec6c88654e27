"""What does tracing cost? The same scheduler with tracing on | off, in turns, at a fixed rate.

1,000 unary requests a second at random moments: the default sampling keeps ten of them a second, so
its cost depends on the rate that it is spread over. `full` keeps all. Then the collector is a black
hole, which takes everything and never answers, for `black_hole_s` seconds of load: the processor
time must stay what it is without tracing, memory flat, what is lost counted, and the exit quick.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from batchyard.v1 import GenerateRequest, SchedulerServiceStub
from benchmarks.bench import INSTANT, Bench, Sample, Side
from benchmarks.collectors import black_hole, collector
from benchmarks.echo_load import channel
from benchmarks.loads import paced_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import request
from benchmarks.processes import Child

RATE: Final = 1_000.0  # requests a second
WIDTH: Final = 256
TURN_S: Final = 10.0  # two exports, at the SDK's default of one in five seconds
Detail = dict[str, float | int | str]


async def measure(bench: Bench) -> list[Measured]:
    """The lines tracing.* and black_hole.*."""
    turn_s = bench.round_s if bench.quick else TURN_S
    async with _loaded(await bench.scheduler(INSTANT)) as off:
        return [*await _costs(bench, off, turn_s), *await _black_hole(bench, off, turn_s)]


async def _costs(bench: Bench, off: Side, turn_s: float) -> list[Measured]:
    async with contextlib.AsyncExitStack() as up:
        endpoint = await up.enter_async_context(collector())
        default = await up.enter_async_context(_traced(bench, endpoint))
        full = await up.enter_async_context(
            _traced(bench, endpoint, OTEL_TRACES_SAMPLER="always_on")
        )
        on, without = await _in_turns(default, off, bench.rounds, turn_s)
        all_, none = await _in_turns(full, off, bench.rounds, turn_s)
        exported = await _spans(default.process, "exported")
    added = [(a.cpu_us - b.cpu_us) * RATE / 1e4 for a, b in zip(on, without, strict=True)]
    rate = sum(s.count for s in on) / sum(s.wall_s for s in on)
    detail: Detail = {"exported_spans": exported, "requests_per_s": round(rate)}
    return [
        Measured("tracing.cpu", _cpu(on), _cpu(without), detail),
        Measured("tracing.share", added),
        Measured("tracing.full", _cpu(all_), _cpu(none)),
    ]


async def _black_hole(bench: Bench, off: Side, turn_s: float) -> list[Measured]:
    async with black_hole() as endpoint, _traced(bench, endpoint) as on:
        turns = 1 if bench.quick else max(2, round(bench.black_hole_s / turn_s))
        await on.sample(turn_s / 5)
        before = on.process.rss_bytes()
        into, without = await _in_turns(on, off, turns, turn_s)
        after = on.process.rss_bytes()
        detail: Detail = {
            "seconds_under_load": round(turns * turn_s),
            "lost_spans": await _spans(on.process, "failed") + await _spans(on.process, "dropped"),
            "grown_mb": round((after - before) / 1e6, 2),
        }
        rss_off = off.process.rss_bytes()
        began = time.perf_counter()
        await on.process.end()
        exit_s = time.perf_counter() - began
    ratios = [a.cpu_us / b.cpu_us for a, b in zip(into, without, strict=True)]
    return [
        Measured("black_hole.cpu", _cpu(into), _cpu(without), detail),
        Measured("black_hole.ratio", ratios),
        Measured("black_hole.memory", [after / 1e6], [rss_off / 1e6], detail),
        Measured("black_hole.exit", [exit_s]),
    ]


def _cpu(samples: list[Sample]) -> list[float]:
    return [sample.cpu_us for sample in samples]


async def _in_turns(
    subject: Side, limit: Side, turns: int, turn_s: float
) -> tuple[list[Sample], list[Sample]]:
    """Both warm, then one after the other, each first in every other turn."""
    sides = (subject, limit)
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    for side in sides:
        await side.sample(turn_s / 5)
    for number in range(turns):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            samples[index].append(await sides[index].sample(turn_s))
    return samples


@contextlib.asynccontextmanager
async def _traced(bench: Bench, endpoint: str, **more: str) -> AsyncIterator[Side]:
    """A scheduler that exports its spans there, with an agent that does not trace."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **more}
    async with (
        bench.fresh_scheduler(env=env) as scheduler,
        bench.fresh_agent(scheduler, INSTANT, slots=256),
        _loaded(scheduler) as side,
    ):
        yield side


@contextlib.asynccontextmanager
async def _loaded(scheduler: Child) -> AsyncIterator[Side]:
    asked = GenerateRequest(request=request(INSTANT))
    async with channel(scheduler) as opened:
        stub: Any = SchedulerServiceStub(opened)  # type: ignore[no-untyped-call]

        async def load(seconds: float) -> int:
            return await paced_loop(
                lambda: stub.Generate(asked), rate=RATE, width=WIDTH, seconds=seconds, seed=1
            )

        yield Side(scheduler, load)


async def _spans(scheduler: Child, outcome: str) -> int:
    """What its metrics count of spans."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{scheduler.addresses['http']}/metrics") as answer,
    ):
        text = await answer.text()
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "batchyard_telemetry_spans_total" and sample.labels["outcome"] == outcome
    )
