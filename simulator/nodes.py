"""A node modelled directly: it answers the core's commands as a sound agent would, at no cost.

For questions of policy, where the agent's own machine and the network are not what is asked. It can
be killed, slowed and drained all the same. `agent_node.py` has nodes that run the agent's own core.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import NEVER, SECOND, Batch, Duration, Instant
from simulator.engines.continuous import ContinuousEngine
from simulator.engines.interface import Work
from simulator.kinds import NodeKind
from simulator.world import World

ENGINE = "e0"
NEARLY_FULL = 0.95  # of the KV memory: reported
BREAK_SEEN = 50_000_000  # a killed process' stream is seen broken after this long


class TokenCredit:
    """Credit of KV tokens as running totals, where they are limited."""

    __slots__ = ("_capacity", "_charged", "granted", "held")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._charged = 0
        self.held = 0
        self.granted: int | None = 0 if capacity else None

    def begin_session(self) -> None:
        """Totals start anew; what is held stays."""
        self._charged = 0
        self.granted = 0 if self._capacity else None

    def charge(self, tokens: int) -> None:
        """The scheduler sent so many."""
        self._charged += tokens
        self.held += tokens

    def grant(self) -> bool:
        """Raise the total to the room there is; whether it rose."""
        if self.granted is None:
            return False
        total = self._charged + self._capacity - self.held
        rose = total > self.granted
        self.granted = max(self.granted, total)
        return rose


class ModelledNode:
    """One node of a kind. `join` begins its life."""

    def __init__(
        self, world: World, node_id: str, kind: NodeKind, *, managed: bool = False
    ) -> None:
        self.world = world
        self.agenda = world.agenda
        self.node_id = node_id
        self.kind = kind
        self.managed = managed
        self.engine = kind.make(self)
        self.slowness = 1.0  # what takes 1 s elsewhere takes this many here
        self.up_since: Instant = -1  # -1: it is down
        self.up: Duration = 0  # of former lives
        self.held: dict[int, Work] = {}
        self.held_inputs = 0
        self._epoch = 0
        self._lives = 0
        self._granted = self._charged = 0  # inputs, of this session
        self._tokens = TokenCredit(kind.kv_capacity)
        self._received = 0  # items of this session
        self._pressure: tuple[int, bool] = (0, False)  # as last reported
        self._ended: list[ev.ItemEnd] = []
        self._leaving = False  # drained, it goes away

    # Its life.

    def join(self) -> None:
        """A new process of its agent says hello."""
        self._lives += 1
        self._leaving = False
        self.up_since = self.agenda.now
        self._hello()

    def _hello(self) -> None:
        world = self.world
        self._epoch = world.new_epoch()
        self._charged = self._granted = self._received = 0
        self._tokens.begin_session()
        world.open_session(self.node_id, self._epoch, self)
        world.beating[self.node_id, self._epoch] = self._report_pressure
        running = [ev.RunningItem(dispatch_id) for dispatch_id in self.held]
        spec = self.kind.spec(managed=self.managed)
        boot_id = f"{self.node_id}.{self._lives}"
        world.post(ev.NodeJoined(self.node_id, boot_id, self._epoch, spec, running))

    def kill(self, *, seen_after: Duration = BREAK_SEEN) -> None:
        """Its process dies with all that it holds; the scheduler sees the stream break."""
        if self.up_since < 0:
            return
        self.engine.halt()
        self._go_down()
        self.held.clear()
        self._tokens.held = 0
        self._hold(-self.held_inputs)
        self._ended.clear()
        epoch = self._epoch
        self.world.beating.pop((self.node_id, epoch), None)
        self.agenda.at(self.agenda.now + seen_after, self._seen_broken, epoch)

    def _seen_broken(self, epoch: int) -> None:
        self.world.end_session(self.node_id, epoch)

    def _go_down(self) -> None:
        self.up += self.agenda.now - self.up_since
        self.up_since = -1

    def uptime(self) -> Duration:
        """Over all lives."""
        return self.up + (self.agenda.now - self.up_since if self.up_since >= 0 else 0)

    # What its engine says.

    def stretch(self, duration: Duration) -> Duration:
        """A slow node takes longer."""
        return duration if self.slowness == 1.0 else round(duration * self.slowness)

    def progressed(self, works: Sequence[Work]) -> None:
        """Such a node does not stream."""

    def ended(self, works: Sequence[Work]) -> None:
        """Results go out with the next step of the world."""
        inputs = 0
        if not self._ended:
            self.agenda.at(self.agenda.now, self._report_ends, self._epoch)
        for work in works:
            if self.held.pop(work.dispatch_id, None) is None:
                continue
            inputs += work.inputs
            self._tokens.held -= work.charged_tokens
            if work.complete:
                reason = Reason.NONE
            else:
                reason = Reason.ENGINE_OOM if work.out_of_memory else Reason.CANCELLED_BY_CLIENT
            self._ended.append(
                ev.ItemEnd(
                    work.dispatch_id,
                    reason,
                    input_tokens=work.arrival.prompt_tokens,
                    output_tokens=work.made,
                    payload=work,
                )
            )
        self._hold(-inputs)

    def _report_ends(self, epoch: int) -> None:
        ended, self._ended = self._ended, []
        if not ended or epoch != self._epoch:
            return
        self.world.post(ev.ItemsFinished(self.node_id, epoch, ended))
        if not self._leaving:
            self._grant()
        elif not self.held:
            self._leave()

    def _hold(self, change: int) -> None:
        self.held_inputs += change
        capacity = self.kind.slots + self.kind.look_ahead
        for shown in self.world.watching.held:
            shown(self.agenda.now, self.node_id, self.held_inputs, capacity)

    def _grant(self) -> None:
        """Running totals: what it was charged, plus the room that is free."""
        capacity = self.kind.slots + self.kind.look_ahead
        granted = self._charged + capacity - self.held_inputs
        more = self._tokens.grant()
        if granted > self._granted or more:
            self._granted = max(self._granted, granted)
            total = (ENGINE, self._granted, self._tokens.granted)
            self.world.post(ev.CreditsGranted(self.node_id, self._epoch, [total]))

    def _report_pressure(self) -> None:
        """At a heartbeat: preemptions and a memory that is nearly full, when that has changed."""
        engine = self.engine
        if not isinstance(engine, ContinuousEngine):
            return
        share = engine.memory.used / engine.memory.capacity
        pressure = engine.preemptions, share > NEARLY_FULL
        if pressure != self._pressure:
            self._pressure = pressure
            self.world.post(
                ev.ReportReceived(
                    self.node_id,
                    self._epoch,
                    self._received,
                    {ENGINE: list(self.held)},
                    pressure={ENGINE: (engine.preemptions, share)},
                )
            )

    # What the scheduler says.

    def welcome(self, abandon: Sequence[int], adopted: Sequence[int]) -> None:
        """Go on with what is adopted, stop the rest, and grant credit."""
        del adopted
        for dispatch_id in abandon:
            work = self.held.pop(dispatch_id, None)
            if work is not None:
                self._hold(-work.inputs)
                self._tokens.held -= work.charged_tokens
                self.engine.cancel(dispatch_id)
        self._grant()

    def dispatch(self, batch: Batch) -> None:
        """Give it to the engine at once."""
        if self.up_since < 0:
            return
        works = []
        inputs = 0
        for attempt in batch.attempts:
            arrival = attempt.request.context.arrival
            work = Work(attempt.dispatch_id, arrival, attempt.inputs)
            work.charged_tokens = attempt.tokens
            self._tokens.charge(attempt.tokens)
            self.held[work.dispatch_id] = work
            inputs += work.inputs
            works.append(work)
        self._charged += inputs
        self._received += len(works)
        self._hold(inputs)
        self.engine.submit(works, atomic=batch.atomic)

    def cancel(self, command: cmd.CancelAttempts) -> None:
        """Stop these; each has a result all the same."""
        for dispatch_id in command.dispatch_ids:
            if dispatch_id in self.held:
                self.engine.cancel(dispatch_id)

    def acknowledge(self, count: int) -> None:
        """Nothing is kept, so nothing is forgotten."""

    def drain(self, command: cmd.DrainNode) -> None:
        """Finish what runs; with `terminate`, go away then. What is left after the grace is cut.

        `lifted`: stay.
        """
        self._leaving = command.terminate
        if command.grace < NEVER:
            self.agenda.at(self.agenda.now + command.grace, self._cut, self._epoch)
        if self._leaving and not self.held:
            self._leave()

    def _cut(self, epoch: int) -> None:
        if epoch == self._epoch and self._leaving:
            for dispatch_id in list(self.held):
                self.engine.cancel(dispatch_id)

    def _leave(self) -> None:
        if self.up_since >= 0:
            self._go_down()
            self.world.end_session(self.node_id, self._epoch, goodbye=True)

    def ping(self) -> None:
        """It answers at once."""
        if self.up_since >= 0:
            self.world.post(ev.NodesHeard([(self.node_id, self._epoch)]))

    def close(self, command: cmd.CloseSession) -> None:
        """Dial again where that is asked for."""
        if self.up_since >= 0 and command.reconnect:
            self.agenda.at(self.agenda.now + SECOND, self._dial_again, self._epoch)

    def _dial_again(self, epoch: int) -> None:
        if self.up_since >= 0 and epoch == self._epoch:
            self._hello()
