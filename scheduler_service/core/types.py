"""What does the core know of requests, attempts, nodes and engines?

Slotted and unfrozen: these are on the hot path (`docs/adr/0002-cost-of-the-pure-core.md`). Only
modules of this package write to them; policies and the edge read. Time is integer nanoseconds.
What has an identity (requests, attempts, batches, engines, nodes) is equal to itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler_service.core.outcomes import (
    AttemptState,
    EngineMode,
    NodeAvailability,
    NodeHealth,
    Outcome,
    Reason,
    RequestClass,
    RequestState,
    ResumeMode,
)

if TYPE_CHECKING:
    from scheduler_service.core.batch_times import BatchTime
    from scheduler_service.core.relay import Output

Instant = int  # nanoseconds of a monotonic clock
Duration = int  # nanoseconds

NEVER: Final[Instant] = (1 << 62) - 1  # also "no limit" as a Duration; sums of two stay below 2**63
MICROSECOND: Final[Duration] = 1_000
MILLISECOND: Final[Duration] = 1_000_000
SECOND: Final[Duration] = 1_000_000_000

PRIORITIES: Final = range(1, 11)  # 10 is the most urgent


class _Nobody(dict[int, "Attempt"]):
    """An empty dict that stays empty, and itself when it is copied."""

    def __setitem__(self, dispatch_id: int, attempt: Attempt) -> None:
        raise TypeError("it stands for all requests that wait: give the request its own")

    def __reduce__(self) -> str:
        return "NOBODY"


ADOPTED: Final = "adopted"  # `Attempt.chosen_by`: it was begun under a scheduler of before
NOBODY: Final = _Nobody()  # stands for `Request.live` of all that wait


@dataclass(slots=True)
class Traits:
    """What may have to be equal, or alike, in a static batch. Only compared, never read."""

    params: bytes = b""  # the serialised sampling parameters
    input_kind: int = 0
    tensor_shapes: str = ""
    dimensions: int = 0
    length: int = 0  # of the input, in the caller's unit (bytes of text, or token ids)


@dataclass(slots=True, eq=False)
class Request:
    """One request: what the edge states of it (first part), and where it is (second part)."""

    rid: int  # the core's own number, from 1, unique in this process
    request_id: str
    model: str  # asked for
    priority: int = 5  # 1..10
    received_at: Instant = 0
    tenant: str = ""
    user_id: str = ""
    task_type: str = "other"
    request_class: RequestClass = RequestClass.INTERACTIVE
    deadline: Instant = NEVER
    max_wait: Duration = NEVER  # over all stays in the queue
    degrade: tuple[str, ...] = ()  # models to fall back on, in order; empty: never
    degrade_after: Duration = NEVER
    max_attempts: int = 3
    resume_mode: ResumeMode = ResumeMode.DEFAULT
    continuable: bool = True  # one choice, unguided: its output may be continued elsewhere
    stream: bool = False
    inputs: int = 1  # texts or choices; what it is charged, up to an engine's slots
    prompt_tokens: int = 0  # an estimate; 0: unknown
    output_tokens: int = 0  # expected; 0: unknown
    size_bytes: int = 0
    affinity_key: str = ""
    traits: Traits | None = None  # None: batches with everything of its model
    context: Any = None  # the edge's own; opaque here
    trace_id: str = ""  # of a sampled request, for those who look at it later
    former_deaths: tuple[str, ...] = ()  # nodes that died with it, in an earlier life of it
    due: Instant = 0  # what its order takes for the deadline; 0: the deadline

    # Where it is. Written by the core only.
    state: RequestState = RequestState.QUEUED
    place: int = 0  # in the queue; kept when it is queued again
    cost: int = 0  # predicted (`fairness.py`); 0: not yet looked at
    latest_start: Instant = NEVER  # to meet its deadline, by what is expected
    paid: bool = False  # its user was charged for it
    served_model: str = ""  # the pool it is in: `model`, or its substitute
    degrade_reason: str = ""  # not empty: it was degraded
    queued_at: Instant = 0  # start of this stay in the queue
    queue_time: Duration = 0  # of the former stays
    first_dispatch_at: Instant = 0
    finished_at: Instant = 0
    outcome: Outcome | None = None
    finish_reason: int = 0  # the protocol's, of one that succeeded; 0: not known
    reason: Reason = Reason.NONE
    # Tuples: empty ones, of all who wait, cost nothing.
    attempts: tuple[Attempt, ...] = field(default=(), repr=False)
    # By dispatch id; these may still speak. Its own dict from its first dispatch on.
    live: dict[int, Attempt] = field(default_factory=lambda: NOBODY, repr=False)
    charged: int = 0  # attempts that count against max_attempts
    tried: tuple[str, ...] = ()  # node incarnations that failed it
    output: Output | None = None  # what the client has been sent, if it streams
    continuing: bool = False  # the next attempt goes on from `output`
    preemptions: int = 0
    wait_forgiven: Duration = 0  # waited for the model asked for before max_wait substituted it
    unfit_since: Instant = NEVER  # live nodes of its pool cannot take it; NEVER: not known to be so
    in_queue: bool = False  # QUEUED and not in it: held back until its next try is due
    wait_timed: bool = False  # a timer for its wait has been set in this stay

    @property
    def degraded(self) -> bool:
        """Whether another model than the one asked for serves it."""
        return self.degrade_reason != ""

    @property
    def prompt(self) -> int:
        """Tokens of the prompt. A text's counts as a token per four characters."""
        length = self.traits.length if self.traits is not None else 0
        return self.prompt_tokens or (length + 3) // 4

    @property
    def tokens(self) -> int:
        """Prompt plus expected output."""
        return self.prompt + self.output_tokens

    def waited(self, now: Instant) -> Duration:
        """Time in the queue so far, over all stays."""
        if self.state is RequestState.QUEUED:
            return self.queue_time + now - self.queued_at
        return self.queue_time


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of one request on one engine. `dispatch_id` names it for ever."""

    dispatch_id: int
    number: int  # from 1
    request: Request = field(repr=False)
    engine: Engine = field(repr=False)
    model: str
    batch: Batch = field(repr=False)
    inputs: int  # charged
    started_at: Instant
    tokens: int = 0  # charged, where the engine's are limited
    sent_index: int = 0  # the how many-th item sent in its node's session, from 1
    chosen_by: str = "order"  # or "floor", "apart", "hedge", ADOPTED
    queue_wait: Duration = 0  # the stay in the queue that it ended
    output_id: int = 0
    state: AttemptState = AttemptState.RUNNING
    running: bool = False  # the node said so
    preempted_for: str = ""  # the pool that it was asked to make room for
    spoke: bool = False  # output of it reached the client
    timed_out: bool = False  # the scheduler ended it, for its node took too long
    ended_at: Instant = 0
    reason: Reason = Reason.NONE
    message: str = ""
    output_tokens: int = 0
    expected_start: Duration = 0  # until its prompt is taken in, by the profile; 0: not stated
    expected_token: Duration = 0  # per output token

    @property
    def node(self) -> Node:
        """The node it was sent to."""
        return self.engine.node


@dataclass(slots=True, eq=False)
class Batch:
    """Requests sent together. For a continuous engine it only saves messages."""

    batch_id: str
    engine: Engine = field(repr=False)
    model: str
    atomic: bool
    close_reason: str  # "size", "timeout", "deadline", "idle_node", "floor", "credit"
    created_at: Instant
    inputs_max: int = 0  # as its engine had it then; 0: not limited
    reserve: float = 0.0  # times its expected duration that deadlines leave to it; 0: not looked at
    length_ratio: float = 0.0  # longest over shortest input; 0: no limit
    behind: bool = False  # another one ran on the engine when it was sent
    oldest_wait: Duration = 0
    attempts: list[Attempt] = field(default_factory=list)
    open_items: int = 0  # attempts that have not ended
    held_items: int = 0  # of them and of the cancelled ones, those that the node still holds
    kept_items: int = 0  # attempts of requests that are open or can still be listed


@dataclass(slots=True)
class BatchRules:
    """What an engine needs equal in a static batch (`BatchKeyRules` of the protocol)."""

    equal: tuple[str, ...] = ()
    max_length_ratio: float = 0.0  # 0: no limit
    max_tokens: int = 0  # padded, over the batch; 0: no limit


@dataclass(slots=True)
class ModelSpec:
    """A model, or adapter, on an engine, as the agent describes it."""

    model: str
    base_model: str = ""
    context_length: int = 0  # 0: unknown
    max_concurrency: int = 0  # 0: the engine's slots
    resumable: bool = False
    streaming: bool = True
    task_types: tuple[str, ...] = ()  # empty: the node's
    features: tuple[str, ...] = ()  # what its agent says that it can do
    active: bool = True
    word: str = ""  # why it is not active: "loading", "unloading", "failed"; empty: not said
    configured_service: Duration = 0  # mean service time by its profile; 0: unknown
    prefill_rate: float = 0.0  # prompt tokens per second by its profile; 0: unknown
    # By its profile: (inputs that run, time per output token of each), rising. Empty: unknown.
    token_times: tuple[tuple[int, Duration], ...] = ()
    batch_times: tuple[tuple[int, Duration], ...] = ()  # static: (inputs, time of such a batch)


@dataclass(slots=True)
class EngineSpec:
    """An engine, as the agent describes it."""

    engine_id: str
    mode: EngineMode
    slots: int
    max_batch_size: int = 0  # 0: as slots
    look_ahead: int = 0
    kv_capacity: int = 0  # tokens; 0: not known, so not limited
    rules: BatchRules = field(default_factory=BatchRules)
    models: tuple[ModelSpec, ...] = ()
    healthy: bool = True
    down: bool = False  # it has ended or cannot be reached; not so one that starts or hangs
    word: str = ""  # why it is not healthy: "starting", "stalled", "down"; empty: not said


@dataclass(slots=True)
class NodeSpec:
    """A node, as its agent describes it."""

    engines: tuple[EngineSpec, ...]
    role: str = "primary"  # or "backup"
    task_types: tuple[str, ...] = ()  # empty: all
    managed: bool = False  # started by an autoscaler, which may drain it
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ServiceEstimate:
    """Learned service time of one model on one engine, or of a pool (exponential averages)."""

    mean: Duration = 0  # dispatch to result; 0: nothing known
    tokens: float = 0.0  # output tokens of such an attempt
    samples: int = 0

    def learn(self, duration: Duration, tokens: int) -> None:
        """Add one finished attempt; the average follows with a weight of 1/8."""
        if self.samples == 0:
            self.mean, self.tokens = duration, float(tokens)
        else:
            self.mean += (duration - self.mean) >> 3
            self.tokens += (tokens - self.tokens) / 8
        self.samples += 1

    def copy(self, other: ServiceEstimate) -> None:
        """Know what that one knows now."""
        self.mean, self.tokens, self.samples = other.mean, other.tokens, other.samples

    def expect(self, output_tokens: int) -> Duration:
        """Service time of a request of that many output tokens (0: unknown, the mean).

        Scaled by tokens within a factor of ten, as prompt length predicts nothing here.
        """
        if output_tokens <= 0 or self.tokens <= 0:
            return self.mean
        ratio = output_tokens / self.tokens
        if 0.1 < ratio < 10.0:
            return int(self.mean * ratio)
        return int(self.mean * (0.1 if ratio <= 0.1 else 10.0))


@dataclass(slots=True, eq=False)
class Engine:
    """The core's books about one engine of a live node."""

    node: Node = field(repr=False)
    spec: EngineSpec
    models: dict[str, ModelSpec]
    credit_inputs: int = 0  # the agent's running total of this session
    credit_tokens: int | None = None  # None: not limited
    charged_inputs: int = 0  # ours, of this session
    charged_tokens: int = 0
    capacity_peak: int = 0  # in this session: most slots + look-ahead, or credit left at once
    in_flight_items: int = 0
    in_flight_inputs: int = 0  # whose results have not come
    open_batches: dict[str, Batch] = field(default_factory=dict)  # not wholly ended
    job_items: dict[int, Attempt] = field(default_factory=dict)  # in flight, the latest last
    blocked_until: Instant = 0  # it refused work: left alone until then
    healed: int = 0
    service: dict[str, ServiceEstimate] = field(default_factory=dict)  # by model
    batch_times: dict[str, BatchTime] = field(default_factory=dict)  # static; by model
    slowness: dict[str, float] = field(default_factory=dict)  # by model: took / stated; `profile`
    prefill_until: Instant = 0  # when all prompts sent are taken in, by the profile
    slots_limit: int = 0  # fewer than its slots, since it preempted; 0: all of them
    preemptions: int | None = None  # as last reported
    clean_since: Instant = 0  # no preemption since
    prefill_wake: Instant = 0  # when to look again for one that found too many of them
    prefixes: dict[str, int] = field(default_factory=dict)  # tokens known, by affinity key

    @property
    def engine_id(self) -> str:
        """Its id, unique on the node."""
        return self.spec.engine_id

    @property
    def max_batch(self) -> int:
        """Inputs per dispatch batch at most."""
        return self.spec.max_batch_size or self.spec.slots

    def held_inputs(self) -> int:
        """Inputs that the agent may hold: those in flight, but for what its credit says has ended
        there already, whose results are still on their way.

        The agent's total is what it can hold, less what it holds, plus what it was charged. So it
        holds at most `capacity_peak` less the credit that is left.
        """
        told = self.capacity_peak - self.credit_inputs + self.charged_inputs
        return self.in_flight_inputs if told >= self.in_flight_inputs else max(0, told)

    def free_inputs(self) -> int:
        """Inputs that may be sent now: within the agent's credit and within slots + look-ahead.

        Whatever an agent grants, results of no more than that are outstanding beside as much.
        """
        spec = self.spec
        credit = self.credit_inputs - self.charged_inputs
        most = spec.slots + spec.look_ahead
        room = min(most - self.held_inputs(), 2 * most - self.in_flight_inputs)
        return credit if credit < room else room

    def tokens_of(self, request: Request) -> int:
        """Tokens it may come to hold here: prompt and expected output, up to the capacity."""
        return min(request.tokens, self.spec.kv_capacity or request.tokens)

    def takes_tokens_of(self, request: Request) -> bool:
        """Whether the agent's credit of tokens, if it gives one, covers the request."""
        if self.credit_tokens is None:
            return True
        return self.charged_tokens + self.tokens_of(request) <= self.credit_tokens

    def longest(self, model: str) -> int:
        """The longest prompt of the model that it can ever hold, in tokens; 0: unknown."""
        limits = (self.models[model].context_length, self.spec.kv_capacity)
        return min(filter(None, limits), default=0)

    def charge_of(self, request: Request) -> int:
        """What the request costs here: its inputs, up to the slots."""
        inputs, slots = request.inputs, self.spec.slots
        return inputs if inputs < slots else slots


@dataclass(slots=True)
class Drain:
    """What a drain waited for, moved and lost."""

    started_at: Instant
    grace: Duration
    terminate: bool
    reason: str
    by_agent: bool = False  # its agent leaves, whatever the scheduler wants
    ended_at: Instant = 0  # 0: goes on
    lifted: bool = False  # an operator has taken it back
    finished: list[str] = field(default_factory=list)  # request ids
    moved: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Trust:
    """How a node's attempts ended lately, and what followed from it (`health.py`)."""

    errors_in_row: int = 0
    window: int = -1  # the ten seconds that the next two count
    succeeded: int = 0
    failed: int = 0
    error_rate: float = 0.0  # of its attempts, an exponential average
    ejections: int = 0  # halved for every five minutes that went well
    ejected_at: Instant = -NEVER  # the last time
    ejected_until: Instant = 0  # 0: it is not out
    on_probation: bool = False
    kept: bool = False  # for a trial (`apart.py`): nothing else goes there
    probation_since: Instant = 0
    proven: int = 0  # successes on probation
    warm_from: Instant = 0
    warm_until: Instant = 0  # it has less than all of its slots before


@dataclass(slots=True, eq=False)
class Node:
    """The core's books about one node."""

    node_id: str
    boot_id: str
    epoch: int
    spec: NodeSpec
    joined_at: Instant
    last_heard: Instant
    health: NodeHealth = NodeHealth.STARTING
    availability: NodeAvailability = NodeAvailability.ACTIVE
    connected: bool = True
    engines: dict[str, Engine] = field(default_factory=dict)
    in_flight: dict[int, Attempt] = field(default_factory=dict)  # by id, until the node ends them
    items_sent: int = 0  # in this session
    finished: int = 0  # attempts that succeeded, since the scheduler's start
    failed: int = 0
    drain: Drain | None = None
    state_reason: str = ""  # of its health
    availability_reason: str = ""  # as given by who took it out of service
    lost_at: Instant = 0
    trust: Trust = field(default_factory=Trust)
    strangers: frozenset[int] = frozenset()  # in its last report, and none of ours

    @property
    def incarnation(self) -> str:
        """Names this process of the node, so that a restarted one is not blamed for the old."""
        return f"{self.node_id}/{self.boot_id}"

    @property
    def alive(self) -> bool:
        """Whether its work may still come to an end there."""
        return self.health is not NodeHealth.LOST

    @property
    def backup(self) -> bool:
        """Whether it works only where no primary can."""
        return self.spec.role == "backup"


@dataclass(slots=True, eq=False)
class Trial:
    """A suspect that is run alone: its node is kept for it."""

    request: Request
    node: Node
    attempt: Attempt | None = None  # None: its node is not empty yet


@dataclass(slots=True, eq=False)
class Apart:
    """Who of a pool must not run with others (`apart.py`)."""

    suspects: list[Request] = field(default_factory=list)  # wait for a trial
    halves: list[list[Request]] = field(default_factory=list)  # each runs as one batch
    trial: Trial | None = None
