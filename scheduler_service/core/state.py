"""What does the core remember? All of it, in one place, with the moves that everything shares."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_service.core import condition
from scheduler_service.core.answers import Hedging
from scheduler_service.core.batch_times import Rate
from scheduler_service.core.budgets import RetryBudget
from scheduler_service.core.commands import Command
from scheduler_service.core.demand import Demand
from scheduler_service.core.events import NodeJoined
from scheduler_service.core.interfaces import LoadSpread, PolicySet, PoolLoad
from scheduler_service.core.lengths import Lengths
from scheduler_service.core.openings import SMALL, Openings
from scheduler_service.core.outcomes import (
    EngineMode,
    NodeAvailability,
    NodeHealth,
    Outcome,
    Reason,
)
from scheduler_service.core.pressure import DrainRate, Overload, Waiting
from scheduler_service.core.queues import PoolQueue
from scheduler_service.core.records import Record
from scheduler_service.core.relay import Relay
from scheduler_service.core.settings import CoreSettings, Patience
from scheduler_service.core.shedding import Cursor
from scheduler_service.core.timers import TimerWheel
from scheduler_service.core.types import (
    MILLISECOND,
    NEVER,
    Apart,
    Attempt,
    Batch,
    Duration,
    Engine,
    Instant,
    Node,
    Request,
    ServiceEstimate,
)

if TYPE_CHECKING:
    from scheduler_service.core.patience import Watch

_MAY_WORK: Final = (NodeHealth.HEALTHY, NodeHealth.PROBATION, NodeHealth.STARTING)
HOMES_MAX: Final = 10_000  # affinity keys whose last engine is remembered
LARGE_POOL_STALE: Final = 100 * MILLISECOND  # so old the room of a large pool may be
TERM_SHIFT = 40  # dispatch, output and session ids are term << 40 | counter


@dataclass(slots=True)
class ScaleState:
    """What the autoscaler asked for, per pool."""

    desired: int = 0  # 0: nothing asked for yet
    asked_at: Instant = -NEVER  # the last time
    orders: deque[Instant] = field(default_factory=deque)  # when each on its way was asked for
    last_out_at: Instant = -NEVER
    last_in_at: Instant = -NEVER
    idle_since: Instant = NEVER
    reason: str = ""
    failures: int = 0  # of the actuator, since a node last joined
    retry_at: Instant = -NEVER  # not asked again before
    frozen_until: Instant = -NEVER  # only plans are made before; NEVER: until it is unfrozen
    planned: int = 0  # what a frozen autoscaler would ask for; 0: what there is


@dataclass(slots=True)
class Pool:
    """Requests that the same nodes can serve: here, of one model."""

    model: str
    queue: PoolQueue
    load: PoolLoad  # as last asked for
    engines: list[Engine] = field(default_factory=list)  # of live nodes, by node and engine id
    usable: list[Engine] = field(default_factory=list)  # of them, those that accept work
    unusable: tuple[tuple[Engine, str], ...] = ()  # the others, and why; never changed in place
    members: frozenset[Engine] = frozenset()  # as `usable`
    up: int = 0  # engines that are not down, accepting work or not
    has_backups: bool = False
    has_static: bool = False
    arrivals: Rate = field(default_factory=Rate)  # where there are static engines
    openings: Openings | None = None  # of a large pool's primaries, or backups without any
    apart: Apart | None = None  # who must not run with others, while there are any
    homes: dict[str, Engine] = field(default_factory=dict)  # of a large pool, by affinity key
    drain: DrainRate = field(default_factory=DrainRate)
    waiting: Waiting = field(default_factory=Waiting)
    overload: Overload = field(default_factory=Overload)
    spread: LoadSpread = field(default_factory=LoadSpread)
    estimate: ServiceEstimate = field(default_factory=ServiceEstimate)
    yardstick: ServiceEstimate = field(default_factory=ServiceEstimate)  # of when nobody waited
    scale: ScaleState = field(default_factory=ScaleState)
    demand: Demand = field(default_factory=Demand)
    dead_since: Instant = -NEVER  # when its last live node went; -NEVER: none was ever there
    paused: bool = False  # an operator holds its dispatches back
    no_node_noted: bool = False  # `no_available_node` was recorded for the present lack
    stranded_seen: bool = False  # those who wait were looked at since nodes changed
    context_length: int = 0  # the most that any engine takes; 0: not limited, or unknown
    dispatches: int = 0
    floor_dispatches: int = 0
    firsts: int = 0  # first attempts dispatched
    errors: RetryBudget = field(default_factory=RetryBudget)
    deaths: RetryBudget = field(default_factory=RetryBudget)
    cursor: Cursor | None = None  # None: it sheds nobody
    patience: Patience | None = None  # None: nobody looks how long its attempts take
    hedging: Hedging | None = None  # None: no attempt gets a rival
    most_inputs: int = 0  # the most that its nodes could hold at once, ever
    room_step: int = -1  # step in which `free` and `parallel` were computed; -1: not yet
    room_at: Instant = 0
    free: int = 0
    parallel: int = 0

    @property
    def live(self) -> bool:
        """Whether any live node has the model, on an engine that is not down."""
        return self.up > 0

    def remember(self, affinity_key: str, engine: Engine) -> None:
        """The key's prefix is known there now."""
        homes = self.homes
        homes.pop(affinity_key, None)  # the latest last
        homes[affinity_key] = engine
        if len(homes) > HOMES_MAX:
            del homes[next(iter(homes))]

    def set_engines(self, engines: list[Engine], seed: int) -> None:
        """Nodes changed."""
        self.engines = engines
        words = [(e, why_unusable(e, self.model)) for e in engines]
        self.usable = [e for e, word in words if not word]
        self.unusable = tuple(pair for pair in words if pair[1])
        self.members = frozenset(self.usable)
        self.up = sum(not e.spec.down for e in engines)
        primaries = [e for e in self.usable if not e.node.backup]
        self.has_backups = 0 < len(primaries) < len(self.usable)
        self.has_static = any(e.spec.mode is EngineMode.STATIC for e in engines)
        drawn = primaries or self.usable
        self.openings = Openings(drawn, seed) if len(drawn) > SMALL else None
        self.spread.at = -NEVER
        held = sum(e.spec.slots + e.spec.look_ahead for e in engines)
        self.most_inputs = max(self.most_inputs, held)
        contexts = [e.longest(self.model) for e in engines]
        self.context_length = max(contexts, default=0) if all(contexts) else 0


@dataclass(slots=True)
class Totals:
    """Since the start; outcomes count each request once."""

    received: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    degraded: int = 0
    failovers: int = 0
    preemptions: int = 0
    preempted_work: Duration = 0  # slot time of preempted job items that was for nothing
    hedges: int = 0  # rivals sent beside slow attempts
    hedges_won: int = 0  # of them, those that answered first
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
        self.decisions: deque[Any] = deque(maxlen=settings.decision_memory)  # see `explain.py`
        self.pools: dict[str, Pool] = {}
        self.nodes: dict[str, Node] = {}
        self.newcomers: dict[str, NodeJoined] = {}  # claim the id of a live node
        self.relay = Relay()
        self.timers = TimerWheel()
        self.dirty: dict[str, None] = {}  # pools to decide for
        self.lengths: Lengths | None = None
        self.learn_lengths()
        self.watches: dict[int, Watch] = {}  # by rid, where attempts have limits
        self.hedges = False  # whether any pool sends rivals to slow attempts
        self.apart: dict[str, None] = {}  # pools that have requests which must run apart
        self.blamed: dict[int, None] = {}  # by rid: requests of which deaths are remembered
        self.blames: dict[int, tuple[Request, tuple[str, ...]]] = {}  # of this step, by rid
        self.waiting_bytes = 0
        self.jobs_running = 0  # items of jobs in flight
        self.making_room: dict[str, int] = {}  # job items stopped for each pool, not yet gone
        self.hold_until: Instant = 0  # nothing is dispatched before
        self.draining = ""  # not empty: why no new requests are taken
        self.totals = Totals()
        self.cancels: dict[tuple[str, int, Reason], list[int]] = {}  # of this step, by session
        self.commands: list[Command] = []
        self.records: list[Record] = []
        self._counter = settings.term << TERM_SHIFT  # the last dispatch, output or batch id
        self._place = 0
        for model in sorted(settings.known_models):
            self.pool(model)

    def learn_lengths(self) -> None:
        """Begin or end to, as the settings say."""
        if not self.settings.queue.learn_lengths:
            self.lengths = None
        elif self.lengths is None:
            self.lengths = Lengths()

    def plan_check(self) -> None:
        """Set the step of the next full walk of the invariants."""
        self.next_check = self.step + self.settings.check_every * (1 + len(self.requests) // 1000)

    def pool(self, model: str) -> Pool:
        """The model's pool, made where there is none."""
        pool = self.pools.get(model)
        if pool is None:
            limits, ordering = self.settings.queue, self.policies.ordering_of(model)
            queue = PoolQueue(limits.floor_every, ordering.discipline(), limits.weights)
            load = PoolLoad(0, 0, 0, 0, 0, 0, 0, 0, limits.max_requests, limits.max_bytes)
            pool = self.pools[model] = Pool(model, queue, load)
            shedding = self.policies.admission.shedding()
            pool.cursor = Cursor(shedding, self.settings.seed) if shedding is not None else None
            self.watch_attempts(pool)
        return pool

    def watch_attempts(self, pool: Pool) -> None:
        """How long its attempts may take, and whether slow ones get rivals, as the settings say."""
        failover = self.settings.failover
        patience = failover.patience_by_model.get(pool.model, failover.patience)
        hedge = failover.hedge_by_model.get(pool.model, failover.hedge)
        if hedge is None:
            pool.hedging = None
        elif pool.hedging is None:
            pool.hedging, self.hedges = Hedging(hedge), True
        else:
            pool.hedging.limits = hedge
        watched = hedge is not None or patience != Patience()
        pool.patience = patience if watched else None

    def new_id(self) -> int:
        """An id that no other term and no earlier call gave."""
        self._counter += 1
        return self._counter

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
        pools = self.pools
        for model in engine.models:
            pool = pools.get(model)
            if pool is None:
                continue
            if pool.openings is not None and engine in pool.members and not engine.node.backup:
                pool.openings.add(engine)
            if pool.queue.interactive or pool.queue.jobs or pool.apart is not None:
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
            pool.set_engines(serving.get(model, []), self.settings.seed)
            pool.room_step = -1
            pool.stranded_seen = False
            if pool.live:
                pool.no_node_noted = False
            elif was_live:
                pool.dead_since = self.now
            self.touch(model)

    def load_of(self, pool: Pool, request: Request) -> PoolLoad:
        """What admission sees, until the next call. O(1) but for the first call of a step."""
        stale = pool.openings is None or self.now - pool.room_at >= LARGE_POOL_STALE
        if pool.room_step != self.step and (stale or pool.room_step < 0):
            pool.room_step, pool.room_at = self.step, self.now
            pool.free = sum(max(0, e.free_inputs()) for e in pool.usable)
            pool.parallel = sum(e.spec.slots for e in pool.usable)
            pool.load.live_nodes = pool.up
        load, estimate, tenants = pool.load, pool.estimate, pool.waiting.tenants
        load.waiting = pool.queue.interactive
        load.waiting_bytes = self.waiting_bytes
        load.ahead = 0
        load.free_inputs, load.parallel = pool.free, pool.parallel
        load.expected_service = estimate.expect(request.output_tokens)
        load.mean_service = estimate.mean
        load.drain_rate = pool.drain.per_second
        load.tenant_waiting = of_tenant = tenants.get(request.tenant, 0)
        load.tenants = len(tenants) + (not of_tenant)
        return load


def accepts_work(engine: Engine, model: str) -> bool:
    """Whether new work of the model may go there, credit aside."""
    return not why_unusable(engine, model)


def in_service(node: Node) -> bool:
    """Whether the node itself may get new work, whatever its engines and models are like now."""
    return not _why_not_in_service(node)


def _why_not_in_service(node: Node) -> str:
    if node.health not in _MAY_WORK:
        return node.health.name.lower()
    if node.availability is not NodeAvailability.ACTIVE:
        return node.availability.name.lower()
    return "" if node.connected else "disconnected"


def why_unusable(engine: Engine, model: str) -> str:
    """Why it gets no new work of the model, in one word; empty: it may get some."""
    node = engine.node
    if why := _why_not_in_service(node):
        return why
    if not engine.spec.healthy:
        return condition.of_engine(engine)
    spec = engine.models[model]
    if not spec.active:
        return spec.word or "model_inactive"
    return condition.STARTING if node.health is NodeHealth.STARTING else ""
