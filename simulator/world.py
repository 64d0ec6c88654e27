"""What happens when the scheduler's own core meets this workload, these nodes and these faults?

Theory of operation. Everything is an action of the agenda at an instant. What the core has to hear
is posted into its inbox; when all actions of an instant are done, the core takes one step, as the
live driver has it take one per turn of its loop, and its commands are carried out. `coalesce` lets
the inbox gather for that long before a step, as a busy live loop does. `decision_cost` charges the
scheduler's own time: the commands of a step take effect when it is through, and the next step
begins no sooner.

What happens is shown to watchers: metrics, event log, checkers. They never change the world.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.types import NEVER, SECOND, Attempt, Batch, Duration, Instant, Request
from scheduler_service.recording.file import RecordingFile
from scheduler_service.recording.scheduler import RecordingScheduler
from simulator.agenda import Agenda
from simulator.tickets import Ticket
from simulator.watchers import Watcher, Watching


class NodeSession(Protocol):
    """One agent's stream, as the scheduler's edge sees it."""

    def welcome(self, abandon: Sequence[int], adopted: Sequence[int]) -> None:
        """It is admitted."""
        ...

    def dispatch(self, batch: Batch) -> None:
        """Work for it."""
        ...

    def cancel(self, command: cmd.CancelAttempts) -> None:
        """Stop these."""
        ...

    def acknowledge(self, count: int) -> None:
        """So many more results are dealt with."""
        ...

    def drain(self, command: cmd.DrainNode) -> None:
        """No new work, finish, give back the rest."""
        ...

    def ping(self) -> None:
        """A sign of life is wanted."""
        ...

    def close(self, command: cmd.CloseSession) -> None:
        """It is over."""
        ...


@dataclass(kw_only=True)
class WorldSettings:
    """How the world runs, beside the core's own settings."""

    core: CoreSettings = field(default_factory=CoreSettings)
    seed: int = 0
    coalesce: Duration = 0
    decision_cost: Callable[[int, int], Duration] | None = None  # of (events, commands)
    sample_every: Duration = SECOND  # between looks at queue and nodes; NEVER: none
    heartbeat: Duration = SECOND
    record: RecordingFile | None = None  # what the core hears and decides goes there


class World:
    """A scheduling core and everything around it, under one clock."""

    def __init__(self, settings: WorldSettings, policies: PolicySet) -> None:
        self.settings = settings
        self.agenda = Agenda()
        if settings.record is None:
            self.scheduler = Scheduler(settings.core, policies)
        else:
            self.scheduler = RecordingScheduler(settings.core, policies, settings.record)
        self.sessions: dict[tuple[str, int], NodeSession] = {}
        # Sessions of modelled nodes that live, and what each has to say at a heartbeat.
        self.beating: dict[tuple[str, int], Callable[[], None]] = {}
        self.scale: Callable[[cmd.RequestScale], None] | None = None
        self.watching = Watching()
        self.open_requests = 0  # submitted, without an outcome
        self.sources = 0  # of arrivals, not exhausted
        self.steps = 0
        self.paused_until: Instant = 0  # the scheduler's process does nothing until then
        self._running = False
        self._inbox: list[ev.Event] = []
        self._turn_at: Instant = NEVER
        self._wake_at: Instant = NEVER
        self._epochs = itertools.count(settings.core.term << 40 | 1)
        self._rids = itertools.count(1)
        self._table: dict[type, Callable[[Any], None]] = {
            cmd.AcceptRequest: _ignore,
            cmd.DispatchBatch: self._dispatch,
            cmd.CancelAttempts: self._cancel,
            cmd.StartOutput: _ignore,
            cmd.FinishRequest: self._finish,
            cmd.RememberDeaths: _ignore,
            cmd.WelcomeNode: self._welcome,
            cmd.CloseSession: self._close,
            cmd.PingNode: self._ping,
            cmd.AcknowledgeResults: self._acknowledge,
            cmd.DrainNode: self._drain,
            cmd.RequestScale: self._scale,
        }

    @property
    def now(self) -> Instant:
        """The world's clock."""
        return self.agenda.now

    def watch(self, watcher: Watcher) -> None:
        """Show everything to `watcher` from now on."""
        self.watching.add(watcher)

    # What nodes and callers use.

    def new_epoch(self) -> int:
        """A session's number."""
        return next(self._epochs)

    def new_rid(self) -> int:
        """A request's number."""
        return next(self._rids)

    def post(self, event: ev.Event) -> None:
        """The core has to hear this."""
        self._inbox.append(event)
        if self._turn_at == NEVER:
            self._turn_at = max(self.now + self.settings.coalesce, self.paused_until)

    def pause(self, lasts: Duration) -> None:
        """The scheduler's process stands still for that long."""
        self.paused_until = max(self.paused_until, self.now + lasts)
        if self._turn_at < NEVER:
            self._turn_at = max(self._turn_at, self.paused_until)

    def submit(self, requests: list[Request]) -> None:
        """Calls came in."""
        self.open_requests += len(requests)
        for shown in self.watching.submitted:
            shown(self.now, requests)
        self.post(ev.RequestsSubmitted(requests))

    def open_session(self, node_id: str, epoch: int, session: NodeSession) -> None:
        """A stream is there; commands for it may come."""
        self.sessions[node_id, epoch] = session

    def end_session(self, node_id: str, epoch: int, *, goodbye: bool = False) -> None:
        """A stream ended; the core hears of it once."""
        self.beating.pop((node_id, epoch), None)
        if self.sessions.pop((node_id, epoch), None) is not None:
            self.post(ev.SessionBroken(node_id, epoch, goodbye))

    def hear(self, dispatch_id: int, epoch: int, offset: int, text: str, tokens: int) -> None:
        """A delta of an attempt came: through the relay to its caller, as the live edge has it.

        Raises:
            ProtocolBroken: text is missing before it.
        """
        relay = self.scheduler.relay
        lane = relay.lanes.get(dispatch_id)
        if lane is None or lane.attempt.engine.node.epoch != epoch:
            relay.stale += 1
            return
        silent = not lane.spoke
        had = relay.accept(dispatch_id, 0, 0, offset, len(text), tokens)
        if had == -2:
            raise ProtocolBroken(f"output is missing before offset {offset} of {dispatch_id}")
        if had == -1 or had == len(text):
            return
        if silent:
            self.post(ev.OutputsBegun([dispatch_id]))
        self._deliver(lane.attempt, lane.output.output_id, offset + had, text[had:])

    def _deliver(self, attempt: Attempt, output_id: int, offset: int, text: str) -> None:
        ticket: Ticket = attempt.request.context
        if ticket.first_output_at < 0:
            ticket.first_output_at = self.now
        for shown in self.watching.delivered:
            shown(self.now, attempt, output_id, offset, text)

    # Running.

    def run(self, until: Instant = NEVER) -> bool:
        """Run until all work is done, at most to `until`. Whether all work is done."""
        self._start_clockwork()
        while not self.done:
            if not self._go_on(until):
                return False
        return True

    def advance_to(self, until: Instant) -> None:
        """Run to that instant, done or not."""
        self._start_clockwork()
        while self._go_on(until):
            pass
        self.agenda.run_instant(until)

    def _go_on(self, until: Instant) -> bool:
        """Do what is due next, if that is by `until`."""
        agenda = self.agenda
        instant = min(agenda.next(), self._turn_at, max(self._wake_at, self.paused_until))
        if instant > until or instant >= NEVER:
            return False
        agenda.run_instant(max(instant, agenda.now))
        if self._turn_at <= instant or self._wake_at <= instant >= self.paused_until:
            self._turn()
        return True

    @property
    def done(self) -> bool:
        """Nothing is to come, waits or runs."""
        return not (self.open_requests or self.sources or self._inbox)

    def _start_clockwork(self) -> None:
        if not self._running:
            self._running = True
            self.agenda.at(self.now + self.settings.heartbeat, self._beat)
            if self.settings.sample_every < NEVER and self.watching.sampled:
                self.agenda.at(self.now, self._sample)

    def _beat(self, _: None) -> None:
        if self.beating:
            self.post(ev.NodesHeard(list(self.beating)))
            for report in self.beating.values():
                report()
        self.agenda.at(self.now + self.settings.heartbeat, self._beat)

    def _sample(self, _: None) -> None:
        for shown in self.watching.sampled:
            shown(self.now, self)
        self.agenda.at(self.now + self.settings.sample_every, self._sample)

    def _turn(self) -> None:
        limit = self.settings.core.max_events_per_step
        happened, self._inbox = self._inbox[:limit], self._inbox[limit:]
        self.steps += 1
        scheduler = self.scheduler
        commands = scheduler.step(self.now, happened)
        records = scheduler.take_records()
        for shown in self.watching.recorded:
            shown(self.now, records)
        for seen in self.watching.commanded:
            seen(self.now, commands)
        cost = self.settings.decision_cost
        if cost is None:
            self._execute(commands)
            self._turn_at = self.now if self._inbox else NEVER
        else:
            free_at = self.now + cost(len(happened), len(commands))
            self.paused_until = max(self.paused_until, free_at)
            self.agenda.at(free_at, self._execute, commands)
            self._turn_at = self.paused_until if self._inbox else NEVER
        wake = scheduler.next_wakeup()
        self._wake_at = NEVER if wake is None else max(wake, self.now)

    def _execute(self, commands: Sequence[cmd.Command]) -> None:
        table = self._table
        for command in commands:
            table[type(command)](command)

    # Commands.

    def _finish(self, command: cmd.FinishRequest) -> None:
        self.open_requests -= 1
        for shown in self.watching.finished:
            shown(self.now, command)

    def _dispatch(self, command: cmd.DispatchBatch) -> None:
        session = self.sessions.get((command.node_id, command.epoch))
        if session is not None:
            session.dispatch(command.batch)

    def _cancel(self, command: cmd.CancelAttempts) -> None:
        session = self.sessions.get((command.node_id, command.epoch))
        if session is not None:
            session.cancel(command)

    def _welcome(self, command: cmd.WelcomeNode) -> None:
        session = self.sessions.get((command.node_id, command.epoch))
        if session is not None:
            session.welcome(command.abandon, command.adopted)

    def _close(self, command: cmd.CloseSession) -> None:
        session = self.sessions.pop((command.node_id, command.epoch), None)
        self.beating.pop((command.node_id, command.epoch), None)
        if session is not None:
            session.close(command)
            self.post(ev.SessionBroken(command.node_id, command.epoch))

    def _ping(self, command: cmd.PingNode) -> None:
        session = self.sessions.get((command.node_id, command.epoch))
        if session is not None:
            session.ping()

    def _acknowledge(self, command: cmd.AcknowledgeResults) -> None:
        session = self.sessions.get((command.node_id, command.epoch))
        if session is not None:
            session.acknowledge(command.count)

    def _drain(self, command: cmd.DrainNode) -> None:
        session = self.sessions.get((command.node_id, command.epoch))
        if session is not None:
            session.drain(command)

    def _scale(self, command: cmd.RequestScale) -> None:
        if self.scale is not None:
            self.scale(command)


class ProtocolBroken(Exception):
    """A node said what no sound node says; its session has to end."""


def _ignore(_: object) -> None:
    """What needs no effect in the world."""
