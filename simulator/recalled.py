"""What happened in a recording? Its requests, nodes and outcomes, as a workload to run again.

A recording answers what the same core would do with the same events. It cannot answer what another
policy would have led to: nodes only answer what they were sent. So its requests become arrivals,
each with the time that its work took on its node, and its sessions become lives of nodes; the
simulator runs those under any policy. What really came of it is counted by the same `Metrics`.

What is taken for true: work takes as long whatever runs beside it; a request that never ended takes
as long as the mean of its model; a substitute model takes as long as the one asked for; a node that
left after the last outcome would have stayed while there was work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler_service.core import Scheduler
from scheduler_service.core import commands as cmd
from scheduler_service.core import events as ev
from scheduler_service.core.outcomes import EngineMode, Outcome
from scheduler_service.core.records import Record
from scheduler_service.core.types import (
    NEVER,
    SECOND,
    Duration,
    EngineSpec,
    Instant,
    NodeSpec,
    Request,
)
from scheduler_service.recording.reader import Recording, Step
from scheduler_service.recording.replay import Replayed, replay
from simulator.engines import IndependentEngine, StaticEngine
from simulator.engines.interface import Engine, Host, Work
from simulator.fleet import Fleet
from simulator.kinds import NodeKind
from simulator.metrics import Metrics
from simulator.nodes import ModelledNode
from simulator.tickets import Ticket
from simulator.workload.arrival import Arrival
from simulator.world import World

_LEAST: Final[Duration] = 1_000_000  # nothing takes no time


@dataclass
class Life:
    """One session, or several of the same process: from its hello until it was gone."""

    node_id: str
    boot_id: str
    spec: NodeSpec
    begins: Instant
    ends: Instant = NEVER


@dataclass
class Recalled:
    """A recording's history. Instants are from its first step on."""

    replayed: Replayed
    metrics: Metrics
    arrivals: list[Arrival] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)  # output tokens, as the scheduler was told
    max_attempts: int = 3
    lives: list[Life] = field(default_factory=list)

    def prepare(self, world: World, fleet: Fleet) -> None:
        """Put the lives of its nodes on a world's agenda (`Plan.prepare`)."""
        for life in self.lives:
            for engine in life.spec.engines:
                world.agenda.at(life.begins, _Rise(fleet, life, _kind(life, engine)))

    def again(self) -> Iterator[Arrival]:
        """Its requests, fresh."""
        return (replace(arrival) for arrival in self.arrivals)

    def predict(self, _arrival: Arrival, rid: int) -> int:
        """What the scheduler was told; a simulated world numbers requests from 1, in order."""
        return self.expected[rid - 1]


def recall(recording: Recording) -> Recalled:
    """Run it through its own core, and keep what happened.

    Raises:
        RecordingError: it cannot be read.
    """
    seen = _Seen()
    seen.recalled.replayed = replay(recording, observer=seen)
    seen.settle()
    return seen.recalled


class _Seen:
    """Takes the history down while the recording is replayed."""

    def __init__(self) -> None:
        self.recalled = Recalled(Replayed(), Metrics())
        self._origin: Instant = -1
        self._metrics = self.recalled.metrics
        self._requests: list[Request] = []
        self._by_rid: dict[int, Arrival] = {}
        self._took: dict[int, Duration] = {}  # by number of the request
        self._lives: dict[str, Life] = {}
        self._sampled_at: Instant = -NEVER

    def before(self, step: Step, core: Scheduler) -> None:
        """New requests get their callers' side; sessions begin and end."""
        if self._origin < 0:
            self._origin = step.at
        self._hear_first_words(step, core)
        for event in step.happened:
            if isinstance(event, ev.RequestsSubmitted):
                self._submitted(step.at, event.requests)
            elif isinstance(event, ev.RequestsCancelled):
                self._cancelled(step.at, event.rids)
            elif isinstance(event, ev.NodeJoined):
                self._joined(step.at, event)
            elif isinstance(event, ev.SessionBroken) and event.node_id in self._lives:
                self._lives[event.node_id].ends = step.at - self._origin

    def after(
        self,
        step: Step,
        core: Scheduler,
        commands: Sequence[cmd.Command],
        records: Sequence[Record],
    ) -> None:
        """Outcomes, and how long the work took."""
        self._metrics.on_recorded(step.at, records)
        for command in commands:
            if isinstance(command, cmd.FinishRequest):
                self._finished(step.at, command)
        if step.at - self._sampled_at >= SECOND:
            self._sampled_at = step.at
            self._metrics.look(step.at, core)

    def settle(self) -> None:
        """What never ended takes as long as others of its model; instants begin at 0."""
        sums: dict[str, list[Duration]] = {}
        for request in self._requests:
            if request.rid in self._took:
                sums.setdefault(request.model, []).append(self._took[request.rid])
        means = {model: sum(took) // len(took) for model, took in sums.items()}
        anyhow = sum(means.values()) // len(means) if means else SECOND
        for request, arrival in zip(self._requests, self.recalled.arrivals, strict=True):
            took = self._took.get(request.rid, means.get(request.model, anyhow))
            arrival.service = max(_LEAST, took)
        attempts = [request.max_attempts for request in self._requests]
        self.recalled.max_attempts = max(attempts, default=3)
        rows = self._metrics.rows
        for column in (rows.submitted, self._metrics.series.at):
            for index, at in enumerate(column):
                column[index] = at - self._origin
        for index, deadline in enumerate(rows.deadline):
            rows.deadline[index] = deadline if deadline >= NEVER else deadline - self._origin
        self._metrics.started_at -= self._origin
        self._metrics.ended_at -= self._origin
        for life in self.recalled.lives:
            if life.ends >= self._metrics.ended_at:
                life.ends = NEVER

    def _submitted(self, at: Instant, requests: list[Request]) -> None:
        for request in requests:
            arrival = _arrival(request, at - self._origin)
            request.context = Ticket(arrival)
            self._by_rid[request.rid] = arrival
            self.recalled.arrivals.append(arrival)
            self.recalled.expected.append(request.output_tokens)
        self._requests += requests
        self._metrics.on_submitted(at, requests)

    def _cancelled(self, at: Instant, rids: list[int]) -> None:
        for rid in rids:
            arrival = self._by_rid.get(rid)
            if arrival is not None:
                arrival.cancel_after = max(0, at - self._origin - arrival.at)

    def _joined(self, at: Instant, event: ev.NodeJoined) -> None:
        known = self._lives.get(event.node_id)
        if known is not None and known.boot_id == event.boot_id:
            known.ends = NEVER  # the same process on a new stream
            return
        life = Life(event.node_id, event.boot_id, event.spec, at - self._origin)
        if known is not None:
            known.ends = min(known.ends, life.begins)
        self._lives[event.node_id] = life
        self.recalled.lives.append(life)

    def _hear_first_words(self, step: Step, core: Scheduler) -> None:
        for dispatch_id, _, _, _ in step.heard:
            lane = core.relay.lanes.get(dispatch_id)
            if lane is not None and lane.attempt.request.context.first_output_at < 0:
                lane.attempt.request.context.first_output_at = step.at

    def _finished(self, at: Instant, command: cmd.FinishRequest) -> None:
        request, attempt = command.request, command.attempt
        if command.outcome is Outcome.SUCCEEDED and attempt is not None:
            parts = request.attempts if request.continuing else (attempt,)
            self._took[request.rid] = sum(a.ended_at - a.started_at for a in parts)
            request.context.arrival.output_tokens = max(1, attempt.output_tokens)
        self._metrics.on_finished(at, command)


class _Rise:
    """Begins one life at its instant, and ends it at its own."""

    def __init__(self, fleet: Fleet, life: Life, kind: NodeKind) -> None:
        self._fleet = fleet
        self._life = life
        self._kind = kind

    def __call__(self, _: None) -> None:
        fleet, kind = self._fleet, self._kind
        if kind.name in fleet.nodes:
            node = fleet.nodes[kind.name]
            node.join()
        else:
            node = fleet.start(kind, kind.name)
        if self._life.ends < NEVER:
            agenda = fleet.world.agenda
            agenda.at(max(agenda.now, self._life.ends), _fall, node)


def _fall(node: ModelledNode) -> None:
    node.kill(seen_after=0)


def _arrival(request: Request, at: Instant) -> Arrival:
    timeout = request.deadline - request.received_at if request.deadline < NEVER else NEVER
    return Arrival(
        at,
        request.prompt,
        max(1, request.output_tokens),
        tenant=request.tenant or request.user_id,
        model=request.model,
        priority=request.priority,
        session=request.affinity_key,
        timeout=timeout,
        max_wait=request.max_wait,
        task_type=request.task_type,
        request_class=request.request_class,
        degrade=request.degrade,
        inputs=request.inputs,
        continuable=request.continuable,
    )


def _kind(life: Life, engine: EngineSpec) -> NodeKind:
    """Such a node of one engine, whose work takes as long as it did."""
    is_static = engine.mode is EngineMode.STATIC

    def make(host: Host) -> Engine:
        if is_static:
            return StaticEngine(host, 1, _slowest)
        return IndependentEngine(host, engine.slots)

    return NodeKind(
        name=life.node_id if len(life.spec.engines) == 1 else f"{life.node_id}/{engine.engine_id}",
        make=make,
        slots=engine.slots,
        mode=engine.mode,
        max_batch=engine.max_batch_size,
        look_ahead=engine.look_ahead,
        models=tuple(model.model for model in engine.models),
        resumable=any(model.resumable for model in engine.models),
        role=life.spec.role,
        task_types=life.spec.task_types,
    )


def _slowest(works: Sequence[Work]) -> Duration:
    """A static batch ends together."""
    return max(work.arrival.service for work in works)
