"""What does a node ask of an engine model, and what does the engine tell it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from scheduler_service.core.types import Duration, Instant
from simulator.agenda import Agenda
from simulator.workload.arrival import Arrival


class Work:
    """One attempt inside an engine."""

    __slots__ = (
        "arrival",
        "charged_tokens",
        "complete",
        "dispatch_id",
        "ended",
        "first_output_at",
        "inputs",
        "made",
        "made_so_far",
        "offset",
        "out_of_memory",
        "started_at",
        "stopped",
    )

    def __init__(
        self, dispatch_id: int, arrival: Arrival, inputs: int = 1, offset: int = 0
    ) -> None:
        self.dispatch_id = dispatch_id
        self.arrival = arrival
        self.inputs = inputs
        self.charged_tokens = 0  # of its node's credit
        self.offset = offset  # output tokens that another attempt made, and this one goes on from
        self.started_at: Instant = -1  # when the engine began; -1: not yet
        self.first_output_at: Instant = -1
        self.made = 0  # output tokens, without `offset`; settled when it ends or is preempted
        self.made_so_far = 0  # the same, at the last word on progress
        self.ended = False  # the engine is through with it
        self.complete = False  # it came to its natural end
        self.stopped = False  # cancelled, though it has to run on
        self.out_of_memory = False  # it ended because the engine has no room for it, ever

    @property
    def to_make(self) -> int:
        """Output tokens of this attempt, if it runs to its end; 0 where only the end was lost."""
        return max(0, self.arrival.output_tokens - self.offset)

    @property
    def prompt_tokens(self) -> int:
        """What is to be read first: the prompt and the output to go on from."""
        return self.arrival.prompt_tokens + self.offset


class Host(Protocol):
    """The node around an engine."""

    agenda: Agenda

    def ended(self, works: Sequence[Work]) -> None:
        """The engine is through with these."""
        ...

    def progressed(self, works: Sequence[Work]) -> None:
        """These have come further (`Work.made_so_far`), if the engine was asked to tell."""
        ...

    def stretch(self, duration: Duration) -> Duration:
        """What takes `duration` on a sound node takes this long here."""
        ...


class Engine(Protocol):
    """An engine model. Everything happens at the agenda's now."""

    busy: Duration  # input-time spent so far: the sum over inputs of the time each ran

    def submit(self, works: Sequence[Work], *, atomic: bool) -> None:
        """Take these; `atomic`: as one batch."""
        ...

    def cancel(self, dispatch_id: int) -> None:
        """Stop it, as soon as such an engine can. Unknown ids are ignored."""
        ...

    def halt(self) -> None:
        """The process is gone: nothing of what it held is ever heard of again."""
        ...


Make = Callable[[Host], Engine]
