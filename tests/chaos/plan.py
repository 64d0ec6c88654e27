"""Which fault comes when, to whom, and for how long? Drawn from the seed before the run begins."""

from __future__ import annotations

import random
from dataclasses import dataclass

SCHEDULER = "scheduler"
CLIENTS = "clients"
NODES = "nodes"
ENGINE_NODES = "engine nodes"  # those whose engine has processes of its own
SERVER_NODES = "server nodes"  # those of them whose engine is a server


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `hold_s`: bounds of how long it lasts, drawn evenly."""

    name: str
    per_minute: float
    on: str  # a group of nodes, SCHEDULER or CLIENTS
    hold_s: tuple[float, float] = (0.0, 0.0)


KINDS = (
    Kind("kill_node", 6.5, NODES, (0.0, 3.0)),
    Kind("kill_scheduler", 1.3, SCHEDULER, (0.0, 1.0)),
    Kind("freeze_node", 2.6, NODES, (1.0, 8.0)),
    Kind("freeze_scheduler", 0.6, SCHEDULER, (0.5, 4.0)),
    Kind("cut_node", 2.6, NODES),
    Kind("cut_clients", 1.0, CLIENTS),
    Kind("blackhole_node", 1.3, NODES, (1.0, 8.0)),
    Kind("slow_node", 1.0, NODES, (3.0, 8.0)),
    Kind("disk_full", 1.0, SCHEDULER, (1.0, 4.0)),
    Kind("clock_jump", 1.0, SCHEDULER, (1.0, 5.0)),
    Kind("clock_jump_node", 1.0, NODES, (1.0, 5.0)),
    Kind("garbage", 1.0, SCHEDULER),
    Kind("stale_speaker", 1.5, SCHEDULER),
    Kind("kill_engine", 3.0, ENGINE_NODES),
    Kind("freeze_engine", 1.5, ENGINE_NODES, (1.0, 8.0)),
    Kind("garble_engine", 1.5, SERVER_NODES),
)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """`at_s` is the time since the load began."""

    at_s: float
    name: str
    target: str
    hold_s: float


def draw(seed: int, seconds: float, groups: dict[str, list[str]]) -> list[Fault]:
    """Return the faults of a run, in order. Each kind comes at least once.

    `groups`: the nodes of each group.
    """
    dice = random.Random(seed)
    faults = []
    for kind in KINDS:
        for _ in range(max(1, round(kind.per_minute * seconds / 60))):
            target = dice.choice(groups[kind.on]) if kind.on in groups else kind.on
            at_s = dice.uniform(0.03, 0.95) * seconds
            faults.append(Fault(at_s, kind.name, target, dice.uniform(*kind.hold_s)))
    return sorted(faults)
