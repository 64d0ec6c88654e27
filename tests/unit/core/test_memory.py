"""Does memory come back by itself when requests are forgotten, without the cycle collector?"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from scheduler_service import policies
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.types import Attempt, NodeSpec, Request
from tests.builders import World, engine, settings


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _serve(scheduler: Scheduler, rid: int) -> None:
    """One request in and out; nothing but the core keeps anything of it."""
    now = scheduler.state.now + 1
    request = Request(rid, f"r{rid}", "m", received_at=now)
    commands = scheduler.step(now, [ev.RequestsSubmitted([request])])
    (batch,) = [c.batch for c in commands if isinstance(c, cmd.DispatchBatch)]
    done = ev.ItemsFinished("n", 1, [ev.ItemEnd(batch.attempts[0].dispatch_id)])
    scheduler.step(now + 1, [done, ev.CreditsGranted("n", 1, [("e0", rid + 1, None)])])
    scheduler.take_records()


@pytest.mark.usefixtures("collector_off")
def test_forgotten_requests_are_freed_without_the_collector() -> None:
    core = Scheduler(CoreSettings(finished_memory=4, decision_memory=4), policies.build())
    core.step(0, [ev.NodeJoined("n", "b", 1, NodeSpec((engine(slots=1),)))])
    core.step(0, [ev.CreditsGranted("n", 1, [("e0", 1, None)])])
    before = sum(type(o) is Attempt for o in gc.get_objects())
    for rid in range(1, 4_001):
        _serve(core, rid)
    core.state.commands = []
    held = sum(type(o) is Attempt for o in gc.get_objects()) - before
    assert len(core.state.finished) == 4
    assert held <= 1_100  # lists of who waits are swept after so many


def test_what_can_still_be_listed_keeps_its_attempts_and_their_batch() -> None:
    world = World(settings(finished_memory=1))
    agent = world.agent("n0", engine(slots=1))
    first, second = world.submit(), world.submit()
    agent.finish(first)
    assert first.attempts[0].request is first
    agent.finish(second)
    assert first.attempts[0].request is not first
    assert second.attempts[0].request is second
    assert second.attempts[0].batch.attempts == [second.attempts[0]]
