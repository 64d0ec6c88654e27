"""The night job against chat, live: a scheduler, an agent, stored jobs, and calls, in real time.

`python -m benchmarks.night` plays what the experiment `night` of the simulator simulates, with the
same arrivals, and prints what it saw as JSON; `simulator/experiments/night_live.py` judges it.

One configuration is a scheduler with a store and an agent with an engine of eight slots for each
night, so that several nights run side by side: each is a pool of its own and knows nothing of the
others. An item goes on from its partial output, which costs one token each 62.5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from batchyard import AsyncClient
from batchyard.v1 import GenerationParams, InferenceRequest, JobCounts, TextInput
from benchmarks.processes import child
from scheduler_service.core.types import SECOND
from simulator.experiments.night import SLOTS, WINDOW_S, Night, arrivals

TOKENS_PER_S = 16
MIN_RUN_S = 2.0
UP_S = 30.0  # in which all slots must be taken


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration, and the nights that are played with it side by side."""

    name: str
    nights: Sequence[Night]
    shrink: float = 1.0  # all times, by this factor

    def engines(self) -> list[str]:
        """Of the agent: one for each night, with a model of its own."""
        per_token = f"{1e3 / TOKENS_PER_S / self.shrink:g}ms"
        words = []
        for number in range(len(self.nights)):
            words += ["--engine", "simulated"]
            for option in (
                f"id=e{number}",
                f"slots={SLOTS}",
                f"models=[m{number}]",
                f"latency_per_token={per_token}",
            ):
                words += ["--engine-option", option]
        return words  # fmt: skip

    def settings(self) -> list[str]:
        """Of the scheduler."""
        night = self.nights[0]
        preempt = "never"
        if night.preempt != "never":
            least = f"{1e3 * MIN_RUN_S / self.shrink:g}ms"
            preempt = f"{{name: {night.preempt}, options: {{min_run: {least}}}}}"
        return [f"policies.preempt={preempt}", f"queue.headroom={night.headroom}"]


@dataclass
class Seen:
    """What came of one night; times in seconds as if nothing had been shrunk."""

    waits: list[tuple[float, float]] = field(default_factory=list)  # (called at, waited)
    ended: list[int] = field(default_factory=list)  # items so far, at the end of each window
    preempted: int = 0
    failed: int = 0


@dataclass
class Played:
    """What came of one case."""

    nights: list[Seen]
    use: float  # share of the slots that was taken, by a look each second


def cases(until_s: int, *, shrink: float = 1.0, nights: int = 1) -> list[Case]:
    """All that are compared."""

    def of(
        name: str, *, preempt: str = "after_run", headroom: int = 0, count: int = nights
    ) -> Case:
        return Case(
            name=name,
            shrink=shrink,
            nights=[
                Night(items=600, item_s=30, rate=2.0, until_s=until_s, preempt=preempt,
                      headroom=headroom, seed=seed)
                for seed in range(1, count + 1)
            ],
        )  # fmt: skip

    short = Night(items=4_000, item_s=1, rate=4.0, until_s=until_s, preempt="never")
    return [
        Case(name="short items", shrink=shrink, nights=[short]),
        of("no preemption", preempt="never", count=1),
        of("preemption"),
        of("preemption, headroom of 1", headroom=1),
    ]


async def play(case: Case) -> Played:
    """Start the processes, and play the nights of one case at the same time."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [f"--{kind}-port=0" for kind in ("client", "node", "admin", "http")]
        settings = ["log.level=error", f"state_dir={folder}", *case.settings()]
        words = [word for setting in settings for word in ("--set", setting)]
        scheduler = await stack.enter_async_context(
            child("scheduler_service", *ports, *words, cores=frozenset())
        )
        where = scheduler.addresses
        await stack.enter_async_context(
            child(
                "node_agent", "--scheduler", where["node"], "--node-id", "n", "--log-level",
                "error", *case.engines(), cores=frozenset(),
            )
        )  # fmt: skip
        client = AsyncClient(where["client"], admin_address=where["admin"])
        await stack.enter_async_context(client)
        nights = [_Play(client, case, number) for number in range(len(case.nights))]
        await asyncio.gather(*(night.fill() for night in nights))
        begun = time.monotonic()
        use = asyncio.create_task(_use(client, case, begun))
        seen = await asyncio.gather(*(night.run(begun) for night in nights))
        return Played(list(seen), await use)


async def _use(client: AsyncClient, case: Case, begun: float) -> float:
    taken, looks = 0, case.nights[0].until_s
    for second in range(looks):
        await _until(begun + second / case.shrink)
        report = await client.admin.report(omit_queues=True)
        taken += sum(node.running for node in report.nodes)
    return taken / (looks * SLOTS * len(case.nights))


async def _until(instant: float) -> None:
    await asyncio.sleep(max(0.0, instant - time.monotonic()))


class _Play:
    """One night: its job, and its calls."""

    def __init__(self, client: AsyncClient, case: Case, number: int) -> None:
        self._client = client
        self._night = case.nights[number]
        self._shrink = case.shrink
        self._model = f"m{number}"
        self._job = f"night-{number}"
        self._seen = Seen()

    async def fill(self) -> None:
        """Store the job; returns when its items have every slot."""
        params = GenerationParams(max_tokens=TOKENS_PER_S * self._night.item_s)
        items = [
            InferenceRequest(model=self._model, text=TextInput(prompt=f"item {n}"), params=params)
            for n in range(self._night.items)
        ]
        await self._client.jobs.create(items, job_id=self._job)
        full = SLOTS - self._night.headroom
        async with asyncio.timeout(UP_S):
            async for change in self._client.jobs.watch(self._job):
                if change.job.counts.running >= full:
                    return

    async def run(self, begun: float) -> Seen:
        """From the first call to the last; what is left of the job is cancelled."""
        calls = [a.at / SECOND for a in arrivals(replace(self._night, items=0))]
        watch = asyncio.create_task(self._watch(begun))
        await asyncio.gather(*(self._call(begun, number, at) for number, at in enumerate(calls)))
        await watch
        counts = await self._counts()
        self._seen.preempted = counts.preempted
        self._seen.failed = counts.failed + counts.expired
        await self._client.jobs.cancel(self._job)
        return self._seen

    async def _counts(self) -> JobCounts:
        return (await self._client.jobs.get(self._job)).counts

    async def _call(self, begun: float, number: int, at: float) -> None:
        await _until(begun + at / self._shrink)
        answer = await self._client.generate(
            f"call {number}", model=self._model, priority=10, max_tokens=TOKENS_PER_S
        )
        assert answer.timings.queue is not None
        self._seen.waits.append((at, answer.timings.queue.total_seconds() * self._shrink))

    async def _watch(self, begun: float) -> None:
        for end in range(WINDOW_S, self._night.until_s + 1, WINDOW_S):
            await _until(begun + end / self._shrink)
            self._seen.ended.append((await self._counts()).succeeded)


async def play_all(wanted: Sequence[Case]) -> dict[str, Played]:
    """All cases at the same time."""
    played = await asyncio.gather(*(play(case) for case in wanted))
    return dict(zip([case.name for case in wanted], played, strict=True))


def main() -> None:
    """Play, and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.night", allow_abbrev=False)
    parser.add_argument("--seconds", type=int, default=300, help="of chat, in each night")
    parser.add_argument("--nights", type=int, default=6, help="side by side")
    parser.add_argument("--shrink", type=float, default=1.0, help="divides all times")
    options = parser.parse_args()
    wanted = cases(options.seconds, shrink=options.shrink, nights=options.nights)
    played = asyncio.run(play_all(wanted))
    print(json.dumps({name: asdict(one) for name, one in played.items()}))


if __name__ == "__main__":
    main()
