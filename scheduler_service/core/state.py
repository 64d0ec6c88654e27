"""What does the core remember? All of it, in one place, with the moves that everything shares."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from scheduler_service.core.commands import Command
from scheduler_service.core.demand import Demand
from scheduler_service.core.events import NodeJoined
from scheduler_service.core.interfaces import PolicySet, PoolLoad
from scheduler_service.core.outcomes import NodeAvailability, NodeHealth, Outcome, Reason
from scheduler_service.core.queues import PoolQueue
from scheduler_service.core.records import Record
from scheduler_service.core.relay import Relay
from scheduler_service.core.settings import CoreSettings
from scheduler_service.core.timers import TimerWheel
from scheduler_service.core.types import (
    NEVER,
    Attempt,
    Batch,
    Engine,
    Instant,
    Node,
    Request,
    ServiceEstimate,
)

TERM_SHIFT = 40  # dispatch, output and session ids are term << 40 | counter


@dataclass(slots=True)
class ScaleState:
    """What the autoscaler asked for, per pool."""

    desired: int = 0  # 0: nothing asked for yet
    asked_at: Instant = -NEVER
    last_out_at: Instant = -NEVER
    last_in_at: Instant = -NEVER
    idle_since: Instant = NEVER
    reason: str = ""
    failures: int = 0  # of the actuator, since a node last joined
    retry_at: Instant = -NEVER  # not asked again before


@dataclass(slots=True)
class Pool:
    """Requests that the same nodes can serve: here, of one model."""

    model: str
    queue: PoolQueue
    engines: list[Engine] = field(default_factory=list)  # of live nodes, by node and engine id
    estimate: ServiceEstimate = field(default_factory=ServiceEstimate)
    scale: ScaleState = field(default_factory=ScaleState)
    demand: Demand = field(default_factory=Demand)
    dead_since: Instant = -NEVER  # when its last live node went; -NEVER: none was ever there
    no_node_noted: bool = False  # `no_available_node` was recorded for the present lack
    stranded_seen: bool = False  # those who wait were looked at since nodes changed
    context_length: int = 0  # the most that any engine takes; 0: not limited, or unknown
    dispatches: int = 0
    floor_dispatches: int = 0
    room_step: int = -1  # step in which `free` and `parallel` were computed
    free: int = 0
    parallel: int = 0

    @property
    def live(self) -> bool:
        """Whether any live node has the model."""
        return bool(self.engines)


@dataclass(slots=True)
class Totals:
    """Since the start; outcomes count each request once."""

    received: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    degraded: int = 0
    failovers: int = 0
    preemptions: int = 0
    batches: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    wasted_output_tokens: int = 0
    late_results: int = 0
    healed: int = 0


class State:
    """The core's memory. `commands` and `records` collect what the present step leaves."""

    def __init__(self, settings: CoreSettings, policies: PolicySet) -> None:
        self.settings = settings
        self.policies = policies
        self.now: Instant = 0
        self.step = 0
        self.next_check = settings.check_every  # the step of the next full walk of the invariants
        self.requests: dict[int, Request] = {}  # not finished
        self.finished: deque[Request] = deque(maxlen=settings.finished_memory)
        self.pools: dict[str, Pool] = {}
        self.nodes: dict[str, Node] = {}
        self.newcomers: dict[str, NodeJoined] = {}  # claim the id of a live node
        self.relay = Relay()
        self.timers = TimerWheel()
        self.dirty: dict[str, None] = {}  # pools to decide for
        self.waiting_bytes = 0
        self.draining = ""  # not empty: why no new requests are taken
        self.totals = Totals()
        self.cancels: dict[tuple[str, int, Reason], list[int]] = {}  # of this step, by session
        self.commands: list[Command] = []
        self.records: list[Record] = []
        self._counter = 0  # dispatch, output and batch ids
        self._place = 0
        for model in sorted(settings.known_models):
            self.pool(model)

    def plan_check(self) -> None:
        """Set the step of the next full walk of the invariants."""
        self.next_check = self.step + self.settings.check_every * (1 + len(self.requests) // 1000)

    def pool(self, model: str) -> Pool:
        """The model's pool, made where there is none."""
        pool = self.pools.get(model)
        if pool is None:
            pool = self.pools[model] = Pool(model, PoolQueue(self.settings.queue.floor_every))
        return pool

    def new_id(self) -> int:
        """An id that no other term and no earlier call gave."""
        self._counter += 1
        return self.settings.term << TERM_SHIFT | self._counter

    def skip_ids(self, former: State) -> None:
        """Never give an id that `former` gave."""
        self._counter = former._counter

    def new_place(self) -> int:
        """The last place of all queues."""
        self._place += 1
        return self._place

    def emit(self, command: Command) -> None:
        """Ask the world for something."""
        self.commands.append(command)

    def record(
        self,
        kind: str,
        request: Request | None = None,
        *,
        attempt: Attempt | None = None,
        batch: Batch | None = None,
        node_id: str = "",
        pool: str = "",
        **data: Any,
    ) -> None:
        """Note a decision for the observers."""
        self.records.append(
            Record(kind, self.now, request, attempt, batch, node_id, pool, data or None)
        )

    def touch(self, model: str) -> None:
        """Decide for this pool at the end of the step."""
        self.dirty[model] = None

    def touch_engine(self, engine: Engine) -> None:
        """Decide for every pool with waiting requests that this engine serves."""
        for model in engine.models:
            pool = self.pools.get(model)
            if pool is not None and len(pool.queue):
                self.dirty[model] = None

    def session(self, node_id: str, epoch: int) -> Node | None:
        """The node, if this session is its present one and not lost."""
        node = self.nodes.get(node_id)
        if node is None or node.epoch != epoch or not node.alive:
            return None
        return node

    def rebuild_pools(self) -> None:
        """Find the engines of every pool anew, after nodes or their models changed."""
        serving: dict[str, list[Engine]] = {}
        for node in sorted(self.nodes.values(), key=lambda n: n.node_id):
            if not node.alive:
                continue
            for engine in node.engines.values():
                for model in engine.models:
                    self.pool(model)
                    serving.setdefault(model, []).append(engine)
        for model, pool in self.pools.items():
            was_live = pool.live
            pool.engines = serving.get(model, [])
            pool.room_step = -1
            pool.stranded_seen = False
            contexts = [e.models[model].context_length for e in pool.engines]
            pool.context_length = max(contexts, default=0) if all(contexts) else 0
            if pool.live:
                pool.no_node_noted = False
            elif was_live:
                pool.dead_since = self.now
            self.touch(model)

    def load_of(self, pool: Pool, request: Request) -> PoolLoad:
        """What admission sees. O(1) but for the first call of a step."""
        if pool.room_step != self.step:
            pool.room_step = self.step
            usable = [e for e in pool.engines if accepts_work(e, pool.model)]
            pool.free = sum(max(0, e.free_inputs()) for e in usable)
            pool.parallel = sum(e.spec.slots for e in usable)
        limits = self.settings.queue
        return PoolLoad(
            waiting=pool.queue.interactive,
            waiting_bytes=self.waiting_bytes,
            ahead=0,
            free_inputs=pool.free,
            parallel=pool.parallel,
            live_nodes=len(pool.engines),
            expected_service=pool.estimate.expect(request.output_tokens),
            mean_service=pool.estimate.mean,
            max_requests=limits.max_requests,
            max_bytes=limits.max_bytes,
        )


def accepts_work(engine: Engine, model: str) -> bool:
    """Whether new work of the model may go there, credit aside."""
    node = engine.node
    return (
        node.availability is NodeAvailability.ACTIVE
        and node.health in (NodeHealth.HEALTHY, NodeHealth.PROBATION)
        and node.connected
        and engine.spec.healthy
        and engine.models[model].active
    )
