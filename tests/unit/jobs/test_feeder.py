"""What the feeder owes: no item without a node, none twice, each with an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from batchyard.v1 import InferenceRequest, InferenceResult, TextInput, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.config_jobs import JobsSection
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core.outcomes import RequestClass, ResumeMode
from scheduler_service.core.types import NEVER, SECOND, Instant
from scheduler_service.driver import Driver
from scheduler_service.eventlog import EventLog
from scheduler_service.jobs.feeder import FAULTS_MAX
from scheduler_service.jobs.keeper import JobKeeper
from scheduler_service.jobs.kept import ItemEnd, ItemKey, JobState, NewItem, NewJob, StoredJob
from scheduler_service.jobs.making import make_keeper
from scheduler_service.policies import build
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.quarantine import Quarantine
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.validate import Limits


def _core(_fault: BaseException | None = None) -> Scheduler:
    return Scheduler(CoreSettings(known_models=frozenset({"m"})), build())


class Later(Clock):
    """The clock of a scheduler that starts so much later."""

    def __init__(self, shift_s: int = 0) -> None:
        self._shift = shift_s * SECOND

    def now(self) -> int:
        return super().now() + self._shift


@asynccontextmanager
async def kept(folder: Path, clock: Clock) -> AsyncIterator[JobKeeper]:
    """All of the jobs, and a core without nodes."""
    driver = Driver(_core(), clock=clock, execute=lambda _: None, on_fault=_core)
    impatient = TaskDefaults(timeout=SECOND, max_wait=SECOND, degrade=("small",))
    made = make_keeper(
        folder,
        JobsSection(),
        driver=driver,
        clock=clock,
        converter=Converter(
            limits=Limits(),
            task_types=TaskTypes({"chat": impatient}, TaskDefaults()),
            aliases={},
            max_attempts=3,
        ),
        next_rid=count(1).__next__,
        quotas=None,
        quarantine=Quarantine(None, clock),
        on_entry=None,
        note=EventLog().note,
    )
    await made.start()
    yield made
    await made.stop_feeding()
    driver.close()
    await made.close()


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[JobKeeper]:
    async with kept(tmp_path, Clock()) as made:
        yield made


async def stored(keeper: JobKeeper, items: int = 2, timeout_s: int = 0) -> StoredJob:
    request = InferenceRequest(model="m", task_type="chat", text=TextInput(prompt="hi"))
    if timeout_s:
        request.timeout.seconds = timeout_s
    item = NewItem("", "m", 5, request.SerializeToString())
    job, _ = await keeper.create(
        NewJob(
            tenant="t",
            job_id="j",
            body_hash=b"",
            items=[item] * items,
            created_ns=keeper.wall.ns(),
            ttl_ns=3600 * SECOND,
        )
    )
    return job


async def test_nothing_is_fed_while_no_node_has_the_model(keeper: JobKeeper) -> None:
    await stored(keeper)
    await keeper.feeder._refill()
    assert keeper.feeder.taken == 0
    assert keeper.waiting_items() == 2


async def test_item_that_comes_back_is_that_item_once(keeper: JobKeeper) -> None:
    job = await stored(keeper)
    request = keeper.feeder.adopt("t", "j/1")
    assert request is not None
    assert (request.request_id, request.tenant) == ("j/1", "t")
    assert request.request_class is RequestClass.JOB
    assert keeper.feeder.adopt("t", "j/1") is request
    assert list(keeper.feeder.of_job(job.key)) == [request]
    for other in ("j/2", "j/x", "j", "k/1"):
        assert keeper.feeder.adopt("t", other) is None
    assert keeper.feeder.adopt("u", "j/1") is None


async def test_defaults_for_calls_do_not_end_stored_work(keeper: JobKeeper) -> None:
    await stored(keeper)
    request = keeper.feeder.adopt("t", "j/0")
    assert request is not None
    assert (request.deadline, request.max_wait, request.degrade) == (NEVER, NEVER, ())
    assert request.resume_mode is ResumeMode.RESTART
    assert request.stream, "so that it can go on after it made room"


async def fed_before(folder: Path) -> Instant:
    """A scheduler feeds j/0, whose timeout is a minute, and ends. The item's deadline there."""
    async with kept(folder, Clock()) as keeper:
        await stored(keeper, 1, timeout_s=60)
        request = keeper.feeder.adopt("t", "j/0")
        assert request is not None
        await keeper.feeder._note_ends()
        return request.deadline


async def test_timeout_of_an_item_goes_on_over_a_restart(tmp_path: Path) -> None:
    deadline = await fed_before(tmp_path)
    async with kept(tmp_path, Later(40)) as keeper:
        request = keeper.feeder.adopt("t", "j/0")
        assert request is not None
        assert abs(request.deadline - deadline) < SECOND


async def test_item_whose_time_is_over_after_a_restart_expires(tmp_path: Path) -> None:
    await fed_before(tmp_path)
    async with kept(tmp_path, Later(61)) as keeper:
        (item,) = await keeper.store.items([ItemKey(1, 0)])
        with keeper.watchers.watch(1) as changed:
            assert keeper.feeder._enter(keeper.feeder._take(item)) is None
            await asyncio.wait_for(changed.wait(), 10)
        (result,) = await keeper.store.results(1, after=0, limit=9)
        assert result.end is ItemEnd.EXPIRED
        error = InferenceResult.FromString(result.result).error
        assert error.reason == types_pb2.ERROR_REASON_DEADLINE_EXCEEDED


async def test_what_an_agent_brings_back_after_its_time_may_still_end(tmp_path: Path) -> None:
    await fed_before(tmp_path)
    clock = Later(61)
    async with kept(tmp_path, clock) as keeper:
        request = keeper.feeder.adopt("t", "j/0")
        assert request is not None
        assert request.deadline > clock.now()


async def test_wall_clock_that_was_put_back_gives_an_item_its_timeout_at_most(
    tmp_path: Path,
) -> None:
    await fed_before(tmp_path)
    clock = Later(-3600)
    async with kept(tmp_path, clock) as keeper:
        request = keeper.feeder.adopt("t", "j/0")
        assert request is not None
        assert request.deadline - clock.now() <= 60 * SECOND


async def test_item_outlives_faults_of_the_core_but_not_for_ever(keeper: JobKeeper) -> None:
    job = await stored(keeper, 1)
    for _ in range(FAULTS_MAX - 1):
        assert keeper.feeder.adopt("t", "j/0") is not None
        keeper.feeder.core_lost()
        assert not list(keeper.feeder.of_job(job.key))
        (taken,) = keeper.feeder._taken.values()
        keeper.feeder._enter(taken)
    with keeper.watchers.watch(job.key) as changed:
        keeper.feeder.core_lost()
        while True:
            await changed.wait()
            changed.clear()
            if (await keeper.store.by_keys([job.key]))[0].finished:
                break
    (result,) = await keeper.store.results(job.key, after=0, limit=9)
    error = InferenceResult.FromString(result.result).error
    assert error.reason == types_pb2.ERROR_REASON_INTERNAL
    assert keeper.feeder.taken == 0


async def test_cancelled_job_takes_what_waits_here_with_it(keeper: JobKeeper) -> None:
    job = await stored(keeper)
    assert keeper.feeder.adopt("t", "j/0") is not None
    keeper.feeder.core_lost()
    assert keeper.feeder.taken == 1
    with keeper.watchers.watch(job.key) as changed:
        await keeper.cancel(job, "")
        assert keeper.feeder.taken == 0
        assert keeper.feeder.adopt("t", "j/0") is None
        while True:
            await changed.wait()
            changed.clear()
            if (await keeper.store.by_keys([job.key]))[0].state is JobState.CANCELLED:
                break
