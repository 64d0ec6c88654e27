"""The demo's calls: each wish sent as a stream by the real client, and all that came back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchyard.cli.demo.board import Board
from batchyard.cli.demo.peak import MAX_TOKENS, Wish

if TYPE_CHECKING:
    from batchyard import AsyncClient, AsyncStream, BatchyardError, Result


@dataclass(slots=True, eq=False)
class Call:
    """One request of the demo, from its sending to its end."""

    request_id: str
    act: str
    wish: Wish
    sent_at: float
    stream: AsyncStream | None = None
    pieces: list[tuple[int, str]] = field(default_factory=list)  # attempt, text
    tokens: int = 0  # that arrived
    result: Result | None = None
    error: BatchyardError | None = None
    ended_at: float | None = None

    @property
    def node_id(self) -> str:
        """Where it runs or ran last; empty: nowhere yet."""
        return self.stream.node_id if self.stream is not None else ""

    @property
    def done(self) -> bool:
        return self.ended_at is not None

    @property
    def took_s(self) -> float:
        return (self.ended_at or time.monotonic()) - self.sent_at

    @property
    def accepted(self) -> bool:
        """Whether it entered the queue: all but what admission refused."""
        return self.error is None or self.error.reason != "DEADLINE_UNREACHABLE"

    @property
    def queue_s(self) -> float | None:
        """Time in the queue over all attempts, by the scheduler's clock; None: not answered."""
        queue = self.result.timings.queue if self.result is not None else None
        return queue.total_seconds() if queue is not None else None

    def hear(self, text: str, tokens: int, attempt: int) -> None:
        """Take a piece of the output."""
        self.tokens += tokens
        if self.pieces and self.pieces[-1][0] == attempt:
            self.pieces[-1] = (attempt, self.pieces[-1][1] + text)
        elif text:
            self.pieces.append((attempt, text))


class Caller:
    """Sends wishes and keeps every call."""

    def __init__(self, client: AsyncClient, model: str, board: Board) -> None:
        self.calls: list[Call] = []
        self._client = client
        self._model = model
        self._board = board
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: Counter[str] = Counter()

    def send(self, act: str, wishes: Sequence[Wish]) -> list[Call]:
        """Send all at once, and do not wait for them."""
        calls = [Call(self._new_id(act), act, wish, time.monotonic()) for wish in wishes]
        self.calls += calls
        self._tasks += [asyncio.create_task(self._follow(call)) for call in calls]
        return calls

    def _new_id(self, act: str) -> str:
        """An id for people to follow: peak-07. The scheduler is ours alone, so it is unique."""
        self._sent[act] += 1
        return f"{act}-{self._sent[act]:02}"

    async def answered(self, calls: Sequence[Call], *, within_s: float) -> None:
        """Wait until all of them have ended.

        Raises:
            Stuck: some have not within that time.
        """
        await self._board.until(
            lambda: all(call.done for call in calls),
            within_s=within_s,
            what=f"the end of {len(calls)} requests",
        )

    async def close(self) -> None:
        """Cancel what is still open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, call: Call) -> None:
        from batchyard import BatchyardError

        wish = call.wish
        stream = self._client.stream(
            wish.prompt,
            request_id=call.request_id,
            model=self._model,
            task_type=wish.task_type,
            priority=wish.priority,
            max_tokens=MAX_TOKENS,
            temperature=0,
            **_limits(wish),
        )
        call.stream = stream
        try:
            async with stream:
                async for event in stream:
                    call.hear(event.text, event.tokens, stream.attempt)
                    self._board.changed()
                call.result = stream.result
        except BatchyardError as error:
            call.error = error
        finally:
            call.ended_at = time.monotonic()
            self._board.changed()


def _limits(wish: Wish) -> dict[str, Any]:
    limits: dict[str, Any] = {"max_wait": wish.max_wait_s, "timeout": wish.timeout_s}
    if wish.degrade:
        limits["degrade"] = list(wish.degrade)
    return limits
