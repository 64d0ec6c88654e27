"""The one writer of the core: turns, timers, and faults that stop nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scheduler_service import gathering
from scheduler_service.clock import Clock
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core.commands import Command, FinishRequest
from scheduler_service.core.events import (
    Event,
    NodesHeard,
    RequestsCancelled,
    RequestsSubmitted,
)
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import MILLISECOND, SECOND, Request
from scheduler_service.driver import Driver
from scheduler_service.policies import build

WAIT_S = 5.0


class Core(Scheduler):
    """A real core that keeps what its steps were given, and fails when told to."""

    def __init__(self) -> None:
        super().__init__(CoreSettings(check_every=1, known_models=frozenset({"m"})), build())
        self.steps: list[list[Event]] = []
        self.fails = 0

    def step(self, now: int, happened: Sequence[Event]) -> Sequence[Command]:
        self.steps.append(list(happened))
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a bug")
        return super().step(now, happened)


class UsedClock(Clock):
    """The true time, of which some may be skipped, and processor time as it is set."""

    def __init__(self) -> None:
        self.skipped = 0
        self.used = 0

    def now(self) -> int:
        return super().now() + self.skipped

    def cpu(self) -> int:
        return self.used


class Bench:
    """A driver and what it carries out."""

    def __init__(self, **options: Any) -> None:
        self.core = Core()
        self.commands: list[Command] = []
        self.faults: list[BaseException] = []
        self.turned = asyncio.Event()
        self.clock = UsedClock()
        self.driver = Driver(
            self.core,
            clock=self.clock,
            execute=self._execute,
            on_fault=self._on_fault,
            **options,
        )

    def _execute(self, commands: Sequence[Command]) -> None:
        self.commands.extend(commands)
        self.turned.set()

    def _on_fault(self, fault: BaseException) -> Scheduler:
        self.faults.append(fault)
        self.core = Core()
        self.turned.set()
        return self.core

    async def turn(self) -> None:
        """One turn happens."""
        self.turned.clear()
        async with asyncio.timeout(WAIT_S):
            await self.turned.wait()

    async def be_busy_with_single_calls(self) -> None:
        """For a whole window."""
        self.driver.post(NodesHeard([]))
        await self.turn()
        self.clock.skipped += gathering.WINDOW
        self.clock.used += 100 * gathering.WINDOW
        for rid in range(gathering.ALONE):
            self.driver.submit(request(rid), alone=True)
        await self.turn()

    async def until(self, condition: Callable[[], object], within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                self.turned.clear()
                await self.turned.wait()

    def finished(self) -> list[tuple[int, Reason]]:
        return [(c.request.rid, c.reason) for c in self.commands if isinstance(c, FinishRequest)]


def request(rid: int, **fields: Any) -> Request:
    return Request(rid, f"r{rid}", "m", received_at=Clock().now(), **fields)


async def test_all_of_one_iteration_is_one_step() -> None:
    bench = Bench()
    for rid in (1, 2, 3):
        bench.driver.submit(request(rid))
    for rid in (1, 3):
        bench.driver.cancel(rid, Reason.CANCELLED_BY_CLIENT)
    bench.driver.cancel(2, Reason.CANCELLED_BY_CLIENT, "another word")
    await bench.turn()
    (step,) = bench.core.steps
    kinds = [type(event) for event in step]
    assert kinds == [RequestsSubmitted, RequestsCancelled, RequestsCancelled]
    assert sorted(rid for rid, _ in bench.finished()) == [1, 2, 3]


async def test_step_takes_no_more_than_it_may_and_the_rest_follows() -> None:
    bench = Bench(max_events=2)
    for _ in range(5):
        bench.driver.post(NodesHeard([]))
    await bench.until(lambda: len(bench.core.steps) == 3)
    assert [len(step) for step in bench.core.steps] == [2, 2, 1]


async def test_turn_that_gathers_comes_once_enough_are_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "STEP", 60 * SECOND)
    monkeypatch.setattr(gathering, "MOST", 60 * SECOND)
    bench = Bench()
    await bench.be_busy_with_single_calls()
    bench.core.steps.clear()
    for rid in range(gathering.ENOUGH):
        assert not bench.core.steps
        bench.driver.submit(request(1000 + rid), alone=True)
        for _ in range(5):
            await asyncio.sleep(0)
    (step,) = bench.core.steps
    (submitted,) = step
    assert isinstance(submitted, RequestsSubmitted)
    assert len(submitted.requests) == gathering.ENOUGH


async def test_turn_that_gathers_comes_when_its_time_is_up() -> None:
    bench = Bench()
    await bench.be_busy_with_single_calls()
    bench.core.steps.clear()
    bench.driver.submit(request(1000), alone=True)
    await bench.until(lambda: bench.core.steps)


async def test_core_is_woken_when_it_asked_to_be() -> None:
    """By one timer, which follows the core's next wake-up."""
    bench = Bench()
    now = Clock().now()
    bench.driver.submit(request(1, deadline=now + 500 * MILLISECOND))
    await bench.turn()
    bench.driver.submit(request(2, deadline=now + 50 * MILLISECOND))
    began = asyncio.get_running_loop().time()
    await bench.until(lambda: bench.finished())
    assert bench.finished() == [(2, Reason.DEADLINE_EXCEEDED)]
    assert asyncio.get_running_loop().time() - began < 0.4
    await bench.until(lambda: len(bench.finished()) == 2)


async def test_core_fault_is_answered_and_a_fresh_core_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(max_events=1)
    first = bench.core
    first.fails = 1
    bench.driver.submit(request(1))
    bench.driver.post(NodesHeard([]))
    bench.driver.submit(request(2))
    with caplog.at_level(logging.CRITICAL):
        await bench.turn()
    assert [str(fault) for fault in bench.faults] == ["a bug"]
    assert bench.driver.faults == 1
    assert "starts anew" in caplog.text
    assert bench.driver.scheduler is bench.core is not first
    assert len(first.steps) == 1
    await asyncio.sleep(0)
    assert bench.core.steps == [], "what waited was about calls that have their end"
    bench.driver.submit(request(3))
    await bench.turn()
    assert len(bench.core.steps[-1]) == 1


async def test_fault_while_others_wait_does_not_stop_the_turns() -> None:
    bench = Bench()
    for rid in range(1, 4):
        bench.core.fails = 1
        bench.driver.submit(request(rid))
        await bench.turn()
    assert bench.driver.faults == 3
    bench.driver.submit(request(9))
    bench.driver.cancel(9, Reason.CANCELLED_BY_CLIENT)
    await bench.until(lambda: bench.finished())


async def test_observer_that_fails_is_told_of_once_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    def broken(_records: Any) -> None:
        raise RuntimeError("a bug")

    bench = Bench(observers=[broken])
    bench.driver.observe(lambda records: seen.append(len(records)))
    with caplog.at_level(logging.ERROR):
        for rid in (1, 2):
            bench.driver.submit(request(rid))
            await bench.turn()
    assert len(seen) == 2
    assert seen[0] > 0
    assert bench.driver.faults == 2
    assert not bench.faults
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_what_was_commanded_leaves_before_those_are_told_on_whom_nothing_waits() -> None:
    order: list[str] = []
    bench = Bench(observers=[lambda _records: order.append("told at once")])
    bench.driver.observe(lambda _records: order.append("told later"), later=True)
    loop = asyncio.get_running_loop()
    carry_out = bench.driver._execute

    def execute(commands: Sequence[Command]) -> None:
        loop.call_soon(order.append, "written")  # as a session's writer does
        carry_out(commands)

    bench.driver._execute = execute
    bench.driver.submit(request(1))
    await bench.turn()
    await asyncio.sleep(0)
    assert order == ["told at once", "written", "told later"]


async def test_each_turn_is_told_of_before_the_next_one_changes_anything() -> None:
    told: list[int] = []
    bench = Bench(max_events=1)
    bench.driver.observe(lambda _records: told.append(len(bench.core.steps)), later=True)
    for rid in range(3):
        bench.driver.submit(request(rid))
        bench.driver.post(NodesHeard([]))
    await bench.until(lambda: len(bench.core.steps) == 6)
    assert told[:2] == [1, 3], "those turns have records"
    bench.driver.submit(request(9))
    await bench.turn()
    bench.driver.close()
    assert told[-1] == len(bench.core.steps), "the last ones are not lost"


async def test_closed_driver_takes_no_turn() -> None:
    bench = Bench()
    bench.driver.submit(request(1, deadline=Clock().now() + 5 * MILLISECOND))
    await bench.turn()
    bench.driver.close()
    bench.driver.submit(request(2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(bench.core.steps) == 1


async def test_wake_takes_a_turn_though_nothing_happened() -> None:
    bench = Bench()
    bench.driver.wake()
    await bench.turn()
    assert bench.core.steps == [[]]


async def test_what_comes_at_the_instant_of_a_wake_up_is_not_lost() -> None:
    """Behaviour 36: two thousand requests, each submitted as the timer of the one before fires."""
    bench = Bench()
    loop, count = asyncio.get_running_loop(), 2_000
    sent = 0

    def feed() -> None:
        nonlocal sent
        for _ in range(20):
            sent += 1
            # Its deadline is the core's next wake-up, which is also the next feeding.
            bench.driver.submit(request(sent, deadline=Clock().now() + 5 * MILLISECOND))
        if sent < count:
            loop.call_at(loop.time() + 0.005, feed)

    feed()
    await bench.until(lambda: len(bench.finished()) == count, within_s=30)
    assert sorted(rid for rid, _ in bench.finished()) == list(range(1, count + 1))
    bench.driver.close()
