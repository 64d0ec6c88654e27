"""Faults of our own: they are answered, they stay where they are, and the rest goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest

from scheduler_service.core import Scheduler
from scheduler_service.core.types import Request
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening
from scheduler_service.rpc.results import ResultBuilder
from tests.integration.scheduler.harness import (
    SINGLE,
    STREAMS,
    WAYS,
    World,
    prompt,
    running_world,
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world(quiet=False) as running:
        await running.add_agent(slots=8)
        yield running


async def test_fault_of_the_core_ends_open_calls_and_the_service_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of every way in hear INTERNAL, agents come back, and new calls are served."""
    open_calls = [await world.begin(way, prompt("[[stall=2]]")) for way in WAYS]
    await world.until(lambda: world.running() == 4)
    step = Scheduler.step

    def fails_once(self: Scheduler, now: int, happened: Sequence[Any]) -> Any:
        monkeypatch.setattr(Scheduler, "step", step)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Scheduler, "step", fails_once)
    world.driver.wake()
    for exchange in open_calls:
        answer = await exchange.wait()
        assert answer.reason == "INTERNAL"
        assert answer.code == grpc.StatusCode.INTERNAL.value[0]
    assert world.driver.faults == 1
    await world.until(lambda: world.can_work("n1"))
    for way in WAYS:
        assert (await world.ask(way, prompt())).error is None
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_result_that_cannot_be_built_is_an_error_not_silence(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    wall_of = ResultBuilder._wall_of  # every result needs it, plain or built

    def fails_for_one(self: ResultBuilder, request: Request) -> int:
        if request.request_id == "cursed":
            raise RuntimeError("a bug")
        return wall_of(self, request)

    monkeypatch.setattr(ResultBuilder, "_wall_of", fails_for_one)
    cursed = await world.begin(way, prompt(request_id="cursed"))
    assert (await world.ask(way, prompt())).error is None
    answer = await cursed.wait()
    assert answer.reason == "INTERNAL"
    await world.settled()


@pytest.mark.parametrize("way", STREAMS)
async def test_broken_sink_does_not_stop_the_reader_of_its_node(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    deliver = Entry.deliver

    def fails_for_one(self: Entry, *row: Any) -> None:
        if self.request.request_id == "cursed":
            raise RuntimeError("a bug")
        deliver(self, *row)

    monkeypatch.setattr(Entry, "deliver", fails_for_one)
    cursed = await world.begin(way, prompt("[[tokens=5]]", request_id="cursed"))
    others = [await world.begin(way, prompt("[[tokens=5]]")) for _ in range(3)]
    for exchange in others:
        assert (await exchange.wait()).text.count(" ") == 5
    await cursed.wait()
    await world.settled()


@pytest.mark.parametrize("way", WAYS)
async def test_fault_while_a_call_comes_in_is_its_own_alone(
    world: World, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    def fails_for_one(entry: Entry, opening: Opening) -> None:
        if entry.request.request_id == "cursed":
            raise RuntimeError("a bug")

    world.intake._on_entry = fails_for_one
    with caplog.at_level(logging.ERROR):
        answer = await world.ask(way, prompt(request_id="cursed"))
    assert answer.reason == "INTERNAL"
    if way in SINGLE:
        assert answer.status is grpc.StatusCode.INTERNAL
    assert "a bug" in caplog.text
    assert (await world.ask(way, prompt())).error is None
    await world.settled()


async def test_fault_of_a_caller_is_not_its_neighbours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two callers share a request; telling the first of them fails."""
    request = prompt("[[sleep=100ms]][[tokens=5]]", request_id="shared")
    first = await world.begin("generate", request)
    await world.until(lambda: world.running() == 1)
    (entry,) = world.book.entries.values()

    def fails(*_result: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(entry.callers[0], "finish", fails)
    second = await world.ask("generate", request)
    assert second.text.count(" ") == 5
    await first.cancel()
    await asyncio.wait_for(first.ended.wait(), 5)
    await world.settled()
