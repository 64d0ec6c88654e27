"""A node that runs the agent's own core, behind a network, with a clock of its own.

The driver's part is played here: an inbox that is emptied into `Agent.step`, commands carried out
on the engine model and on the stream, output kept in the agent's book and sent from there, a
heartbeat with a report each second, and a new dial after a pause when the stream is gone.

Faults: `kill` (SIGKILL: everything is forgotten), `freeze` and `thaw` (SIGSTOP: nothing is done,
messages pile up), `jump` (its clock leaps ahead, as after a suspended machine), `slowness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any

from node_agent.core import Agent, invariants
from node_agent.core import commands as agent_commands
from node_agent.core import events as agent_events
from node_agent.core.items import ItemState
from node_agent.core.slots import EngineSpec
from node_agent.core.state import Phase
from scheduler_service.core.outcomes import EngineMode
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration, Instant
from simulator import messages as msg
from simulator.edge import UNIT, Edge
from simulator.engines.interface import Work
from simulator.kinds import NodeKind
from simulator.network import Network, Stream
from simulator.world import World

ENGINE = "e0"
FLUSH = 2 * MILLISECOND  # output gathers for so long
REDIAL = 200 * MILLISECOND  # least pause before a new dial; up to three times that
BATCH_DELTAS, BATCH_BYTES = 256, 1 << 16


def stamp(dispatch_id: int) -> str:
    """The text of one token of that attempt: no two attempts write the same."""
    return blake2b(str(dispatch_id).encode(), digest_size=UNIT // 2).hexdigest()


class AgentNode:
    """One node. `start` begins its life."""

    def __init__(
        self, world: World, network: Network, node_id: str, kind: NodeKind, *, managed: bool = False
    ) -> None:
        self.world = world
        self.network = network
        self.agenda = world.agenda
        self.node_id = node_id
        self.kind = kind
        self.managed = managed
        self.engine = kind.make(self)
        self.slowness = 1.0
        self.up_since: Instant = -1  # -1: it is down
        self.up: Duration = 0  # of former lives
        self.frozen = False
        self.refusals = 0  # ENGINE_BUSY: more came than there was room for
        self._lives = 0
        self._random = Random(f"{world.settings.seed}/{node_id}/node")
        self._begin_process()
        self._table: dict[type, Callable[[Any], None]] = {
            agent_commands.SendHello: self._send_hello,
            agent_commands.RefuseSession: self._refuse_session,
            agent_commands.RunItems: self._run_items,
            agent_commands.CancelItem: self._cancel_item,
            agent_commands.SendUpdate: self._send_update,
            agent_commands.SendResult: self._send_result,
            agent_commands.ForgetItem: self._forget_item,
            agent_commands.SendCredit: self._send_credit,
            agent_commands.SendReport: self._send_report,
            agent_commands.SendDrain: self._send_drain,
            agent_commands.Exit: self._exit,
        }

    def _begin_process(self) -> None:
        spec = EngineSpec(
            engine_id=ENGINE,
            slots=self.kind.slots,
            look_ahead=self.kind.look_ahead,
            max_batch_size=self.kind.max_batch,
            static=self.kind.mode is EngineMode.STATIC,
            token_capacity=self.kind.kv_capacity or None,
        )
        self.agent = Agent([spec])
        self._spec = spec
        self._ahead: Duration = 0  # of its clock
        self._inbox: list[agent_events.Event] = []
        self._outbox = msg.FromAgent()
        self._stream: Stream | None = None
        self._heard_at: Instant = 0
        self._told: dict[int, int] = {}  # tokens put into the book, by dispatch id
        self._pile: list[Callable[[], None]] = []  # what came while it was frozen
        self._wake_at: Instant = NEVER
        self._in_engine: dict[int, Work] = {}
        self._turn_due = self._flush_due = False
        self._exits = False
        self._lives += 1

    # Its life.

    def start(self) -> None:
        """Its process starts, its engine serves, it dials."""
        self.up_since = self.agenda.now
        self._post(agent_events.EngineChanged(self._spec, serving=True))
        self._dial()
        self._later(SECOND, self._beat)

    def kill(self, *, silent: bool = False) -> None:
        """Its process dies; `silent`: so does its machine, and nobody closes the stream."""
        if self.up_since < 0:
            return
        stream = self._stream
        self._go_down()
        if stream is not None:
            stream.deaf(at_scheduler=False)
            if not silent:
                stream.close()

    def restart(self) -> None:
        """A new process, if it is down."""
        if self.up_since < 0:
            self.frozen = False
            self.start()

    def freeze(self) -> None:
        """It does nothing any more, and its engine neither."""
        self.frozen = True

    def thaw(self) -> None:
        """It goes on, with all that has come meanwhile."""
        self.frozen = False
        pile, self._pile = self._pile, []
        for action in pile:
            action()

    def _unless_frozen(self, action: Callable[[], None]) -> None:
        """Do it now, or when the process runs again."""
        if self.frozen:
            self._pile.append(action)
        else:
            action()

    def jump(self, ahead: Duration) -> None:
        """Its clock leaps ahead."""
        self._ahead += ahead
        self._due()

    def redial(self) -> None:
        """It closes its stream and opens another at once; the old one's messages still arrive."""
        self._unless_frozen(self._redial)

    def _redial(self) -> None:
        if self._stream is not None and self.up_since >= 0:
            self._stream.close()
            self._post(agent_events.SessionClosed())
            self._dial()

    def uptime(self) -> Duration:
        """Over all lives."""
        return self.up + (self.agenda.now - self.up_since if self.up_since >= 0 else 0)

    def _go_down(self) -> None:
        self.up += self.agenda.now - self.up_since
        self.up_since = -1
        self.engine.halt()
        self._begin_process()
        self._show_held()

    def _later(self, delay: Duration, action: Callable[[], None]) -> None:
        """Do it then, unless this process is gone."""
        life = self._lives

        def act(_: None) -> None:
            if life == self._lives and self.up_since >= 0:
                self._unless_frozen(action)

        self.agenda.at(self.agenda.now + delay, act)

    # The agent's core.

    @property
    def _now(self) -> int:
        return self.agenda.now + self._ahead

    def _post(self, *events: agent_events.Event) -> None:
        self._inbox.extend(events)
        self._due()

    def _due(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._later(0, self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        events, self._inbox = self._inbox, []
        life = self._lives
        for command in self.agent.step(self._now, events):
            self._table[type(command)](command)
            if life != self._lives:
                return  # it has left
        invariants.check(self.agent)
        wake = self.agent.next_wakeup()
        if wake is not None and wake < self._wake_at:
            self._wake_at = wake
            self._later(max(1, wake - self._now), self._wake)
        self._show_held()

    def _wake(self) -> None:
        self._wake_at = NEVER
        self._due()

    def _show_held(self) -> None:
        """What is really there: what waits in the agent and what its engine has."""
        slots = self.agent.engines[ENGINE]
        waiting = sum(group.inputs for group in slots.waiting)
        inside = sum(work.inputs for work in self._in_engine.values())
        capacity = self.kind.slots + self.kind.look_ahead
        for shown in self.world.watching.held:
            shown(self.agenda.now, self.node_id, waiting + inside, capacity)

    # The stream.

    def _dial(self) -> None:
        self._stream = stream = self.network.stream(self.node_id)
        self._heard_at = self.agenda.now
        stream.listen(
            at_scheduler=False,
            hear=lambda message: self._unless_frozen(lambda: self._hear(stream, message)),
            on_break=lambda: self._unless_frozen(lambda: self._lose(stream)),
        )
        Edge(self.world, stream, self.world.settings.core.term)
        self._post(agent_events.SessionOpened())

    def _lose(self, stream: Stream) -> None:
        """The stream is gone, however it ended: dial again after a pause."""
        if stream is not self._stream or self.up_since < 0:
            return
        stream.deaf(at_scheduler=False)
        self._stream = None
        self._post(agent_events.SessionClosed())
        pause = REDIAL + int(self._random.random() * 2 * REDIAL)
        self._later(pause, self._dial)

    def _hear(self, stream: Stream, message: Any) -> None:
        if stream is not self._stream or self.up_since < 0:
            return
        self._heard_at = self.agenda.now
        if isinstance(message, msg.Welcome):
            self._outbox = msg.FromAgent()  # nothing of an earlier session waits
            self._post(
                agent_events.Welcomed(
                    cluster_id="simulated",
                    term=message.term,
                    session_epoch=message.epoch,
                    abandoned=message.abandon,
                    resume_points=message.resume_points,
                )
            )
        elif isinstance(message, msg.Work):
            self._post(
                agent_events.BatchReceived(
                    engine_id=message.engine_id, items=message.items, atomic=message.atomic
                )
            )
        elif isinstance(message, msg.Cancels):
            self._post(agent_events.CancelsReceived(message.dispatch_ids, message.reason.name))
        elif isinstance(message, msg.Acknowledged):
            self._post(agent_events.ResultsAcked(message.total))
        elif isinstance(message, msg.Drain):
            self._post(
                agent_events.DrainLifted()
                if message.lifted
                else agent_events.DrainRequested(
                    grace_ns=message.grace,
                    own=False,
                    terminate=message.terminate,
                    reason=message.reason,
                )
            )
        elif isinstance(message, msg.Ping):
            self._flush_soon()
        elif isinstance(message, msg.Close):
            self._on_close(stream, message)

    def _on_close(self, stream: Stream, close: msg.Close) -> None:
        if close.reconnect:
            self._lose(stream)
        else:
            stream.deaf(at_scheduler=False)
            self._stream = None

    def _beat(self) -> None:
        """Once a second: a report; and a stream on which nothing comes is given up."""
        if self._stream is not None:
            if self.agenda.now - self._heard_at > self.network.options.keepalive:
                self._stream.close()
                self._lose(self._stream)
            elif self.agent.phase is Phase.OPEN:
                self._send_report(agent_commands.SendReport())
                self._flush_soon()
        self._later(SECOND, self._beat)

    def _flush_soon(self, delay: Duration = 0) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._later(delay, self._flush)

    def _flush(self) -> None:
        """Everything that may leave, deltas before results, the report as of now."""
        self._flush_due = False
        if self._stream is None or self.agent.phase is not Phase.OPEN:
            return
        message, self._outbox = self._outbox, msg.FromAgent()
        while deltas := self.agent.outputs.take(BATCH_DELTAS, BATCH_BYTES):
            message.deltas += deltas
        if message.report is not None:
            message.report = self._report()
        self._stream.send(message, to_scheduler=True)

    def _report(self) -> tuple[int, dict[str, list[int]]]:
        ledger = self.agent.ledger()
        held = {e: ledger.running[e] + ledger.waiting[e] for e in ledger.running}
        return ledger.items_received, held

    # Commands.

    def _send_hello(self, command: agent_commands.SendHello) -> None:
        held = [(b.held.item.dispatch_id, b.held.outcome is not None) for b in command.items]
        spec = self.kind.spec(managed=self.managed)
        boot_id = f"{self.node_id}.{self._lives}"
        if self._stream is not None:
            hello = msg.Hello(self.node_id, boot_id, spec, held)
            self._stream.send(hello, to_scheduler=True)

    def _refuse_session(self, _command: agent_commands.RefuseSession) -> None:
        if self._stream is not None:
            self._stream.break_off()

    def _run_items(self, command: agent_commands.RunItems) -> None:
        works: list[Work] = []
        for item in command.items:
            assert isinstance(item.payload, Work), "what the edge put there"
            works.append(item.payload)
            self._in_engine[item.dispatch_id] = item.payload
        self.engine.submit(works, atomic=command.atomic)

    def _cancel_item(self, command: agent_commands.CancelItem) -> None:
        self.engine.cancel(command.dispatch_id)

    def _send_update(self, command: agent_commands.SendUpdate) -> None:
        if command.state is ItemState.RUNNING:
            self._outbox.running.append(command.dispatch_id)
            self._flush_soon()

    def _send_result(self, command: agent_commands.SendResult) -> None:
        outcome = command.held.outcome
        if outcome is not None and outcome.reason == "ENGINE_BUSY":
            self.refusals += 1
        self._outbox.results.append(command.held)
        self._flush_soon()

    def _forget_item(self, command: agent_commands.ForgetItem) -> None:
        self._told.pop(command.dispatch_id, None)

    def _send_credit(self, command: agent_commands.SendCredit) -> None:
        self._outbox.credits[command.engine_id] = command.total_inputs, command.total_tokens
        self._flush_soon()

    def _send_report(self, _command: agent_commands.SendReport) -> None:
        self._outbox.report = (0, {})  # made when it leaves
        self._flush_soon()

    def _send_drain(self, command: agent_commands.SendDrain) -> None:
        self._outbox.drain = command.grace_ns, command.reason
        self._flush_soon()

    def _exit(self, _command: agent_commands.Exit) -> None:
        """It leaves in good order."""
        if self._stream is not None:
            self._flush()
            self._stream.send(msg.Goodbye(), to_scheduler=True)
            self._stream.deaf(at_scheduler=False)
        self._go_down()

    # The engine.

    def stretch(self, duration: Duration) -> Duration:
        """A slow node takes longer."""
        return duration if self.slowness == 1.0 else round(duration * self.slowness)

    def progressed(self, works: Sequence[Work]) -> None:
        """New tokens go into the agent's book."""
        self._unless_frozen(lambda: self._take_progress(works))

    def _take_progress(self, works: Sequence[Work]) -> None:
        for work in works:
            if work.dispatch_id in self._in_engine:
                self._speak(work, work.made_so_far)

    def _speak(self, work: Work, made: int) -> None:
        """Text up to that token."""
        dispatch_id = work.dispatch_id
        told = self._told.get(dispatch_id)
        if told is None:
            told = 0
            self._post(agent_events.EngineRunning(dispatch_id, len(self._in_engine)))
        if made > told:
            self._told[dispatch_id] = made
            text = stamp(dispatch_id) * (made - told)
            self.agent.output(self._now, dispatch_id, (0, 0), text, made - told)
            self._flush_soon(FLUSH)

    def ended(self, works: Sequence[Work]) -> None:
        """The rest of the text, then the end."""
        self._unless_frozen(lambda: self._take_ends(works))

    def _take_ends(self, works: Sequence[Work]) -> None:
        for work in works:
            if self._in_engine.pop(work.dispatch_id, None) is None:
                continue
            if work.complete:
                self._speak(work, work.made)
            self._post(
                agent_events.EngineFinished(
                    engine_id=ENGINE,
                    dispatch_id=work.dispatch_id,
                    complete=work.complete,
                    result=work,
                )
            )
