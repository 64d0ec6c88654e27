"""When do requests come, where no trace says? Arrival processes as streams of instants."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from random import Random

from scheduler_service.core.types import SECOND, Duration, Instant
from simulator.workload.arrival import Arrival
from simulator.workload.lengths import Lengths, fixed


def poisson(rate: float, *, seed: int = 0, start: Instant = 0) -> Iterator[Instant]:
    """`rate` per second, without memory, for ever."""
    random = Random(f"{seed}/poisson")
    at = float(start)
    scale = SECOND / rate
    while True:
        at += random.expovariate(1.0) * scale
        yield round(at)


def gamma(rate: float, cv: float, *, seed: int = 0) -> Iterator[Instant]:
    """Gaps of that coefficient of variation: above 1 they clump, below they are regular."""
    random = Random(f"{seed}/gamma")
    shape = 1 / (cv * cv)
    at = 0.0
    while True:
        at += random.gammavariate(shape, SECOND / (rate * shape))
        yield round(at)


def steps(pieces: Iterable[tuple[float, Duration]], *, seed: int = 0) -> Iterator[Instant]:
    """Poisson at one rate after another: (rate per second, for how long)."""
    random = Random(f"{seed}/steps")
    begin = 0
    for rate, lasts in pieces:
        end, at = begin + lasts, float(begin)
        while rate > 0:
            at += random.expovariate(1.0) * SECOND / rate
            if at >= end:
                break
            yield round(at)
        begin = end


def bursts(
    base: float, peak: float, *, every: Duration, lasts: Duration, seed: int = 0
) -> Iterator[Instant]:
    """Poisson at `base`, and at `peak` for the first `lasts` of each `every`, for ever."""
    pieces = itertools.cycle([(peak, lasts), (base, every - lasts)])
    return steps(pieces, seed=seed)


def evenly(gap: Duration) -> Iterator[Instant]:
    """One per `gap`, from `gap` on, for ever."""
    return (gap * number for number in itertools.count(1))


def requests(
    instants: Iterable[Instant],
    lengths: Lengths | None = None,
    *,
    count: int | None = None,
    until: Instant | None = None,
    service: Callable[[Random], Duration] | None = None,
    seed: int = 0,
) -> Iterator[Arrival]:
    """An arrival per instant: `count` of them, or those before `until`."""
    random = Random(f"{seed}/requests")
    draw = lengths or fixed(0, 1)
    for at in itertools.islice(instants, count):
        if until is not None and at >= until:
            return
        prompt, output = draw(random)
        made = service(random) if service is not None else 0
        yield Arrival(at, prompt, output, service=made)


def exponential(mean: Duration) -> Callable[[Random], Duration]:
    """Service times without memory."""
    return lambda random: round(random.expovariate(1.0) * mean)


def merged(*streams: Iterable[Arrival]) -> Iterator[Arrival]:
    """Several workloads as one, in order of time; of one instant, the earlier stream first."""
    return heapq.merge(*streams, key=lambda arrival: arrival.at)
