"""An agent may forget a result only once it is where it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from scheduler_service.clock import Clock
from scheduler_service.core import commands as cmd
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import Request
from scheduler_service.effects import Effects
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.results import ResultBuilder

ACK = cmd.AcknowledgeResults("n1", 7, 1)
END = cmd.FinishRequest(Request(1, "night/0", "m"), Outcome.SUCCEEDED)


class Told:
    """Keeps what happened, in order; stands for a session, the book and the store."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.due: list[Callable[[], None]] = []
        self.effects = Effects(ResultBuilder(Clock()))
        self.effects.sessions["n1", 7] = cast("Any", self)
        self.effects.book = cast("Book", self)
        self.effects.after_results = self.due.append

    def acknowledge(self, count: int) -> None:
        self.happened.append(f"acknowledged {count}")

    def dispatch(self, batch: object) -> None:
        self.happened.append("dispatched")

    def finish(self, *_: object) -> None:
        self.happened.append("ended")

    def store(self) -> None:
        for act in self.due:
            act()


def carried_out(commands: Sequence[Any]) -> Told:
    told = Told()
    told.effects.execute(commands)
    return told


async def test_acknowledgement_waits_for_the_store() -> None:
    told = carried_out([ACK, END])
    assert told.happened == ["ended"]
    assert len(told.due) == 1
    told.store()
    assert told.happened == ["ended", "acknowledged 1"]


async def test_acknowledgement_without_ends_goes_out_too() -> None:
    told = carried_out([ACK])
    told.store()
    assert told.happened == ["acknowledged 1"]


async def test_acknowledgement_comes_after_ends_that_were_put_off() -> None:
    """Where work goes out in the same step, answers are built a turn of the loop later."""
    told = carried_out([ACK, cmd.DispatchBatch("n1", 7, cast("Any", None)), END])
    assert told.happened == ["dispatched"]
    assert not told.due, "the result is not even on its way to the store"
    await asyncio.sleep(0)
    assert told.happened == ["dispatched", "ended"]
    assert len(told.due) == 1


async def test_without_jobs_nothing_waits() -> None:
    told = Told()
    told.effects.after_results = None
    told.effects.execute([ACK, END])
    assert told.happened == ["acknowledged 1", "ended"]
