"""Which nodes does a run have? Kinds by name, fleets as "4xH100-70B,2xA100-70B", and starting them.

A fleet knows the price and the hours of each node, starts nodes with their cold start when the
autoscaler asks, and lets go of drained ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.types import MILLISECOND, SECOND, Duration
from simulator.calibration import (
    GPU_PRICE,
    LINEAR,
    MEASURED_2023,
    Hardware,
    present_stack,
)
from simulator.engines import (
    ContinuousEngine,
    ContinuousProfile,
    IndependentEngine,
    StaticEngine,
    affine,
    linear,
)
from simulator.engines.interface import Engine, Host
from simulator.kinds import NodeKind
from simulator.nodes import ModelledNode
from simulator.world import World

SLOTS: Final = 64  # of a continuous engine, unless a fleet says otherwise: as far as was measured
MOST_NODES: Final = 100_000  # more than any fleet, and what memory holds
_PART = re.compile(
    r"(?:(?P<count>\d+)x)?(?P<kind>[A-Za-z][\w.-]*)(?:@(?P<slots>\d{1,9}))?"
    r"(?:=(?P<models>[\w./:-]+(?:\+[\w./:-]+)*))?"
)


class FleetError(ValueError):
    """A fleet cannot be read; the message says what would be."""


def continuous(name: str, hardware: Hardware, *, slots: int = SLOTS) -> NodeKind:
    """A node with one continuous engine of measured speed."""
    profile = ContinuousProfile(cost=hardware.cost, slots=slots, kv_tokens=hardware.kv_tokens)

    def make(host: Host) -> Engine:
        return ContinuousEngine(host, profile)

    return NodeKind(
        name=name,
        make=make,
        slots=slots,
        context_length=hardware.kv_tokens,
        kv_capacity=hardware.kv_tokens,
        prefill_rate=hardware.prefill_rate(),
        token_times=hardware.token_times(slots),
        price_per_hour=GPU_PRICE[hardware.gpu] * hardware.gpus,
        cold_start=hardware.cold_start(),
        labels={"calibration": hardware.cost.source},
    )


def servers(
    slots: int,
    base: Duration,
    per_prompt_token: float,
    per_output_token: float,
    *,
    name: str = "servers",
    cold_start: Duration = 0,
) -> NodeKind:
    """A node of independent servers whose work takes base + a * prompt + b * output."""
    duration = linear(base, per_prompt_token, per_output_token)

    def make(host: Host) -> Engine:
        return IndependentEngine(host, slots, duration)

    return NodeKind(name=name, make=make, slots=slots, cold_start=cold_start, price_per_hour=1.0)


def static(
    slots: int, base: Duration, per_item: Duration, *, name: str = "static", look_ahead: int = 0
) -> NodeKind:
    """A node whose batches of up to `slots` take base + per_item * size."""

    def make(host: Host) -> Engine:
        return StaticEngine(host, 1, affine(base, per_item))

    return NodeKind(
        name=name,
        make=make,
        slots=slots,
        mode=EngineMode.STATIC,
        look_ahead=look_ahead,
        batch_times=tuple((size, base + per_item * size) for size in (1, slots)),
        price_per_hour=1.0,
    )


def _kinds() -> dict[str, Callable[[int], NodeKind]]:
    def of(name: str, hardware: Hardware) -> Callable[[int], NodeKind]:
        return lambda slots: continuous(name, hardware, slots=slots or SLOTS)

    found = {name: of(name, hardware) for name, hardware in MEASURED_2023.items()}
    for name, hardware in LINEAR.items():
        now = replace(hardware, cost=present_stack(hardware.cost))
        found[f"{name}-linear"] = of(f"{name}-linear", hardware)
        found[f"{name}-2025"] = of(f"{name}-2025", now)
    # E5 and E6: one request after another on each slot of a 70B node.
    found["slots-70B"] = lambda slots: servers(
        slots or 8, 24_300_000, 70_800, 34_500_000, name="slots-70B"
    )
    found["static"] = lambda slots: static(slots or 8, 20 * MILLISECOND, 2 * MILLISECOND)
    return found


KINDS: Final[Mapping[str, Callable[[int], NodeKind]]] = _kinds()


def kind(name: str, slots: int = 0) -> NodeKind:
    """The kind of that name, with its own number of slots unless given.

    Raises:
        FleetError: there is none.
    """
    if name not in KINDS:
        raise FleetError(f"no node kind {name!r}; known: {', '.join(KINDS)}")
    return KINDS[name](slots)


@dataclass(frozen=True)
class Group:
    """So many nodes of one kind."""

    count: int
    kind: NodeKind


def parse(text: str) -> list[Group]:
    """A fleet: "COUNTxKIND", parts joined by commas, "@SLOTS" where a kind's own are not meant,
    "=MODEL+MODEL" for what they serve ("m" where not said).

    Raises:
        FleetError: it is none.
    """
    groups = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise FleetError(f"{part!r} is not COUNTxKIND, as in 4xH100-70B or 2xH100-70B@32")
        count = int(match["count"] or 1)
        if count > MOST_NODES:
            raise FleetError(f"{part!r} is more than {MOST_NODES:,} nodes")
        if match["slots"] and int(match["slots"]) == 0:
            raise FleetError(f"{part!r}: a node has 1 slot or more, as in 2xH100-70B@32")
        made = kind(match["kind"], int(match["slots"] or 0))
        if match["models"]:
            made = replace(made, models=tuple(match["models"].split("+")))
        groups.append(Group(count, made))
    return groups


class Fleet:
    """The nodes of a world. Nodes that the autoscaler asks for are of the first group's kind."""

    def __init__(self, world: World, groups: Iterable[Group], *, managed: bool = False) -> None:
        self.world = world
        self.nodes: dict[str, ModelledNode] = {}
        self.starting = 0
        self.ordered: Duration = 0  # time of cold starts that are paid for and over
        self.groups = list(groups)
        self._managed = managed
        self._started = 0
        self._orders = 0
        self._unwanted = 0  # of those that are starting
        for group in self.groups:
            for _ in range(group.count):
                self.start(group.kind)
        world.scale = self.on_scale

    def start(self, kind: NodeKind, node_id: str = "") -> ModelledNode:
        """A node, there at once; numbered where no id is given."""
        node_id = node_id or f"n{self._started:04}"
        self._started += 1
        node = ModelledNode(self.world, node_id, kind, managed=self._managed)
        self.nodes[node_id] = node
        node.join()
        return node

    def on_scale(self, command: cmd.RequestScale) -> None:
        """Order what is lacking, or send back what is not wanted any more of what is on its way.

        Drained nodes leave by themselves.
        """
        kind = self.groups[0].kind
        staying = command.ready - len(command.drained)
        lacking = max(0, command.desired - staying) - (self.starting - self._unwanted)
        if lacking < 0:
            self._unwanted -= lacking
            return
        kept = min(lacking, self._unwanted)
        self._unwanted -= kept
        for _ in range(lacking - kept):
            self.starting += 1
            self._orders += 1
            takes = kind.cold_start_of(self.world.settings.seed, self._orders)
            self.world.agenda.at(self.world.now + takes, self._arrive, (kind, takes))

    def _arrive(self, order: tuple[NodeKind, Duration]) -> None:
        kind, took = order
        self.starting -= 1
        self.ordered += took
        if self._unwanted:
            self._unwanted -= 1
        else:
            self.start(kind)

    def fail_to_start(self, pool: str, why: str) -> None:
        """Tell the core that what it asked for does not come."""
        self.world.post(ev.ScaleFailed(pool, why))

    def node_hours(self) -> float:
        """Of all nodes, cold starts included: what is paid for."""
        up = sum(node.uptime() for node in self.nodes.values())
        return (up + self.ordered) / (3600 * SECOND)

    def cost(self) -> float:
        """Node-hours by price."""
        total = sum(n.uptime() * n.kind.price_per_hour for n in self.nodes.values())
        price = self.groups[0].kind.price_per_hour if self.groups else 0.0
        return (total + self.ordered * price) / (3600 * SECOND)

    def busy(self) -> Duration:
        """Input-time spent in engines."""
        return sum(node.engine.busy for node in self.nodes.values())

    def capacity(self) -> Duration:
        """Slot-time that there was."""
        return sum(node.uptime() * node.kind.slots for node in self.nodes.values())
