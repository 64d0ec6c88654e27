"""What happens to nodes in a run about policies? Kills, slow nodes, failures at their usual rate.

"2@600s": node number 2 dies at 600 s for good; "2@600s+2m": a new one joins in its place two
minutes later; "2@600s*3": from then on it is three times slower. For faults of networks and
agents, see `faults.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from scheduler_service.core.types import NEVER, SECOND, Duration, Instant
from simulator.faults import NODE_MTBF
from simulator.fleet import Fleet
from simulator.scenario import ScenarioError, duration
from simulator.world import World

_TEXT = re.compile(
    r"(?P<node>\d+)@(?P<at>[\d.]+[a-z]+)(?:\+(?P<back>[\d.]+[a-z]+)|\*(?P<slow>[\d.]+))?"
)
REPAIR: Final = (60 * SECOND, 300 * SECOND)  # a failed node is back within this
SLOW_SHARE: Final = 0.01
SLOWNESS: Final = 3.0
MOST_SLOWNESS: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One thing that happens to one node."""

    node: int  # in the order in which the fleet started them, from 0
    at: Instant
    back_after: Duration = NEVER
    slowness: float = 0.0  # 0: it dies


def parse(text: str) -> Incident:
    """One incident, as a user writes it.

    Raises:
        ScenarioError: it is none.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ScenarioError(f"{text!r} is not NODE@TIME, as in 2@600s, 2@600s+2m or 2@600s*3")
    back = duration(match["back"]) if match["back"] else NEVER
    slow = _slowness(match["slow"], text) if match["slow"] else 0.0
    return Incident(
        node=int(match["node"]), at=duration(match["at"]), back_after=back, slowness=slow
    )


def _slowness(factor: str, text: str) -> float:
    try:
        slow = float(factor)
    except ValueError:
        slow = 0.0
    if not 0 < slow <= MOST_SLOWNESS:
        raise ScenarioError(
            f"{text!r}: what a node is slower by is above 0 and at most {MOST_SLOWNESS:,}, as in "
            "2@600s*3"
        )
    return slow


def plan(incidents: Iterable[Incident]) -> Callable[[World, Fleet], None]:
    """What puts them on a world's agenda (`Plan.prepare`)."""
    fixed = list(incidents)

    def prepare(world: World, fleet: Fleet) -> None:
        for incident in fixed:
            world.agenda.at(incident.at, lambda i: _happen(world, fleet, i), incident)

    return prepare


def _happen(world: World, fleet: Fleet, incident: Incident) -> None:
    nodes = list(fleet.nodes.values())
    if incident.node >= len(nodes):
        return  # the autoscaler has not started so many
    node = nodes[incident.node]
    if incident.slowness:
        what = f"slow {node.node_id}"
        node.slowness = incident.slowness
    else:
        what = f"kill {node.node_id}"
        node.kill()
        if incident.back_after < NEVER:
            world.agenda.at(world.now + incident.back_after, lambda _: node.join())
    for shown in world.watching.fault:
        shown(world.now, what)


def usual(
    nodes: int, until: Instant, *, seed: int = 0, mtbf: Duration = NODE_MTBF
) -> list[Incident]:
    """Failures at the usual rate of such nodes, each back within minutes, and a few slow nodes."""
    random = Random(f"{seed}/incidents")
    found = [
        Incident(node=node, at=0, slowness=SLOWNESS)
        for node in range(nodes)
        if random.random() < SLOW_SHARE
    ]
    at = 0.0
    while True:
        at += random.expovariate(1.0) * mtbf / nodes
        if at >= until:
            return found
        back = random.randint(*REPAIR)
        found.append(Incident(node=random.randrange(nodes), at=round(at), back_after=back))
