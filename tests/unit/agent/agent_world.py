"""A world around the agent's core: a clock in hand, and engines that do as they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from node_agent.core import Agent, EngineSpec, Item, Limits, Outcome, invariants
from node_agent.core import commands as cmd
from node_agent.core import events as ev

SECOND = 1_000_000_000
TERM = 7
E = "e0"

C = TypeVar("C")


def dispatch_id(counter: int, term: int = TERM) -> int:
    """An id as a scheduler mints it."""
    return term << 40 | counter


def item(counter: int, *, term: int = TERM, **fields: object) -> Item:
    """An item with sensible fields."""
    return Item(dispatch_id=dispatch_id(counter, term), attempt=1, **fields)  # type: ignore[arg-type]


def batch(*items: Item, engine_id: str = E, atomic: bool = False) -> ev.BatchReceived:
    """A batch event."""
    return ev.BatchReceived(engine_id=engine_id, items=items, atomic=atomic)


class World:
    """One agent with one engine `e0`, and all commands it ever gave."""

    def __init__(self, *, limits: Limits | None = None, **spec: object) -> None:
        spec = {"engine_id": E, "slots": 2, **spec}
        self.spec = EngineSpec(**spec)  # type: ignore[arg-type]
        self.agent = Agent([self.spec], limits)
        self.now = 0
        self.commands: list[cmd.Command] = []

    def step(self, *events: ev.Event) -> list[cmd.Command]:
        """Turn the core once and check every invariant."""
        out = self.agent.step(self.now, events)
        self.commands += out
        invariants.check(self.agent)
        return out

    def advance(self, seconds: float) -> list[cmd.Command]:
        """Let time pass, waking the core whenever it asked for it."""
        end = self.now + int(seconds * SECOND)
        out: list[cmd.Command] = []
        while (at := self.agent.next_wakeup()) is not None and at <= end:
            self.now = max(self.now, at)
            out += self.step()
        self.now = end
        return out

    def serve(self, serving: bool = True) -> list[cmd.Command]:
        """The engine is up (or down)."""
        return self.step(ev.EngineChanged(self.spec, serving))

    def connect(
        self, *, term: int = TERM, cluster: str = "c", **welcome: object
    ) -> list[cmd.Command]:
        """Open a session and get welcomed."""
        self.step(ev.SessionOpened())
        return self.step(
            ev.Welcomed(cluster_id=cluster, term=term, session_epoch=term << 40 | 1, **welcome)  # type: ignore[arg-type]
        )

    def ready(self, **welcome: object) -> list[cmd.Command]:
        """Serve and connect."""
        self.serve()
        return self.connect(**welcome)

    def output(self, counter: int, text: str, *, choice: int = 0, channel: int = 0) -> None:
        """The engine streams."""
        update = self.agent.output(self.now, dispatch_id(counter), (choice, channel), text, 1)
        if update is not None:
            self.commands.append(update)
        invariants.check(self.agent)

    def finish(self, counter: int, *, complete: bool = True) -> list[cmd.Command]:
        """The engine is through with an item."""
        return self.step(
            ev.EngineFinished(
                engine_id=E, dispatch_id=dispatch_id(counter), complete=complete, result="done"
            )
        )


def of(kind: type[C], commands: Sequence[object]) -> list[C]:
    """The commands of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def results(commands: Sequence[object]) -> dict[int, Outcome]:
    """Outcomes by counter."""
    return {
        c.held.item.dispatch_id & 0xFF_FFFF_FFFF: c.held.outcome  # type: ignore[misc]
        for c in of(cmd.SendResult, commands)
    }


def started(commands: Sequence[object]) -> list[int]:
    """Counters of the items given to the engine, in order."""
    return [i.dispatch_id & 0xFF_FFFF_FFFF for c in of(cmd.RunItems, commands) for i in c.items]


def credit(commands: Sequence[object]) -> int | None:
    """The last credit told, in inputs."""
    totals = [c.total_inputs for c in of(cmd.SendCredit, commands)]
    return totals[-1] if totals else None
