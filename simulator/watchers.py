"""Who may look on while the world runs?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from scheduler_service.core import commands as cmd
from scheduler_service.core.records import Record
from scheduler_service.core.types import Attempt, Instant, Request

if TYPE_CHECKING:
    from simulator.world import World


class Watcher:
    """Overrides what it wants to see; what it leaves alone costs nothing."""

    def on_submitted(self, now: Instant, requests: Sequence[Request]) -> None:
        """Calls came in."""

    def on_recorded(self, now: Instant, records: Sequence[Record]) -> None:
        """The core's records of a step."""

    def on_commanded(self, now: Instant, commands: Sequence[cmd.Command]) -> None:
        """The core's commands of a step, before they are carried out."""

    def on_delivered(
        self, now: Instant, attempt: Attempt, output_id: int, offset: int, text: str
    ) -> None:
        """A caller got a piece of output."""

    def on_finished(self, now: Instant, command: cmd.FinishRequest) -> None:
        """A caller got its outcome."""

    def on_held(self, now: Instant, node_id: str, inputs: int, capacity: int) -> None:
        """The node now holds so many inputs; it can hold `capacity`."""

    def on_fault(self, now: Instant, what: str) -> None:
        """Something was broken, or healed."""

    def on_sampled(self, now: Instant, world: World) -> None:
        """Time to look at queue and nodes."""


class Watching:
    """All watchers, by what they watch."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[Instant, Sequence[Request]], None]] = []
        self.recorded: list[Callable[[Instant, Sequence[Record]], None]] = []
        self.commanded: list[Callable[[Instant, Sequence[cmd.Command]], None]] = []
        self.delivered: list[Callable[[Instant, Attempt, int, int, str], None]] = []
        self.finished: list[Callable[[Instant, cmd.FinishRequest], None]] = []
        self.held: list[Callable[[Instant, str, int, int], None]] = []
        self.fault: list[Callable[[Instant, str], None]] = []
        self.sampled: list[Callable[[Instant, World], None]] = []

    def add(self, watcher: Watcher) -> None:
        """Show it all that it overrides."""
        for name, shown in vars(self).items():
            method: Any = getattr(watcher, f"on_{name}")
            if method.__func__ is not getattr(Watcher, f"on_{name}"):
                shown.append(method)
