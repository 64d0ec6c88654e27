"""A service that is to go with its parent notices how its standard input ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest

from service_kit import parent
from service_kit.event_loop import loop_factory


class Input:
    """A pipe in the place of standard input."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def fileno(self) -> int:
        return self.reader


@pytest.fixture
async def pipe(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Input]:
    made = Input()
    monkeypatch.setattr(sys, "stdin", made)
    yield made
    asyncio.get_running_loop().remove_reader(made.reader)
    os.close(made.reader)


async def test_what_a_parent_writes_is_dropped_and_its_end_is_noticed(pipe: Input) -> None:
    gone = asyncio.Event()
    parent.watch_stdin(gone.set)
    os.write(pipe.writer, b"x" * 10_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gone.wait(), 0.05)
    os.close(pipe.writer)
    await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize("factory", [None, loop_factory()])
def test_input_that_no_parent_holds_has_ended(
    factory: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watch() -> None:
        gone = asyncio.Event()
        parent.watch_stdin(gone.set)
        await asyncio.wait_for(gone.wait(), 5)

    with open(os.devnull) as nothing, asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", nothing)
        runner.run(watch())
        monkeypatch.setattr(sys, "stdin", None)
        runner.run(watch())
