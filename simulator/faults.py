"""What goes wrong, when, and for how long? Faults as data, put on the agenda of a world.

`Fault`s are stated one by one, or drawn: a `Storm` gives each kind a mean time between faults and
draws from a seed. Whatever is still broken at `heal` is mended then, so that a run has a phase in
which only safety can be asked for, and one in which everything must come to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from scheduler_service.core import events as ev
from scheduler_service.core.types import NEVER, SECOND, Duration, Instant
from simulator.agent_node import AgentNode
from simulator.network import Network
from simulator.world import World

# One node of eight GPUs fails once in 264 days: 419 interruptions of 16,384 GPUs in 54 days
# (Llama 3, 2024), one per 50,700 GPU-hours.
NODE_MTBF: Final[Duration] = 264 * 24 * 3600 * SECOND


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong. `lasts` NEVER: until everything is mended."""

    kind: str
    at: Instant
    node: str = ""  # not for "pause"
    lasts: Duration = NEVER
    factor: float = 3.0  # of "slow"
    leap: Duration = SECOND  # of "jump"


@dataclass(frozen=True, kw_only=True)
class Storm:
    """Random faults: by kind, how often one comes (mean over all nodes), and how long it lasts."""

    every: Mapping[str, Duration]
    lasts: tuple[Duration, Duration] = (SECOND // 5, 8 * SECOND)  # evenly between
    until: Instant = 0

    def draw(self, nodes: Sequence[str], seed: int) -> list[Fault]:
        """The same seed, the same faults; one kind's do not depend on whether there are others."""
        faults = []
        for kind, every in self.every.items():
            random = Random(f"{seed}/{kind}/storm")
            at = 0.0
            while True:
                at += random.expovariate(1.0) * every
                if at >= self.until:
                    break
                low, high = self.lasts
                faults.append(
                    Fault(
                        kind=kind,
                        at=round(at),
                        node=nodes[random.randrange(len(nodes))],
                        lasts=random.randint(low, high),
                        factor=1.5 + 4 * random.random(),
                        leap=random.randint(1, 20 * SECOND),
                    )
                )
        return sorted(faults, key=lambda f: (f.at, f.kind))


@dataclass
class Trouble:
    """Carries faults out on the nodes of a world."""

    world: World
    network: Network
    nodes: Mapping[str, AgentNode]
    calm: bool = False  # everything is mended, and nothing breaks any more
    _kinds: dict[str, Callable[[Fault], Callable[[], None] | None]] = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = {
            "crash": self._crash,
            "power": self._power,
            "freeze": self._freeze,
            "partition": self._partition,
            "deaf": self._deaf,
            "mute": self._mute,
            "reset": self._reset,
            "redial": self._redial,
            "slow": self._slow,
            "jump": self._jump,
            "pause": self._pause,
            "cordon": self._cordon,
            "drain": self._drain,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """What can go wrong."""
        return tuple(self._kinds)

    def plan(self, faults: Sequence[Fault]) -> None:
        """Put them on the agenda."""
        for fault in faults:
            self.world.agenda.at(fault.at, self._begin, fault)

    def mend(self) -> None:
        """Everything runs, is connected, in service and sound from now on."""
        self.calm = True
        self._note("everything is mended")
        for node_id, node in self.nodes.items():
            self.network.heal(node_id)
            node.slowness = 1.0
            node.thaw()
            node.restart()
            self.world.post(ev.NodeCordoned(node_id, False))
        self.network.options.loss = self.network.options.stall = 0.0
        self.world.paused_until = self.world.now

    def _begin(self, fault: Fault) -> None:
        if self.calm:
            return
        self._note(f"{fault.kind} {fault.node or 'scheduler'} begins")
        end = self._kinds[fault.kind](fault)
        if end is not None and fault.lasts < NEVER:
            self.world.agenda.at(self.world.now + fault.lasts, self._end, (fault, end))

    def _end(self, ending: tuple[Fault, Callable[[], None]]) -> None:
        fault, end = ending
        if not self.calm:
            self._note(f"{fault.kind} {fault.node or 'scheduler'} ends")
            end()

    def _note(self, what: str) -> None:
        for shown in self.world.watching.fault:
            shown(self.world.now, what)

    # The kinds. Each returns how it ends, if it ends.

    def _crash(self, fault: Fault) -> Callable[[], None]:
        """SIGKILL; a new process later."""
        node = self.nodes[fault.node]
        node.kill()
        return node.restart

    def _power(self, fault: Fault) -> Callable[[], None]:
        """The machine goes without a word."""
        node = self.nodes[fault.node]
        node.kill(silent=True)
        return node.restart

    def _freeze(self, fault: Fault) -> Callable[[], None]:
        """SIGSTOP and SIGCONT."""
        node = self.nodes[fault.node]
        node.freeze()
        return node.thaw

    def _partition(self, fault: Fault) -> Callable[[], None]:
        self.network.cut(fault.node)
        return lambda: self.network.heal(fault.node)

    def _deaf(self, fault: Fault) -> Callable[[], None]:
        """It hears nothing, and is heard."""
        self.network.cut(fault.node, to_scheduler=False)
        return lambda: self.network.heal(fault.node)

    def _mute(self, fault: Fault) -> Callable[[], None]:
        """It is not heard, and hears."""
        self.network.cut(fault.node, to_agent=False)
        return lambda: self.network.heal(fault.node)

    def _reset(self, fault: Fault) -> None:
        """Its stream breaks."""
        self.network.reset(fault.node)

    def _redial(self, fault: Fault) -> None:
        """Its agent opens a new stream while the old one still carries messages."""
        self.nodes[fault.node].redial()

    def _slow(self, fault: Fault) -> Callable[[], None]:
        node = self.nodes[fault.node]
        node.slowness = fault.factor

        def end() -> None:
            node.slowness = 1.0

        return end

    def _jump(self, fault: Fault) -> None:
        """Its clock leaps ahead."""
        self.nodes[fault.node].jump(fault.leap)

    def _pause(self, fault: Fault) -> None:
        """The scheduler's process does nothing for a while; what comes in piles up."""
        lasts = min(fault.lasts, 5 * SECOND)
        self.world.pause(lasts)

    def _cordon(self, fault: Fault) -> Callable[[], None]:
        self.world.post(ev.NodeCordoned(fault.node, True))
        return lambda: self.world.post(ev.NodeCordoned(fault.node, False))

    def _drain(self, fault: Fault) -> Callable[[], None]:
        """An operator drains it, and takes it back later."""
        self.world.post(ev.DrainRequested(fault.node, SECOND, False, "an operator's drain"))
        return lambda: self.world.post(ev.NodeCordoned(fault.node, False))
