"""The parts of the agent's state that are more than a number, and less than a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

SECOND_NS = 1_000_000_000


@dataclass(slots=True, frozen=True, kw_only=True)
class Limits:
    """Bounds of an agent."""

    cancel_grace_ns: int = SECOND_NS  # an engine's time to confirm a cancel
    linger_ns: int = 2 * SECOND_NS  # wait for acknowledgements before exiting
    unacked_results: int = 4096  # with more, no new credit is given
    clusters: int = 16  # whose terms are remembered


class Phase(Enum):
    """Where the session stands."""

    CLOSED = auto()
    GREETING = auto()
    OPEN = auto()


@dataclass(slots=True)
class DrainState:
    """A drain in progress."""

    own: bool
    terminate: bool
    reason: str
    deadline_ns: int | None  # None: no limit, or already enforced
    exit_due_ns: int | None = None
    exited: bool = False

    def add(self, earlier: DrainState) -> None:
        """Keep what an earlier drain demanded: the sooner end, and the exit."""
        self.own = self.own or earlier.own
        self.terminate = self.terminate or earlier.terminate
        self.exited = earlier.exited
        self.exit_due_ns = earlier.exit_due_ns
        instants = [i for i in (self.deadline_ns, earlier.deadline_ns) if i is not None]
        self.deadline_ns = min(instants, default=None)


@dataclass(slots=True)
class Ledger:
    """What a report must list, at one instant."""

    items_received: int
    running: dict[str, list[int]]  # engine id -> dispatch ids in the engine, without a result
    waiting: dict[str, list[int]]  # engine id -> dispatch ids received, not yet in the engine


@dataclass(slots=True)
class Counters:
    """What should not happen, and how often it did."""

    batches_without_session: int = 0
    items_without_id: int = 0
    items_repeated: int = 0
    acks_beyond_sent: int = 0
    late_results: int = 0
    late_outputs: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # that should: items, by how they ended
