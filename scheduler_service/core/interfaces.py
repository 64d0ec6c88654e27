"""What does the core ask of its policies?

One protocol, one method, one question each. Policies are pure: they see read-only views (the types
of `types.py`), get `now` as an argument, and return data; the core carries it out. A policy is
named and chosen in the configuration (`policies/__init__.py` has the registry).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import (
    MILLISECOND,
    NEVER,
    Attempt,
    Duration,
    Engine,
    Instant,
    Request,
)


@dataclass(frozen=True, slots=True)
class Discipline:
    """How a pool's queue orders interactive requests before it asks which band goes next."""

    banded: bool = True  # by priority; else all are in one band
    fair: bool = True  # between users inside of a band (`fairness.py`); else by place alone
    window: int = 8_192  # cost by which a deadline may come before a fair share; 0: pure fairness
    sjf: bool = False  # of equal latest start, the cheaper (by powers of two) first


class Ordering(Protocol):
    """Which band head goes next?"""

    def discipline(self) -> Discipline:
        """Asked once per pool."""
        ...

    def key(self, head: Request, now: Instant) -> tuple[int, ...]:
        """Of an interactive request. The smallest goes first. Total: it ends in the place."""
        ...


class Preemption(Protocol):
    """From when on may a running job item be stopped for an interactive request?"""

    def allowed_from(self, item: Attempt) -> Instant:
        """NEVER: it runs to its end."""
        ...


@dataclass(slots=True)
class PoolLoad:
    """What admission and degrade see of a pool."""

    waiting: int  # interactive requests in the queue
    waiting_bytes: int  # of all pools
    ahead: int  # of them, those that would go before the newcomer
    free_inputs: int  # room on eligible engines now
    parallel: int  # inputs that run at once on its live nodes
    live_nodes: int
    expected_service: Duration  # least estimate for this request on any node; 0: unknown
    mean_service: Duration  # of the pool; 0: unknown
    max_requests: int
    max_bytes: int
    drain_rate: float = 0.0  # requests that end per second while others wait; 0: not measured
    tenant_waiting: int = 0  # interactive requests of this tenant
    tenants: int = 1  # with interactive requests that wait, this one included


@dataclass(slots=True)
class Refusal:
    """Admission says no, and why."""

    reason: Reason
    message: str
    retry_after: Duration | None
    metadata: dict[str, str]
    displaces: bool = False  # if a less urgent one waits, that one is put out instead


@dataclass(frozen=True, slots=True)
class Shedding:
    """How an overloaded pool turns requests away (`shedding.py`)."""

    target: Duration  # a window is overloaded in which even the shortest wait is longer
    window: Duration
    fewer: float  # after an overloaded window, that share of the admitted is turned away
    more: float  # after another one, so many more are let in


class Admission(Protocol):
    """May this request enter, or is it refused at once?"""

    def decide(self, request: Request, load: PoolLoad, now: Instant) -> Refusal | None:
        """None: it may enter."""
        ...

    def estimated_wait(self, load: PoolLoad) -> Duration:
        """Time in the queue to expect; 0: none, or unknown."""
        ...

    def least_share(self) -> float:
        """Of the expected service time, what must still fit before the deadline of a request that
        waits, or it is ended. Asked once. 0: it waits until its deadline has passed.
        """
        ...

    def shedding(self) -> Shedding | None:
        """Whether, and how, an overloaded pool turns requests away. Asked once per pool."""
        ...


@dataclass(slots=True)
class BatchView:
    """A static batch that could be sent now."""

    waiting: int  # inputs that could join, the head's included, of like and unlike; the most: all
    inputs_max: int  # the batch may hold
    oldest_at: Instant  # when its oldest began to wait
    earliest_deadline: Instant  # of those who wait
    expected_service: Duration  # of a batch; 0: unknown
    single: Duration = 0  # of a batch of one input; 0: unknown
    whole: Duration = 0  # of a batch of all that wait and fit in; 0: unknown
    size_limit: int = 0  # inputs, by what `resize` said; 0: none
    arrivals: float = 0.0  # inputs per second


@dataclass(slots=True)
class Close:
    """Send it now."""

    reason: str
    inputs_max: int = 0  # 0: as the engine takes
    # Who would make an earlier one late, by this many times the expected duration, stays out.
    reserve: float = 0.0  # 0: everybody may join
    length_ratio: float = 0.0  # longest over shortest input, where the engine gives none


@dataclass(slots=True)
class WaitUntil:
    """Wait for more, at most until then."""

    at: Instant


class BatchFormer(Protocol):
    """Send this batch now, or wait until when?"""

    def decide(self, view: BatchView, now: Instant) -> Close | WaitUntil:
        """Called whenever a batch's pool changed, and at the instant it asked for."""
        ...

    def resize(self, limit: int, inputs_max: int, size: int, took: Duration) -> int:
        """The most inputs from now on, after a batch of `size` took so long; 0: no limit."""
        ...


class Filter(Protocol):
    """Can this engine take this request at all, credit aside?"""

    def concerns(self, request: Request) -> Hashable:
        """All of the request that the answer depends on: where it is equal, so is the answer."""
        ...

    def why_not(self, request: Request, engine: Engine) -> str | None:
        """A stable word, or None when it can."""
        ...


class Scorer(Protocol):
    """How soon would it finish there?"""

    def concerns(self, request: Request) -> Hashable:
        """All of the request that the estimate depends on, beside its pool."""
        ...

    def estimate(self, request: Request, engine: Engine, now: Instant) -> Duration:
        """Expected time to completion."""
        ...


@dataclass(slots=True)
class LoadSpread:
    """How the engines of a pool were loaded at most 100 ms ago: in flight over slots, rising."""

    at: Instant = -NEVER
    loads: list[float] = field(default_factory=list)
    total: int = 0  # inputs in flight

    def fresh(self, now: Instant, engines: Sequence[Engine]) -> LoadSpread:
        """Itself, looked at anew where it is older than that."""
        if now - self.at >= 100 * MILLISECOND:
            self.at = now
            self.loads = sorted(e.in_flight_inputs / e.spec.slots for e in engines)
            self.total = sum(e.in_flight_inputs for e in engines)
        return self

    def quantile(self, share: float) -> float:
        """The load that so large a share of the engines does not exceed."""
        return self.loads[min(len(self.loads) - 1, int(share * len(self.loads)))]


class Picker(Protocol):
    """Which of the scored engines?"""

    def pick(
        self, scored: Sequence[tuple[Duration, Engine]], request: Request, spread: LoadSpread
    ) -> Engine:
        """One of `scored`, which is not empty."""
        ...


@dataclass(slots=True)
class Candidate:
    """A model that could stand in."""

    model: str
    live_nodes: int
    free_inputs: int
    waiting: int
    in_time: bool = True  # by what admission expects there
    expected_wait: Duration = 0


@dataclass(slots=True)
class PressureView:
    """A pool in which requests wait: is it overloaded?"""

    expected_wait: Duration  # of a newcomer
    degrading: bool  # by the last answer
    above_for: Duration  # how long `expected_wait` was above `enter` without a break
    below_for: Duration  # likewise below `leave`


class Degrade(Protocol):
    """Which of the permitted models stands in, if any?"""

    def limits(self) -> tuple[Duration, Duration]:
        """Expected waits: above the first an overload may begin, below the second it may end.
        (NEVER, NEVER): this policy knows no overload, and `overloaded` is not asked.
        """
        ...

    def overloaded(self, view: PressureView) -> bool:
        """Asked twice a second while requests wait, and until the answer is no. While it is yes,
        those who wait and permit it are degraded, the least urgent first, priority 8 and more not.
        """
        ...

    def choose(self, request: Request, candidates: Sequence[Candidate]) -> str | None:
        """The substitute; None: there is none."""
        ...


@dataclass(slots=True)
class RetryAt:
    """Queue it again then, at its old place."""

    at: Instant


@dataclass(slots=True)
class GiveUp:
    """No further attempt."""

    reason: Reason
    message: str


class Failover(Protocol):
    """Try again, when, or give up?"""

    def decide(self, attempt: Attempt, reason: Reason, now: Instant) -> RetryAt | GiveUp:
        """Called after the attempt was charged."""
        ...


@dataclass(slots=True)
class OutlierView:
    """How a node's attempts ended: asked after each failure, and when ten seconds are over."""

    errors_in_row: int  # 0 when ten seconds are over
    succeeded: int  # in the ten seconds; 0 after a failure
    failed: int
    pool: Sequence[tuple[int, int]]  # succeeded and failed of all its nodes, this one included


class Health(Protocol):
    """Is this node an outlier? The core keeps enough nodes whatever the answer."""

    def why_eject(self, view: OutlierView) -> str:
        """What is wrong with it, for people; empty: nothing."""
        ...


@dataclass(slots=True)
class ScaleView:
    """A pool as the autoscaler sees it."""

    pool: str
    waiting: int  # interactive
    oldest_wait: Duration
    ready: int
    starting: int
    running: int  # inputs in flight
    slots: int
    min_nodes: int
    max_nodes: int
    last_out_at: Instant  # -NEVER: never
    last_in_at: Instant
    idle_since: Instant  # NEVER: it is not idle
    erlangs: float = 0.0  # slot time that the last minute's interactive arrivals ask for
    peak_erlangs: float = 0.0  # the most that was, in the last five minutes
    watched: Duration = 0  # for how long that has been looked at
    slots_per_node: int = 1
    queued_work: Duration = 0  # slot time of the interactive requests that wait
    job_work: Duration = 0  # likewise of job items
    cold_start: Duration = 0  # from asking for a node to its hello
    min_spare: int = 0  # nodes to keep beyond the need


@dataclass(slots=True)
class ScalePlan:
    """How many nodes there should be."""

    desired: int
    reason: str


class Autoscale(Protocol):
    """How many nodes should the pool have?"""

    def plan(self, view: ScaleView, now: Instant) -> ScalePlan | None:
        """None: leave it as it is."""
        ...


@dataclass(slots=True)
class PolicySet:
    """The policies in force."""

    ordering: Ordering
    admission: Admission
    former: BatchFormer
    filters: Sequence[Filter]
    scorer: Scorer
    picker: Picker
    degrade: Degrade
    failover: Failover
    autoscale: Autoscale
    health: Health
    preemption: Preemption
    orderings: Mapping[str, Ordering] = field(default_factory=dict)  # of pools that have their own

    # What is asked once: whether `degrade` ever looks at pools as a whole, and of `admission`.
    relieves: bool = field(init=False)
    least_share: float = field(init=False)

    def __post_init__(self) -> None:
        self.relieves = self.degrade.limits()[0] < NEVER
        self.least_share = self.admission.least_share()

    def ordering_of(self, pool: str) -> Ordering:
        """The pool's own, or the one for all."""
        return self.orderings.get(pool, self.ordering)
