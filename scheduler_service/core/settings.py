"""Which limits and times does the core keep? Plain values; the edge parses and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Bounds of the queue (of one pool where not said otherwise)."""

    max_requests: int = 10_000  # interactive, waiting beyond what free slots take at once
    max_bytes: int = 1 << 30  # of all waiting requests of all pools
    floor_every: int = 8  # of so many consecutive dispatches one goes to the oldest; 0: off
    headroom: int = 0  # free slots of the pool that job items leave
    weights: Mapping[str, float] = field(default_factory=dict)  # by user; 1 where not named
    learn_lengths: bool = False  # of outputs, by model and tenant: `lengths.py`
    no_node_grace: Duration = 30 * SECOND  # how long a request waits for a first live node


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """When is a node no longer trusted?"""

    session_timeout: Duration = 3 * SECOND  # silence that makes it SUSPECT
    resume_window: Duration = 2 * SECOND  # from SUSPECT to LOST
    ping_timeout: Duration = 1 * SECOND  # for the holder of an id that a newcomer claims
    lost_memory: Duration = 600 * SECOND  # how long a lost node is still shown
    refused_pause: Duration = 100 * MILLISECOND  # an engine that refused work is left alone
    eject_base: Duration = 30 * SECOND  # an outlier is out for this long, times its ejections
    eject_max: Duration = 300 * SECOND
    eject_share: float = 0.1  # of a pool's nodes that may be out; one always may
    keep_share: float = 0.5  # none goes if less than this would be left
    warm_up: Duration = 30 * SECOND  # from a quarter of the slots to all, after a probation
    warm_up_new: Duration = 0  # likewise for nodes that join a pool which has others


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an attempt may take (`patience.py`). NEVER: not limited."""

    first_output: Duration = NEVER  # from its dispatch; of requests that stream
    idle: Duration = NEVER  # between two pieces of output
    total: Duration = NEVER  # from its dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """When may a slow attempt get a rival (`hedging.py`)?"""

    share: float = 0.02  # rivals per first attempt of the pool
    least_delay: Duration = 100 * MILLISECOND  # no attempt is slow before
    fewest: int = 50  # answers that must be known before any is


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSettings:
    """How often and how soon is work tried again?"""

    max_attempts: int = 3
    backoff_base: Duration = 50 * MILLISECOND
    backoff_max: Duration = 2 * SECOND
    # One budget per pool for errors, one of the same size for deaths (`budgets.py`).
    retry_share: float = 0.2  # retries per first attempt
    retry_floor: float = 10.0  # retries a second that are always allowed
    retry_burst: int = 100  # most retries that can be saved up
    patience: Patience = Patience()
    patience_by_model: Mapping[str, Patience] = field(default_factory=dict)
    hedge: Hedge | None = None  # None: no attempt gets a rival
    hedge_by_model: Mapping[str, Hedge | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSettings:
    """Bounds and times of scaling; the rule itself is a policy."""

    enabled: bool = False
    pools: frozenset[str] = frozenset()  # that are scaled; empty: all
    min_nodes: int = 1
    max_nodes: int = 4
    tick: Duration = 1 * SECOND
    start_timeout: Duration = 120 * SECOND  # a requested node that has not joined counts no more
    drain_grace: Duration = 60 * SECOND
    cold_start: Duration = 30 * SECOND  # of a node, until one was measured
    min_spare: int = 0  # nodes that the refined law keeps beyond the need


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """All settings of the core."""

    term: int = 1  # of this scheduler; in the high bits of every id
    seed: int = 0
    queue: QueueSettings = field(default_factory=QueueSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    failover: FailoverSettings = field(default_factory=FailoverSettings)
    autoscale: AutoscaleSettings = field(default_factory=AutoscaleSettings)
    known_models: frozenset[str] = frozenset()  # accepted before any node has them
    max_events_per_step: int = 256
    nodes_before: frozenset[str] = frozenset()  # that may bring back work of a scheduler before
    recovery_window: Duration = 5 * SECOND  # how long these are waited for
    finished_memory: int = 10_000  # finished requests that can still be listed
    decision_memory: int = 10_000  # placements that can still be explained
    # Steps between full walks of the invariants; 1 in small tests. So many more for each thousand
    # of open requests, so that the walks' share of the work does not grow with the queue.
    check_every: int = 256
