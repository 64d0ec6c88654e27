"""How do messages travel between agents and the scheduler, and what may happen to them on the way?

A stream is what gRPC gives: two directions, each in order and reliable, until it breaks. So a
message is never lost or overtaken alone, but

- it is delayed (log-normal), and messages of different streams overtake each other, also those of
  an old stream and its successor;
- it may stall, and all behind it with it, as when a packet is lost and sent again;
- its stream may break at it: it and all behind it are lost in both directions, and each end
  notices in its own time (`loss` is the chance per message);
- a partition holds everything back in both directions, or in one. What it held comes when it heals,
  unless an end has given the stream up meanwhile: an agent does so after `keepalive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from scheduler_service.core.types import MILLISECOND, SECOND, Duration, Instant
from simulator.agenda import Agenda


@dataclass(kw_only=True)
class NetworkOptions:
    """What the network is like."""

    delay: Duration = MILLISECOND // 2  # median, one way
    sigma: float = 0.5  # of the logarithm of the delay
    loss: float = 0.0  # chance per message that its stream breaks there
    stall: float = 0.0  # chance per message that it is held up
    stall_for: Duration = 200 * MILLISECOND
    notice: Duration = 100 * MILLISECOND  # the longest until an end sees that its stream broke
    keepalive: Duration = 10 * SECOND  # an agent that got nothing for so long gives the stream up


class Network:
    """Makes streams, and knows who is cut off."""

    def __init__(self, agenda: Agenda, options: NetworkOptions, seed: int) -> None:
        self.agenda = agenda
        self.options = options
        self.messages = 0
        self.broken = 0
        self._seed = seed
        self._streams: list[Stream] = []
        self._cut: dict[tuple[str, bool], None] = {}  # (node id, towards the scheduler)
        self._made = 0

    def stream(self, node_id: str) -> Stream:
        """A new one; its ends listen before anything is sent."""
        self._made += 1
        random = Random(f"{self._seed}/{node_id}/{self._made}/network")
        made = Stream(self, node_id, random)
        self._streams = [s for s in self._streams if not s.broken]
        self._streams.append(made)
        return made

    def cut(self, node_id: str, *, to_scheduler: bool = True, to_agent: bool = True) -> None:
        """A partition begins; what is on the way still arrives."""
        for direction, wanted in ((True, to_scheduler), (False, to_agent)):
            if wanted:
                self._cut[node_id, direction] = None

    def heal(self, node_id: str) -> None:
        """It ends: what was held back comes now."""
        for direction in (True, False):
            self._cut.pop((node_id, direction), None)
        for stream in self._streams:
            if stream.node_id == node_id:
                stream.release()

    def is_cut(self, node_id: str, *, to_scheduler: bool) -> bool:
        """Whether messages in that direction are held back."""
        return (node_id, to_scheduler) in self._cut

    def reset(self, node_id: str) -> None:
        """Break the node's streams."""
        for stream in self._streams:
            if stream.node_id == node_id:
                stream.break_off()


_END: Final = object()  # the agent has closed its end


class _Direction:
    """One way of a stream."""

    __slots__ = ("free_at", "hear", "held", "on_break")

    def __init__(self) -> None:
        self.free_at: Instant = 0  # when the last message arrives: none overtakes it
        self.held: list[Any] = []  # by a partition
        self.hear: Callable[[Any], None] = _nobody
        self.on_break: Callable[[], None] = _no_one


def _nobody(_message: object) -> None:
    """The end is not there any more."""


def _no_one() -> None:
    """The end is not there any more."""


class Stream:
    """A stream between one agent and the scheduler."""

    def __init__(self, network: Network, node_id: str, random: Random) -> None:
        self.node_id = node_id
        self.broken = False
        self._network = network
        self._random = random
        self._ways = {True: _Direction(), False: _Direction()}  # by "towards the scheduler"

    def listen(
        self, *, at_scheduler: bool, hear: Callable[[Any], None], on_break: Callable[[], None]
    ) -> None:
        """Set who takes messages at that end, and who learns there that the stream broke."""
        way = self._ways[at_scheduler]
        way.hear, way.on_break = hear, on_break

    def deaf(self, *, at_scheduler: bool) -> None:
        """That end is gone and hears nothing any more."""
        self.listen(at_scheduler=at_scheduler, hear=_nobody, on_break=_no_one)

    def send(self, message: Any, *, to_scheduler: bool) -> None:
        """On its way, in order behind what was sent before."""
        if self.broken:
            return
        network, options = self._network, self._network.options
        network.messages += 1
        if options.loss and self._random.random() < options.loss:
            self.break_off()
            return
        way = self._ways[to_scheduler]
        if way.held or network.is_cut(self.node_id, to_scheduler=to_scheduler):
            way.held.append(message)
        else:
            self._carry(way, message)

    def _carry(self, way: _Direction, message: Any) -> None:
        options, random = self._network.options, self._random
        delay = round(options.delay * math.exp(options.sigma * random.gauss(0, 1)))
        if options.stall and random.random() < options.stall:
            delay += options.stall_for
        agenda = self._network.agenda
        way.free_at = max(way.free_at, agenda.now + delay)
        agenda.at(way.free_at, self._arrive, (way, message))

    def _arrive(self, arrival: tuple[_Direction, Any]) -> None:
        way, message = arrival
        if self.broken:
            return
        if message is _END:
            self.broken = True
            way.on_break()
        else:
            way.hear(message)

    def close(self) -> None:
        """The agent closes its end: what it sent still arrives, then the scheduler learns of it."""
        self.deaf(at_scheduler=False)
        self.send(_END, to_scheduler=True)

    def release(self) -> None:
        """A partition has ended."""
        for way in self._ways.values():
            held, way.held = way.held, []
            for message in held:
                self._carry(way, message)

    def break_off(self) -> None:
        """Everything on the way is lost; the ends notice a little later."""
        if self.broken:
            return
        self.broken = True
        self._network.broken += 1
        agenda = self._network.agenda
        for at_scheduler, way in self._ways.items():
            notice = 1 + int(self._random.random() * self._network.options.notice)
            agenda.at(agenda.now + notice, self._notice, at_scheduler)
            way.held.clear()

    def _notice(self, at_scheduler: bool) -> None:
        self._ways[at_scheduler].on_break()
