"""Which requests are open, and which answers are given again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from batchyard.v1 import inference_pb2, types_pb2
from batchyard.wire.v1 import wire_pb2
from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core.commands import FinishRequest
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.core.types import SECOND, Request
from scheduler_service.driver import Driver
from scheduler_service.effects import Effects
from scheduler_service.policies import build
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.results import ResultBuilder
from scheduler_service.rpc.validate import Refused
from tests.unit.scheduler.small_world import HandClock


def body_of(prompt: str, **fields: Any) -> bytes:
    """A request's own bytes."""
    asked = inference_pb2.InferenceRequest(request_id="a", model="m", **fields)
    asked.text.prompt = prompt
    return asked.SerializeToString()


BODY, OTHER_BODY = body_of("body"), body_of("other")


class Waiter:
    """A caller that waits for the end."""

    streams = False

    def __init__(self) -> None:
        self.results: list[inference_pb2.InferenceResult] = []

    def finish(self, result: bytes, error: types_pb2.Error | None) -> None:
        self.results.append(inference_pb2.InferenceResult.FromString(result))


class Bench:
    """A book with a real core behind it that knows the model "m" and no node."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.effects = Effects(ResultBuilder(self.clock))
        core = Scheduler(CoreSettings(check_every=1, known_models=frozenset({"m"})), build())

        def fails(fault: BaseException) -> Scheduler:
            raise fault

        self.driver = Driver(core, clock=self.clock, execute=self.effects.execute, on_fault=fails)
        self.book = Book(self.driver, self.clock, replay_bytes=2_000)
        self.effects.book = self.book
        self._rids = 0

    def open(
        self, name: str = "a", *, tenant: str = "", detach_s: float = 0, body: bytes = BODY
    ) -> Entry:
        """A keyed request with one caller."""
        self._rids += 1
        request = Request(self._rids, name, "m", 5, self.clock.now(), tenant)
        request.size_bytes = 1
        entry = Entry(request, body, self.clock)
        entry.detach = int(detach_s * SECOND)
        caller: Any = Waiter()
        entry.callers = (caller,)
        self.book.open(entry, ("", tenant, name))
        return entry

    def end(self, entry: Entry, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> None:
        """The core's word."""
        entry.request.finished_at = self.clock.now()
        payload = wire_pb2.PackedItemResult(
            finish_reason=types_pb2.FINISH_REASON_STOP,
            outputs=[inference_pb2.Output(text=fields.pop("text", "t")).SerializeToString()],
        )
        command = FinishRequest(entry.request, outcome, payload=payload, **fields)
        self.effects.execute([command])

    def find(self, name: str = "a", tenant: str = "", body: bytes = BODY) -> Entry | bytes | None:
        return self.book.find(("", tenant, name), body)

    async def turn(self) -> None:
        """The driver's turn, which is due in this iteration."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.driver.close()


def results(caller: Any) -> list[inference_pb2.InferenceResult]:
    assert isinstance(caller, Waiter)
    return caller.results


async def test_request_in_flight_is_found_by_its_key(bench: Bench) -> None:
    entry = bench.open()
    assert bench.find() is entry
    assert bench.find("b") is None
    assert bench.find(tenant="t") is None
    assert bench.book.by_request_id("", "a") is entry
    assert bench.book.by_request_id("t", "a") is None


async def test_other_body_conflicts_before_and_after_the_end(bench: Bench) -> None:
    entry = bench.open()
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            bench.find(body=OTHER_BODY)
        assert caught.value.error.reason == types_pb2.ERROR_REASON_REQUEST_ID_CONFLICT
        bench.end(entry)


@pytest.mark.parametrize("prompt", ["short", "long " * 1_000])
async def test_time_trace_and_hints_are_not_part_of_a_body(bench: Bench, prompt: str) -> None:
    entry = bench.open(body=body_of(prompt))
    again = body_of(prompt, user_id="u", trace={"traceparent": "t"}, timeout={"seconds": 9})
    assert bench.find(body=again) is entry
    bench.end(entry)
    assert isinstance(bench.find(body=again), bytes)
    with pytest.raises(Refused):
        bench.find(body=body_of(prompt + "."))


async def test_finished_request_leaves_nothing_but_its_answer(bench: Bench) -> None:
    entry = bench.open()
    caller = entry.callers[0]
    assert not bench.book.idle.is_set()
    bench.end(entry)
    assert [result.outputs[0].text for result in results(caller)] == ["t"]
    assert bench.book.idle.is_set()
    assert not bench.book.entries
    assert bench.book.by_request_id("", "a") is None
    assert entry.request.context is None
    assert entry.request_bytes == b""
    replay = bench.find()
    assert isinstance(replay, bytes)
    assert inference_pb2.InferenceResult.FromString(replay) == results(caller)[0]


@pytest.mark.parametrize(
    ("outcome", "reason", "kept"),
    [
        (Outcome.SUCCEEDED, Reason.NONE, True),
        (Outcome.FAILED, Reason.INVALID_ARGUMENT, True),
        (Outcome.FAILED, Reason.ENGINE_ERROR, True),
        (Outcome.FAILED, Reason.ATTEMPTS_EXHAUSTED, False),
        (Outcome.FAILED, Reason.INTERNAL, False),
        (Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED, False),
        (Outcome.CANCELLED, Reason.CANCELLED_BY_CLIENT, False),
        (Outcome.REJECTED, Reason.MODEL_NOT_FOUND, False),
    ],
)
async def test_only_ends_that_will_not_change_are_kept(
    bench: Bench, outcome: Outcome, reason: Reason, kept: bool
) -> None:
    bench.end(bench.open(), outcome, reason=reason)
    assert (bench.find() is not None) is kept


async def test_answers_are_kept_for_their_time_and_no_longer(bench: Bench) -> None:
    bench.end(bench.open("a"))
    bench.clock.instant += 599 * SECOND
    assert bench.find("a") is not None
    bench.clock.instant += 2 * SECOND
    assert bench.find("a") is None
    bench.end(bench.open("b"))
    bench.clock.instant += 700 * SECOND
    bench.end(bench.open("c"))
    assert list(bench.book._replays) == [("", "", "c")], "old ones go without being asked for"


async def test_kept_answers_are_bounded_in_bytes(bench: Bench) -> None:
    for name in "abcde":
        bench.end(bench.open(name), text="x" * 500)
    assert bench.find("a") is None
    assert bench.find("e") is not None
    assert 0 < bench.book._replay_bytes <= 2_000
    bench.end(bench.open("large"), text="x" * 5_000)
    assert bench.find("large") is None
    assert bench.book._replay_bytes == 0


async def test_last_caller_takes_the_request_with_it(bench: Bench) -> None:
    entry = bench.open()
    first: Any = entry.callers[0]
    second: Any = Waiter()
    entry.attach(second, None)
    bench.book.leave(entry, first)
    bench.book.leave(entry, first)
    await bench.turn()
    assert bench.find() is entry
    bench.book.leave(entry, second)
    assert bench.find() is None, "its id stands for a new request from now on"
    await bench.turn()
    assert not bench.book.entries
    assert results(first) == results(second) == []


async def test_giving_up_ends_it_alone_and_leaves_it_to_others(bench: Bench) -> None:
    entry = bench.open()
    first, second = entry.callers[0], Waiter()
    entry.attach(second, None)  # type: ignore[arg-type]
    bench.book.give_up(entry, first, Reason.CLIENT_TOO_SLOW, "slow")
    assert [r.error.reason for r in results(first)] == [types_pb2.ERROR_REASON_CLIENT_TOO_SLOW]
    assert results(second) == []
    bench.book.give_up(entry, second, Reason.CANCELLED_BY_CLIENT, "enough")  # type: ignore[arg-type]
    await bench.turn()
    assert [r.error.message for r in results(second)] == ["enough"]
    assert len(results(first)) == 1


async def test_grace_is_cut_short_by_who_comes_back(bench: Bench) -> None:
    entry = bench.open(detach_s=30)
    bench.book.leave(entry, entry.callers[0])
    await bench.turn()
    assert entry.detach_timer is not None
    assert bench.find() is entry
    back = Waiter()
    entry.attach(back, None)  # type: ignore[arg-type]
    assert entry.detach_timer is None
    bench.end(entry)
    assert len(results(back)) == 1


async def test_grace_ends_by_its_timer(bench: Bench) -> None:
    entry = bench.open(detach_s=0.02)
    bench.book.leave(entry, entry.callers[0])
    async with asyncio.timeout(5):
        await bench.book.idle.wait()
    assert bench.find() is None


async def test_end_of_an_old_request_does_not_touch_its_successor(bench: Bench) -> None:
    """The same id again while the cancel of the first is under way."""
    old = bench.open()
    bench.book.cancel(old, Reason.CANCELLED_BY_CLIENT)
    new = bench.open()
    await bench.turn()
    assert bench.find() is new
    assert bench.book.by_request_id("", "a") is new
    assert list(bench.book.entries) == [new.request.rid]
