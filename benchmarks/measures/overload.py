"""What becomes of urgent requests, of refusals, of memory and of waits while three times as much is
asked for as the nodes can do?

A fresh scheduler and an engine of 32 slots that takes 0.1 s: 320 requests/s at most. A base load of
0.6 of that goes on all the time; each round it is alone for a while (the unloaded case), then 2.4
times the capacity come on top, then it is alone again until waits are as before. So loaded and
unloaded are measured in turns. A fifth of all requests has priority 8 to 10 and 2 s; of the others
half have 5 s and half wait as long as they must. The queue is bounded to what drains in about two
seconds, for callers without a deadline fill any queue, and then it takes as long to drain.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from batchyard import AsyncClient
from batchyard.errors import BatchyardError
from benchmarks.bench import Bench
from benchmarks.loads import open_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import PROMPT
from benchmarks.processes import Child

MODEL = "busy"
SLOTS, SERVICE_S = 32, 0.1
CAPACITY = SLOTS / SERVICE_S
BASE, FLOOD = 0.6, 2.4  # of the capacity; together three times
URGENT = 8  # priority
QUEUE_MAX = int(2 * CAPACITY)
LASTS, LASTS_QUICK = 20, 5  # rounds' lengths that the flood lasts: 60 s; before it a third of that
RECOVERS_S = 15.0  # the base load after it
ROUNDS_MAX = 3
REFUSED = frozenset({"QUEUE_FULL", "DEADLINE_UNREACHABLE"})
DISPLACED = "SHED"  # it waited, and one that is more urgent has its place
TICK_S = 0.05
LAG_MAX_S = 0.1  # the load's own lag, above which a round is disturbed
SLACK, SLACK_S = 1.25, 0.02  # of the usual p95: still usual


@dataclass(slots=True)
class Asked:
    """One request and what came of it."""

    sent_s: float
    priority: int
    took_s: float
    reason: str  # empty: it succeeded
    hint: bool  # it says when to come back, or how long the wait would be


@dataclass(slots=True)
class Round:
    """What one round saw."""

    unloaded: list[Asked] = field(default_factory=list)
    loaded: list[Asked] = field(default_factory=list)
    after: list[Asked] = field(default_factory=list)
    ended_s: float = 0.0  # of the flood
    rss: list[int] = field(default_factory=list)  # bytes, while it lasted
    busy: float = 0.0  # share of a core that the scheduler took meanwhile
    preemptions: int = 0  # how often it had to make way
    load_lag_s: float = 0.0  # how late the load's own loop was at most: no answer is seen earlier

    def attained(self, asked: Iterable[Asked]) -> float:
        """Per cent of the urgent that were answered in time."""
        urgent = [a for a in asked if a.priority >= URGENT]
        return 100 * sum(not a.reason for a in urgent) / max(1, len(urgent))

    @property
    def attainment_lost(self) -> float:
        """Points of the urgent ones' attainment that the flood cost."""
        return self.attained(self.unloaded) - self.attained(self.loaded)

    @property
    def refusals(self) -> list[Asked]:
        """Those that were refused at once."""
        return [a for a in self.loaded if a.reason in REFUSED]

    @property
    def refusal_ms(self) -> float:
        """p99 from sending to refusal."""
        return _p([a.took_s for a in self.refusals], 99) * 1e3

    @property
    def hinted(self) -> float:
        """Per cent of those who were turned away, at once or later, that got a hint."""
        away = [a for a in self.loaded if a.reason in REFUSED or a.reason == DISPLACED]
        return 100 * sum(a.hint for a in away) / len(away) if away else 100.0

    @property
    def grown_mb(self) -> float:
        """Growth of memory from the flood's first third to its last."""
        third = max(1, len(self.rss) // 3)
        return max(0, max(self.rss[-third:]) - max(self.rss[:third])) / 1e6

    @property
    def recovery_s(self) -> float:
        """Seconds after the flood from which on latencies are the usual ones."""
        usual = SLACK * _p([a.took_s for a in self.unloaded], 95) + SLACK_S
        seconds: dict[int, list[float]] = {}
        for asked in self.after:
            if not asked.reason:
                seconds.setdefault(int(asked.sent_s - self.ended_s), []).append(asked.took_s)
        late = [second for second, took in seconds.items() if _p(took, 95) > usual]
        return max(late) + 1.0 if late else 0.0


async def measure(bench: Bench) -> list[Measured]:
    """The lines overload.*."""
    async with contextlib.AsyncExitStack() as up:
        settings = (f"queue.max_requests={QUEUE_MAX}",)
        scheduler = await up.enter_async_context(bench.fresh_scheduler(*settings))
        agent = bench.fresh_agent(scheduler, MODEL, slots=SLOTS, latency=f"{SERVICE_S * 1e3:g}ms")
        await up.enter_async_context(agent)
        client = AsyncClient(scheduler.addresses["client"], model=MODEL, retries=0)
        await up.enter_async_context(client)
        await open_loop(_Load(client, 0).send, rate=BASE * CAPACITY, seconds=1, seed=0)
        lasts_s = (LASTS_QUICK if bench.quick else LASTS) * bench.round_s
        rounds, tried = await _rounds(client, scheduler, lasts_s, min(ROUNDS_MAX, bench.rounds))
    detail = _detail(rounds[-1]) | {"rounds_tried": tried}
    return [
        Measured("overload.attainment", [r.attainment_lost for r in rounds], detail=detail),
        Measured("overload.refusal", [r.refusal_ms for r in rounds]),
        Measured("overload.hinted", [r.hinted for r in rounds]),
        Measured("overload.memory", [r.grown_mb for r in rounds]),
        Measured("overload.recovery", [r.recovery_s for r in rounds]),
    ]


async def _rounds(
    client: AsyncClient, scheduler: Child, lasts_s: float, wanted: int
) -> tuple[list[Round], int]:
    """So many rounds in which the load itself was not held up, and how many were tried for that:
    at most twice as many; then the least disturbed of them count.
    """
    seen: list[Round] = []
    while len(seen) < 2 * wanted and sum(r.load_lag_s < LAG_MAX_S for r in seen) < wanted:
        seen.append(await _round(client, scheduler, lasts_s, len(seen)))
    return sorted(seen, key=attrgetter("load_lag_s"))[:wanted], len(seen)


def _detail(seen: Round) -> dict[str, float | int | str]:
    """What explains the figures of a round."""
    reasons = collections.Counter(asked.reason or "answered" for asked in seen.loaded)
    return {
        "requests": len(seen.loaded),
        "urgent": sum(a.priority >= URGENT for a in seen.loaded),
        "unloaded_attained": round(seen.attained(seen.unloaded), 2),
        "loaded_attained": round(seen.attained(seen.loaded), 2),
        "refused_most_ms": round(max((a.took_s for a in seen.refusals), default=0) * 1e3, 1),
        "rss_most_mb": round(max(seen.rss) / 1e6, 1),
        "scheduler_busy": round(seen.busy, 3),
        "preemptions": seen.preemptions,
        "load_lag_ms": round(seen.load_lag_s * 1e3, 1),
        **reasons,
    }


async def _round(client: AsyncClient, scheduler: Child, lasts_s: float, number: int) -> Round:
    """Base load alone, three times the capacity, base load alone."""
    seen, load = Round(), _Load(client, number)
    before_s, after_s = lasts_s / 3, min(RECOVERS_S, lasts_s)
    seconds = before_s + lasts_s + after_s
    base = asyncio.ensure_future(
        open_loop(load.send, rate=BASE * CAPACITY, seconds=seconds, seed=2 * number)
    )
    began_s = time.perf_counter() + before_s
    seen.ended_s = began_s + lasts_s
    await asyncio.sleep(before_s)
    flood = asyncio.ensure_future(
        open_loop(load.send, rate=FLOOD * CAPACITY, seconds=lasts_s, seed=2 * number + 1)
    )
    cpu_s, preemptions = scheduler.cpu_s(), scheduler.preemptions()
    while (now_s := time.perf_counter()) < seen.ended_s:
        seen.rss.append(scheduler.rss_bytes())
        await asyncio.sleep(TICK_S)
        seen.load_lag_s = max(seen.load_lag_s, time.perf_counter() - now_s - TICK_S)
    seen.busy = (scheduler.cpu_s() - cpu_s) / lasts_s
    seen.preemptions = scheduler.preemptions() - preemptions
    await asyncio.gather(base, flood)
    for asked in load.asked:
        if asked.sent_s < began_s:
            seen.unloaded.append(asked)
        elif asked.sent_s < seen.ended_s:
            seen.loaded.append(asked)
        else:
            seen.after.append(asked)
    return seen


class _Load:
    """Sends requests as they come in practice, and keeps what came of them."""

    def __init__(self, client: AsyncClient, seed: int) -> None:
        self._client = client
        self._draw = random.Random(seed)
        self.asked: list[Asked] = []

    async def send(self) -> None:
        """One request, to its end."""
        draw = self._draw
        timeout: str | None = "2s"
        if draw.random() < 0.2:
            priority = draw.randint(URGENT, 10)
        else:
            priority, timeout = draw.randint(1, URGENT - 1), draw.choice(("5s", None))
        sent_s, reason, hint = time.perf_counter(), "", False
        try:
            await self._client.generate(PROMPT, priority=priority, timeout=timeout, max_tokens=1)
        except BatchyardError as failed:
            reason = failed.reason or failed.code
            hint = failed.retry_after is not None or "estimatedWaitMs" in failed.metadata
        took_s = time.perf_counter() - sent_s
        self.asked.append(Asked(sent_s, priority, took_s, reason, hint))


def _p(values: list[float], share: int) -> float:
    """A quantile in per cent; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0
