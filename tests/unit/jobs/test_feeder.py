"""What the feeder owes: no item without a node, none twice, each with an end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from batchyard.v1 import InferenceRequest, InferenceResult, TextInput, types_pb2
from scheduler_service.clock import Clock
from scheduler_service.config_jobs import JobsSection
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core.outcomes import RequestClass, ResumeMode
from scheduler_service.core.types import NEVER, SECOND
from scheduler_service.driver import Driver
from scheduler_service.eventlog import EventLog
from scheduler_service.jobs.feeder import FAULTS_MAX
from scheduler_service.jobs.keeper import JobKeeper
from scheduler_service.jobs.kept import JobState, NewItem, NewJob, StoredJob
from scheduler_service.jobs.making import make_keeper
from scheduler_service.policies import build
from scheduler_service.policies.task_types import TaskDefaults, TaskTypes
from scheduler_service.quarantine import Quarantine
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.validate import Limits


def _core(_fault: BaseException | None = None) -> Scheduler:
    return Scheduler(CoreSettings(known_models=frozenset({"m"})), build())


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[JobKeeper]:
    """All of the jobs, and a core without nodes."""
    clock = Clock()
    driver = Driver(_core(), clock=clock, execute=lambda _: None, on_fault=_core)
    impatient = TaskDefaults(timeout=SECOND, max_wait=SECOND, degrade=("small",))
    made = make_keeper(
        tmp_path,
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


async def stored(keeper: JobKeeper, items: int = 2) -> StoredJob:
    request = InferenceRequest(model="m", task_type="chat", text=TextInput(prompt="hi"))
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
