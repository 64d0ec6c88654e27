"""Which models take no more work, and which of those hold none any more?

A model is closed before it is unloaded. What was received of it goes on; what still runs when the
grace is over goes back to the scheduler. It stays closed until the world says how its unloading
went (`reopen`), so that nothing slips in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from node_agent.core.slots import EngineSlots

Key = tuple[str, str]  # engine id, model


@dataclass(slots=True)
class Closing:
    """One closed model."""

    deadline_ns: int | None  # then the rest goes back; None: no limit, or it is past
    drained: bool = False  # it holds nothing, and the world was told


class Closings:
    """The closed models of one agent."""

    def __init__(self) -> None:
        self._closed: dict[Key, Closing] = {}

    def __bool__(self) -> bool:
        return bool(self._closed)

    def __contains__(self, key: Key) -> bool:
        return key in self._closed

    def close(self, key: Key, deadline_ns: int | None) -> None:
        """Nothing new of it; a second close begins anew."""
        self._closed[key] = Closing(deadline_ns)

    def reopen(self, key: Key) -> None:
        """It may have work again, where its engine still has it."""
        self._closed.pop(key, None)

    def next(self) -> int | None:
        """The earliest end of a grace."""
        ends = (c.deadline_ns for c in self._closed.values() if c.deadline_ns is not None)
        return min(ends, default=None)

    def expire(self, now_ns: int) -> list[Key]:
        """Those whose grace is over now, once each."""
        over = [
            key
            for key, closing in self._closed.items()
            if closing.deadline_ns is not None and closing.deadline_ns <= now_ns
        ]
        for key in over:
            self._closed[key].deadline_ns = None
        return over

    def drained(self, engines: Mapping[str, EngineSlots]) -> list[Key]:
        """Those of which nothing is held any more, once each."""
        empty = [
            (engine_id, model)
            for (engine_id, model), closing in self._closed.items()
            if not closing.drained and not _holds(engines.get(engine_id), model)
        ]
        for key in empty:
            self._closed[key].drained = True
        return empty


def _holds(slots: EngineSlots | None, model: str) -> bool:
    return slots is not None and (
        any(item.model == model for item in (*slots.inside.values(), *slots.freed.values()))
        or any(held.item.model == model for group in slots.waiting for held in group.members)
    )
