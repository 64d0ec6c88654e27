"""A world around the scheduling core: a clock in hand, agents and callers that keep accounts.

`World` turns `Scheduler.step` and carries out what it commands. Its agents grant credit as real
ones do (slots + look-ahead - held, as running totals), and write text with a letter per attempt, so
that an illegal splice is visible. Each step checks what must hold for the outside: one result per
request, nothing sent for what has ended, no engine given more than it has room for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from scheduler_service.core import CoreSettings, Scheduler
from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.interfaces import PolicySet
from scheduler_service.core.outcomes import EngineMode, Outcome, Reason
from scheduler_service.core.records import Record
from scheduler_service.core.relay import STALE
from scheduler_service.core.settings import HealthSettings, QueueSettings
from scheduler_service.core.types import (
    SECOND,
    Attempt,
    Batch,
    Duration,
    EngineSpec,
    Instant,
    ModelSpec,
    NodeSpec,
    Request,
)
from scheduler_service.policies import build

T = TypeVar("T")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def seconds(value: float) -> Duration:
    """Whole nanoseconds."""
    return round(value * SECOND)


def model(name: str = "m", **fields: Any) -> ModelSpec:
    """A model on an engine; it can continue output unless told otherwise."""
    return ModelSpec(name, **{"resumable": True, **fields})


def engine(
    engine_id: str = "e0", *, models: Sequence[str | ModelSpec] = ("m",), **fields: Any
) -> EngineSpec:
    """A continuous engine of one slot, unless told otherwise."""
    specs = tuple(model(m) if isinstance(m, str) else m for m in models)
    fields = {"mode": EngineMode.CONTINUOUS, "slots": 1, **fields}
    return EngineSpec(engine_id, models=specs, **fields)


def static(engine_id: str = "e0", *, slots: int = 4, **fields: Any) -> EngineSpec:
    """A static engine that runs one batch of up to `slots` inputs at a time."""
    return engine(engine_id, mode=EngineMode.STATIC, slots=slots, **fields)


def settings(**fields: Any) -> CoreSettings:
    """Settings with every invariant checked after every step."""
    return CoreSettings(**{"check_every": 1, **fields})


def queue(**fields: Any) -> QueueSettings:
    """Bounds of the queue."""
    return QueueSettings(**fields)


@dataclass
class Held:
    """What an agent holds of one attempt."""

    attempt: Attempt
    start: int  # offset at which it was told to go on; 0: from the prompt
    said: int = 0  # offset after its output so far


@dataclass
class Ledger:
    """What an agent knows of one of its engines in this session."""

    spec: EngineSpec
    charged: int = 0
    granted: int = 0
    capacity: int = 0  # most slots + look-ahead of this session: a grant is never taken back
    peak: int = 0  # most inputs ever held at once


class Agent:
    """One node's agent: keeps what it is sent and answers when the test says so."""

    def __init__(self, world: World, node_id: str, spec: NodeSpec, boot_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.spec = spec
        self.boot_id = boot_id
        self.epoch = 0
        self.connected = False
        self.frozen = False  # SIGSTOP: it says and does nothing
        self.obeys = True  # cancels at once; False: it goes on
        self.withheld = 0  # inputs of room that other callers of its engines take
        self.held: dict[int, Held] = {}
        self.received = 0  # items of this session
        self.batches: list[Batch] = []
        self.cancelled: list[int] = []
        self.abandoned: list[int] = []
        self.closed: list[cmd.CloseSession] = []
        self.drains: list[cmd.DrainNode] = []
        self.pings = 0
        self.acked = 0
        self.ledgers = {e.engine_id: Ledger(e) for e in spec.engines}

    # What it tells the scheduler.

    def join(self) -> Agent:
        """Say hello on a new stream, hand back what it holds, and grant the first credit."""
        self.epoch = self.world.new_epoch()
        self.connected, self.received = True, 0
        self.ledgers = {e.engine_id: Ledger(e) for e in self.spec.engines}
        running = [ev.RunningItem(d) for d in self.held]
        self.world.sessions[self.node_id, self.epoch] = self
        self.world.step(ev.NodeJoined(self.node_id, self.boot_id, self.epoch, self.spec, running))
        return self

    def credits(self) -> ev.CreditsGranted:
        """Running totals: what it was charged, plus the room that is free."""
        grants: list[tuple[str, int, int | None]] = []
        for engine_id, ledger in self.ledgers.items():
            capacity = ledger.spec.slots + ledger.spec.look_ahead
            ledger.capacity = max(ledger.capacity, capacity)
            room = capacity - self.held_inputs(engine_id) - self.withheld
            ledger.granted = max(ledger.granted, ledger.charged + room)
            grants.append((engine_id, ledger.granted, None))
        return ev.CreditsGranted(self.node_id, self.epoch, grants)

    def held_inputs(self, engine_id: str = "e0") -> int:
        """Inputs that it holds for one engine."""
        mine = (h.attempt for h in self.held.values())
        return sum(a.inputs for a in mine if a.engine.engine_id == engine_id)

    def beat(self) -> ev.NodesHeard:
        """Any message: it lives."""
        return ev.NodesHeard([(self.node_id, self.epoch)])

    def run(self, *requests: Request) -> None:
        """Its engine begins these."""
        ids = [self.dispatch_id(r) for r in requests]
        self.world.step(ev.ItemsRunning(self.node_id, self.epoch, ids))

    def report(self, **fields: Any) -> None:
        """Say what is held, truly unless `held` says otherwise."""
        held: dict[str, list[int]] = {}
        for dispatch_id, item in self.held.items():
            held.setdefault(item.attempt.engine.engine_id, []).append(dispatch_id)
        fields = {"items_received": self.received, "held": held, **fields}
        self.world.step(ev.ReportReceived(self.node_id, self.epoch, **fields))

    def describe(self, *engines: EngineSpec) -> None:
        """Its engines changed."""
        self.spec = NodeSpec(engines, role=self.spec.role, managed=self.spec.managed)
        for spec in engines:
            self.ledgers.setdefault(spec.engine_id, Ledger(spec)).spec = spec
        self.world.step(ev.NodeDescribed(self.node_id, self.epoch, self.spec), self.credits())

    def free(self, *requests: Request) -> list[int]:
        """Its engine is through with these, and its credit says so ahead of their results; the ids
        to answer by.
        """
        ids = [self.dispatch_id(r) for r in requests]
        self.free_ids(ids)
        return ids

    def free_ids(self, dispatch_ids: Iterable[int]) -> None:
        """The same, by id."""
        for dispatch_id in dispatch_ids:
            del self.held[dispatch_id]
        self.world.step(self.credits())

    def finish(self, *requests: Request, **end: Any) -> None:
        """Answer these: success unless `reason` says otherwise."""
        self.finish_ids([self.dispatch_id(r) for r in requests], **end)

    def finish_ids(self, dispatch_ids: Iterable[int], **end: Any) -> None:
        """Answer by id, held or not."""
        items = [ev.ItemEnd(d, **{"output_tokens": 1, **end}) for d in dispatch_ids]
        for item in items:
            self.held.pop(item.dispatch_id, None)
        self.world.step(ev.ItemsFinished(self.node_id, self.epoch, items), self.credits())

    def speak(self, request: Request, length: int = 1, *, at: int | None = None) -> int:
        """Stream `length` letters of its attempt; what the relay said of them."""
        held = self.held[self.dispatch_id(request)]
        return self.speak_held(held, length, at=at)

    def speak_held(self, held: Held, length: int = 1, *, at: int | None = None) -> int:
        """The same, also for what it no longer should hold."""
        offset = held.said if at is None else at
        held.said = max(held.said, offset + length)
        return self.world.hear(held.attempt, offset, length)

    def lose_stream(self, *, goodbye: bool = False) -> None:
        """Its stream ends."""
        self.connected = False
        self.world.step(ev.SessionBroken(self.node_id, self.epoch, goodbye))

    def die(self) -> None:
        """SIGKILL: the stream ends and what it held is gone."""
        self.held.clear()
        self.lose_stream()

    def restart(self) -> Agent:
        """A new process of the same agent joins."""
        self.held.clear()
        self.boot_id += "'"
        return self.join()

    # What the scheduler tells it.

    def receive(self, batch: Batch) -> None:
        """Keep the batch's items, and hold the scheduler to its credit."""
        self.batches.append(batch)
        ledger = self.ledgers[batch.engine.engine_id]
        for attempt in batch.attempts:
            request = attempt.request
            start = 0
            if request.continuing:
                assert request.output is not None
                start = {(c, n): e for c, n, e in request.output.positions()}.get((0, 0), 0)
            self.held[attempt.dispatch_id] = Held(attempt, start, start)
            self.received += 1
            ledger.charged += attempt.inputs
        ledger.peak = max(ledger.peak, self.held_inputs(batch.engine.engine_id))
        name = f"{self.node_id}/{batch.engine.engine_id}"
        assert ledger.charged <= ledger.granted, f"{name} was sent more than its credit"
        held = self.held_inputs(batch.engine.engine_id)
        assert held <= ledger.capacity, f"{name} holds more than slots + L"
        assert not batch.atomic or sum(a.inputs for a in batch.attempts) <= (
            batch.engine.max_batch
        ), f"{name} got too large a batch"

    def cancel(self, dispatch_ids: Sequence[int], reason: Reason) -> None:
        """Stop these, unless it does not obey; each has a result all the same."""
        self.cancelled += dispatch_ids
        mine = [d for d in dispatch_ids if d in self.held]
        if mine and self.obeys and not self.frozen:
            self.world.later(lambda: self.finish_ids(mine, reason=reason, output_tokens=0))

    def abandon(self, dispatch_ids: Sequence[int]) -> None:
        """Stop these and forget them."""
        self.abandoned += dispatch_ids
        for dispatch_id in dispatch_ids:
            self.held.pop(dispatch_id, None)

    # What the test asks.

    def dispatch_id(self, request: Request) -> int:
        """The id under which it holds the request."""
        ids = [d for d, h in self.held.items() if h.attempt.request is request]
        assert ids, f"{self.node_id} does not hold request {request.rid}"
        return ids[-1]

    def running(self) -> list[Request]:
        """The requests that it holds, in the order they came."""
        return [h.attempt.request for h in self.held.values()]

    def sizes(self) -> list[int]:
        """Items per batch, in the order they came."""
        return [len(b.attempts) for b in self.batches]


@dataclass
class Caller:
    """What one request's caller has been told."""

    request: Request
    accepted: list[cmd.AcceptRequest] = field(default_factory=list)
    pieces: list[tuple[Attempt, int, str]] = field(default_factory=list)  # of the present output
    starts: dict[int, int] = field(default_factory=dict)  # by dispatch id: where it was to go on
    outputs: list[int] = field(default_factory=list)  # output ids, each begun once
    result: cmd.FinishRequest | None = None

    @property
    def text(self) -> str:
        """The joined text of its present output."""
        return "".join(text for _, _, text in self.pieces)

    def check_text(self) -> None:
        """Its text is one legal text: without gap or repeat, and another attempt goes on only
        where it was told to continue.
        """
        position, speaker = 0, None
        for attempt, offset, text in self.pieces:
            assert offset == position, f"a gap or repeat at {position}: {self.text!r}"
            if attempt is not speaker:
                start = self.starts[attempt.dispatch_id]
                assert start == position, f"an illegal splice at {position}: {self.text!r}"
                speaker = attempt
            position += len(text)


class World:
    """A scheduling core, its agents and its callers, under one clock that the test moves."""

    def __init__(
        self,
        core: CoreSettings | None = None,
        policies: PolicySet | None = None,
        **core_fields: Any,
    ) -> None:
        self.scheduler = Scheduler(core or settings(**core_fields), policies or build())
        self.now: Instant = 1_000 * SECOND
        self.agents: dict[str, Agent] = {}
        self.sessions: dict[tuple[str, int], Agent] = {}
        self.callers: dict[int, Caller] = {}
        self.commands: list[cmd.Command] = []
        self.records: list[Record] = []
        self.hold_begun = False  # OutputsBegun waits, as in a busy inbox
        self.begun: list[int] = []
        self._rids = itertools.count(1)
        self._epochs = itertools.count(1)
        self._later: list[Any] = []

    # Making things happen.

    def new_epoch(self) -> int:
        """A session's number."""
        return next(self._epochs)

    def agent(self, node_id: str = "n0", *engines: EngineSpec, **fields: Any) -> Agent:
        """Join a node; with one continuous engine of one slot unless told otherwise."""
        boot_id, withheld = fields.pop("boot_id", f"{node_id}-boot"), fields.pop("withheld", 0)
        spec = NodeSpec(engines or (engine(),), **fields)
        agent = self.agents[node_id] = Agent(self, node_id, spec, boot_id)
        agent.withheld = withheld
        return agent.join()

    def request(self, **fields: Any) -> Request:
        """A request that is not submitted yet. `timeout` and `after` in seconds are allowed."""
        rid = next(self._rids)
        if "timeout" in fields:
            fields["deadline"] = self.now + seconds(fields.pop("timeout"))
        fields = {"request_id": f"r{rid}", "model": "m", "received_at": self.now, **fields}
        made = Request(rid, **fields)
        self.callers[rid] = Caller(made)
        return made

    def submit(self, count: int | None = None, **fields: Any) -> Any:
        """Submit one request, or a list of `count` at once."""
        made = [self.request(**fields) for _ in range(count or 1)]
        self.step(ev.RequestsSubmitted(made))
        return made[0] if count is None else made

    def cancel(self, *requests: Request, reason: Reason = Reason.CANCELLED_BY_CLIENT) -> None:
        """Their callers leave."""
        self.step(ev.RequestsCancelled([r.rid for r in requests], reason))

    def step(self, *events: ev.Event) -> list[cmd.Command]:
        """Turn the core once, carry out its commands, then what the agents answer to them."""
        commands = list(self.scheduler.step(self.now, events))
        self.records += self.scheduler.take_records()
        self.commands += commands
        for command in commands:
            self._carry_out(command)
        while self._later:
            self._later.pop(0)()
        return commands

    def later(self, action: Any) -> None:
        """Do it after the present step."""
        self._later.append(action)

    def advance(self, duration_s: float, *, beats: bool = True) -> None:
        """Let time pass: wake the core when it asked for it; live agents beat once a second."""
        end = self.now + seconds(duration_s)
        beat_at = self.now + SECOND if beats else end + 1
        while True:
            wake = self.scheduler.next_wakeup()
            at = min(beat_at, end if wake is None else max(wake, self.now))
            if at > end or (at == end and wake != end and beat_at != end):
                break
            self.now = at
            if at == beat_at:
                beat_at += SECOND
                live = [a.beat() for a in self.agents.values() if a.connected and not a.frozen]
                self.step(*live)
            else:
                self.step()
        self.now = end
        self.step()

    def hear(self, attempt: Attempt, offset: int, length: int) -> int:
        """The edge takes one delta: through the relay, to the caller."""
        relay = self.scheduler.relay
        dispatch_id = attempt.dispatch_id
        lane = relay.lanes.get(dispatch_id)
        spoke = lane is not None and lane.spoke
        verdict = relay.accept(dispatch_id, 0, 0, offset, length, length)
        if lane is None or verdict < 0:
            return verdict
        caller = self.callers[attempt.request.rid]
        if caller.outputs[-1:] != [lane.output.output_id]:
            caller.outputs.append(lane.output.output_id)
            caller.pieces = []
        if length > verdict:
            letter = LETTERS[(attempt.number - 1) % len(LETTERS)]
            caller.pieces.append((attempt, offset + verdict, letter * (length - verdict)))
            assert caller.result is None, "output after the result"
        if not spoke:
            self.begun.append(dispatch_id)
            if not self.hold_begun:
                self.tell_begun()
        caller.check_text()
        return verdict

    def tell_begun(self) -> None:
        """Post the OutputsBegun that were held back."""
        ids, self.begun = self.begun, []
        if ids:
            self.step(ev.OutputsBegun(ids))

    # What came of it.

    def caller(self, request: Request) -> Caller:
        """What its caller was told."""
        return self.callers[request.rid]

    def result(self, request: Request) -> cmd.FinishRequest:
        """Its one result; fails while there is none."""
        result = self.callers[request.rid].result
        assert result is not None, f"request {request.rid} has not finished"
        return result

    def outcome(self, request: Request) -> Outcome | None:
        """How it ended; None: it has not."""
        return request.outcome

    def of(self, kind: type[T]) -> list[T]:
        """All commands of one kind so far."""
        return [c for c in self.commands if isinstance(c, kind)]

    def noted(self, kind: str) -> list[Record]:
        """All records of one kind so far."""
        return [r for r in self.records if r.kind == kind]

    def assert_idle(self) -> None:
        """Nothing waits, runs or is held: every count is back at nought."""
        state = self.scheduler.state
        assert not state.requests
        assert not state.relay.lanes
        assert state.waiting_bytes == 0
        assert all(len(pool.queue) == 0 for pool in state.pools.values())
        for node in state.nodes.values():
            assert not node.in_flight
            for ledger in node.engines.values():
                assert ledger.in_flight_inputs == ledger.in_flight_items == 0
                assert not ledger.open_batches
        left = [c.request.rid for c in self.callers.values() if c.request.place and not c.result]
        assert not left, f"requests {left} have no result"

    def _carry_out(self, command: cmd.Command) -> None:
        if isinstance(command, cmd.DispatchBatch):
            self._dispatch(command)
        elif isinstance(command, cmd.FinishRequest):
            caller = self.callers[command.request.rid]
            assert caller.result is None, f"request {command.request.rid} has two results"
            caller.result = command
        elif isinstance(command, cmd.AcceptRequest):
            self.callers[command.request.rid].accepted.append(command)
        elif isinstance(
            command,
            cmd.WelcomeNode
            | cmd.CancelAttempts
            | cmd.CloseSession
            | cmd.PingNode
            | cmd.AcknowledgeResults
            | cmd.DrainNode,
        ):
            self._tell_agent(command)

    def _dispatch(self, command: cmd.DispatchBatch) -> None:
        agent = self.sessions[command.node_id, command.epoch]
        assert command.batch.attempts, "an empty batch was sent"
        for attempt in command.batch.attempts:
            assert self.callers[attempt.request.rid].result is None, "sent after its end"
            assert attempt.request.deadline > self.now, "sent after its deadline"
        agent.receive(command.batch)
        for attempt in command.batch.attempts:
            start = agent.held[attempt.dispatch_id].start
            self.callers[attempt.request.rid].starts[attempt.dispatch_id] = start

    def _tell_agent(self, command: Any) -> None:
        agent = self.sessions.get((command.node_id, command.epoch))
        if agent is None or agent.epoch != command.epoch:
            return  # a stream that has ended
        if isinstance(command, cmd.WelcomeNode):
            self.agents[agent.node_id] = agent
            agent.abandon(command.abandon)
            self.later(lambda: self.step(agent.credits()))
        elif isinstance(command, cmd.CancelAttempts):
            agent.cancel(command.dispatch_ids, command.reason)
        elif isinstance(command, cmd.CloseSession):
            agent.closed.append(command)
            agent.connected = False
        elif isinstance(command, cmd.PingNode):
            agent.pings += 1
            if not agent.frozen and agent.connected:
                self.later(lambda: self.step(agent.beat()))
        elif isinstance(command, cmd.AcknowledgeResults):
            agent.acked += command.count
        elif isinstance(command, cmd.DrainNode):
            agent.drains.append(command)


def health(**fields: Any) -> HealthSettings:
    """Times of liveness."""
    return HealthSettings(**fields)


def is_stale(verdict: int) -> bool:
    """Whether the relay dropped it."""
    return verdict == STALE
