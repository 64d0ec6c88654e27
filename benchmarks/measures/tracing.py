"""What does tracing cost? The same scheduler with tracing on | off, in turns, at a fixed rate.

1,000 unary requests a second at random moments: the default sampling keeps ten of them a second, so
its cost depends on the rate that it is spread over. It is smaller than the noise of a whole
scheduler, so `share` is put together from parts: the tracer's work for one that is not sampled,
and what keeping all of them adds. Then the collector is a black hole, which takes everything and
never answers, for `black_hole_s` seconds of load: processor time and memory must stay what they are
without tracing, what is lost be counted, and the exit quick.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from statistics import median
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from batchyard.v1 import GenerateRequest, SchedulerServiceStub
from benchmarks import tracing_costs
from benchmarks.bench import INSTANT, Bench, Sample, Side
from benchmarks.collectors import black_hole, collector
from benchmarks.echo_load import channel
from benchmarks.loads import paced_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import request
from benchmarks.processes import Child
from scheduler_service.telemetry.sampling import ROOT_TRACES_PER_S

RATE: Final = 1_000.0  # requests a second
WIDTH: Final = 256
TURN_S: Final = 5.0  # one export, at the SDK's default
TURNS: Final = 2  # of each in a round
Detail = dict[str, float | int | str]


async def measure(bench: Bench) -> list[Measured]:
    """The lines tracing.* and black_hole.*."""
    turn_s = bench.round_s if bench.quick else TURN_S
    async with contextlib.AsyncExitStack() as up:
        if bench.quick:
            scheduler = await bench.scheduler(INSTANT)
        else:  # of its own, for the shared one has other agents, too
            scheduler = await up.enter_async_context(bench.fresh_scheduler())
            await up.enter_async_context(bench.fresh_agent(scheduler, INSTANT, slots=256))
        off = await up.enter_async_context(_loaded(scheduler))
        return [*await _costs(bench, off, turn_s), *await _black_hole(bench, off, turn_s)]


async def _costs(bench: Bench, off: Side, turn_s: float) -> list[Measured]:
    turns = bench.rounds * TURNS
    async with collector() as endpoint:
        async with _traced(bench, endpoint) as default:
            on, without = await _in_turns(default, off, turns, turn_s)
            exported = await _spans(default.process, "exported")
        async with _traced(bench, endpoint, OTEL_TRACES_SAMPLER="always_on") as full:
            kept, none = await _in_turns(full, off, turns, turn_s)
    unsampled = [tracing_costs.unsampled_us() for _ in range(bench.rounds)]
    kept_us = median(_cpu(kept)) - median(_cpu(none))
    # Of a core: so many microseconds in each second.
    share = [(RATE * each + ROOT_TRACES_PER_S * kept_us) / 1e4 for each in unsampled]
    rate = sum(s.count for s in on) / sum(s.wall_s for s in on)
    detail: Detail = {"exported_spans": exported, "requests_per_s": round(rate)}
    return [
        Measured("tracing.cpu", _cpu(on), _cpu(without), detail),
        Measured("tracing.full", _cpu(kept), _cpu(none)),
        Measured("tracing.unsampled", unsampled),
        Measured("tracing.share", share),
    ]


async def _black_hole(bench: Bench, off: Side, turn_s: float) -> list[Measured]:
    async with black_hole() as endpoint, _traced(bench, endpoint) as on:
        turns = TURNS if bench.quick else max(TURNS, round(bench.black_hole_s / turn_s))
        memory: tuple[list[float], list[float]] = ([], [])
        into, without = await _in_turns(on, off, turns, turn_s, memory)
        detail: Detail = {
            "seconds_under_load": round(turns * turn_s),
            "lost_spans": await _spans(on.process, "failed") + await _spans(on.process, "dropped"),
            "grown_mb": _growth(memory[0]),
            "grown_mb_untraced": _growth(memory[1]),
        }
        began = time.perf_counter()
        await on.process.end()
        exit_s = time.perf_counter() - began
    return [
        Measured("black_hole.cpu", _cpu(into), _cpu(without), detail),
        Measured("black_hole.ratio", [median(_cpu(into)) / median(_cpu(without))]),
        Measured("black_hole.memory", *memory, detail),
        Measured("black_hole.exit", [exit_s]),
    ]


def _growth(samples: list[float]) -> float:
    """From the first third, in which rings and pools fill, to the last: of the medians."""
    third = max(1, len(samples) // 3)
    return round(median(samples[-third:]) - median(samples[third : 2 * third] or samples), 2)


def _cpu(samples: list[Sample]) -> list[float]:
    return [sample.cpu_us for sample in samples]


async def _in_turns(
    subject: Side,
    limit: Side,
    turns: int,
    turn_s: float,
    memory: tuple[list[float], list[float]] = ([], []),
) -> tuple[list[Sample], list[Sample]]:
    """Both warm, then one after the other, each first in every other turn. `memory` gets what each
    holds after each turn, in MB.
    """
    sides = (subject, limit)
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    for side in sides:
        await side.sample(turn_s / 5)
    for number in range(turns):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            samples[index].append(await sides[index].sample(turn_s))
            memory[index].append(sides[index].process.rss_bytes() / 1e6)
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
