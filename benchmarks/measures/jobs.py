"""How fast is work stored, and are results? Against plain SQLite with the same rows, in turns.

`large`: four CreateJob calls at a time, of 500 items each; `small`: 64 at a time, of ten, which
share commits. Both count items that were acknowledged, so are on the disk; the limit gives each job
a transaction. `results`: the store by itself, 512 results in a change as under load. `run`: a
job's items from the first one fed to the last result on the disk, with an engine that answers at
once; its limit is SQLite taking 512 items away and adding their results in each transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from batchyard import AsyncClient
from batchyard.v1 import CreateJobRequest, JobItem, SchedulerServiceStub
from benchmarks.bench import Bench
from benchmarks.echo_load import channel
from benchmarks.loads import closed_loop
from benchmarks.measured import Measured
from benchmarks.measures.requests import request
from benchmarks.plain_sqlite import Item, PlainSqlite
from benchmarks.processes import Child
from scheduler_service.jobs.kept import ItemEnd, ItemKey, ItemResult, NewItem, NewJob, Used
from scheduler_service.jobs.landing import GROUP_MAX
from scheduler_service.jobs.sqlite import SqliteStore

LARGE, LARGE_AT_ONCE = 500, 4
SMALL, SMALL_AT_ONCE = 10, 64
RESULTS, RESULTS_QUICK = 32 * GROUP_MAX, GROUP_MAX  # SQLite tidies its log now and then
RUN, RUN_QUICK = 4_000, 200
MODEL, NOBODYS = "night", "nobody-has-it"
RESULT: Final = request(MODEL).SerializeToString() * 2  # as long as a short answer
_WALL_NS: Final = 1_800_000_000 * 10**9

Rate = Callable[[], Awaitable[float]]  # of one turn, a second


async def measure(bench: Bench) -> list[Measured]:
    """The lines jobs.*."""
    async with contextlib.AsyncExitStack() as up:
        folder = Path(up.enter_context(tempfile.TemporaryDirectory()))
        plains = [PlainSqlite(folder / f"plain-{n}" / "plain.sqlite3") for n in range(4)]
        for plain in plains:
            up.callback(plain.close)
        scheduler = await up.enter_async_context(
            bench.fresh_scheduler(f"state_dir={folder / 'state'}")
        )
        await up.enter_async_context(bench.fresh_agent(scheduler, MODEL, slots=256))
        return [
            await _created(bench, scheduler, plains[0], "large", LARGE, LARGE_AT_ONCE),
            await _created(bench, scheduler, plains[1], "small", SMALL, SMALL_AT_ONCE),
            await _results(bench, folder, plains[2]),
            await _run(bench, scheduler, plains[3]),
        ]


async def _in_turns(bench: Bench, key: str, subject: Rate, limit: Rate) -> Measured:
    rates: dict[Rate, list[float]] = {subject: [], limit: []}
    for number in range(bench.rounds):
        for side in (subject, limit) if number % 2 == 0 else (limit, subject):
            rates[side].append(await side())
    return Measured(key, rates[subject], rates[limit])


async def _created(
    bench: Bench, scheduler: Child, plain: PlainSqlite, name: str, size: int, at_once: int
) -> Measured:
    asked = request(NOBODYS)
    message = CreateJobRequest()
    message.input.items.extend(JobItem(request=asked) for _ in range(size))
    items: list[Item] = [("", NOBODYS, asked.priority, asked.SerializeToString())] * size
    seconds = bench.round_s / 3
    names = itertools.count()
    async with channel(scheduler) as real:
        stub: Any = SchedulerServiceStub(real)  # type: ignore[no-untyped-call]

        async def create() -> None:
            message.job_id = f"{name}-{next(names)}"
            await stub.CreateJob(message)

        async def subject() -> float:
            began = time.perf_counter()
            jobs = await closed_loop(create, width=at_once, seconds=seconds)
            return jobs * size / (time.perf_counter() - began)

        async def limit() -> float:
            return await asyncio.to_thread(plain.create_for, seconds, items)

        return await _in_turns(bench, f"jobs.{name}", subject, limit)


async def _results(bench: Bench, folder: Path, plain: PlainSqlite) -> Measured:
    count = RESULTS_QUICK if bench.quick else RESULTS
    body = request(MODEL).SerializeToString()
    store = SqliteStore(folder / "store" / "jobs.sqlite3", max_bytes=1 << 34)
    names = itertools.count()

    async def subject() -> float:
        job = NewJob(
            tenant="", job_id=f"job-{next(names)}", body_hash=b"h", created_ns=_WALL_NS,
            items=[NewItem("", MODEL, 6, body)] * count, ttl_ns=_WALL_NS,
        )  # fmt: skip
        stored, _ = await store.create(job)
        ends = [
            ItemResult(ItemKey(stored.key, n), ItemEnd.SUCCEEDED, RESULT, 0, _WALL_NS, Used(20, 1))
            for n in range(count)
        ]
        began = time.perf_counter()
        for start in range(0, count, GROUP_MAX):
            await store.finish(ends[start : start + GROUP_MAX], _WALL_NS)
        return count / (time.perf_counter() - began)

    try:
        return await _in_turns(bench, "jobs.results", subject, _finishing(plain, body, count))
    finally:
        await store.close()


def _finishing(plain: PlainSqlite, body: bytes, count: int) -> Rate:
    async def limit() -> float:
        key = await asyncio.to_thread(plain.create, [("", MODEL, 6, body)] * count)
        return await asyncio.to_thread(plain.finish, key, count, GROUP_MAX, RESULT)

    return limit


async def _run(bench: Bench, scheduler: Child, plain: PlainSqlite) -> Measured:
    count = RUN_QUICK if bench.quick else RUN
    asked = request(MODEL)
    asked.ClearField("timeout")
    async with AsyncClient(scheduler.addresses["client"]) as client:

        async def subject() -> float:
            job = await client.jobs.create([JobItem(request=asked) for _ in range(count)])
            done = await client.jobs.wait(job.job_id)
            if done.counts.succeeded != count:
                raise RuntimeError(f"a job went wrong: {done}")
            return count / ((done.end_time.ToNanoseconds() - done.start_time.ToNanoseconds()) / 1e9)

        limit = _finishing(plain, asked.SerializeToString(), count)
        return await _in_turns(bench, "jobs.run", subject, limit)
