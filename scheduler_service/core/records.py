"""What did the core decide?

After each step the driver hands the records to the observers (events, metrics, spans, report).
Algorithms contain no logging. The kinds are the public event names and are fixed.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import Attempt, Batch, Instant, Request

SUBMIT: Final = "submit"
DISPATCH_BATCH: Final = "dispatch_batch"
BATCH_FINISHED: Final = "batch_finished"
NO_AVAILABLE_NODE: Final = "no_available_node"
SCALE_OUT: Final = "scale_out"
SCALE_IN: Final = "scale_in"
SCALE_FAILED: Final = "scale_failed"
NODE_JOINED: Final = "node_joined"
NODE_SUSPECT: Final = "node_suspect"
NODE_LOST: Final = "node_lost"
NODE_RECOVERED: Final = "node_recovered"
NODE_EJECTED: Final = "node_ejected"
NODE_REFUSED: Final = "node_refused"
NODE_CORDONED: Final = "node_cordoned"
NODE_UNCORDONED: Final = "node_uncordoned"
NODE_DRAINING: Final = "node_draining"
NODE_DRAINED: Final = "node_drained"
FAILOVER: Final = "failover"
DEGRADED: Final = "degraded"
REJECTED: Final = "rejected"
CANCELLED: Final = "cancelled"
EXPIRED: Final = "expired"
FAILED: Final = "failed"
PREEMPTED: Final = "preempted"
LEDGER_HEALED: Final = "ledger_healed"
POOL_PAUSED: Final = "pool_paused"
POOL_RESUMED: Final = "pool_resumed"
AUTOSCALE_FROZEN: Final = "autoscale_frozen"
AUTOSCALE_UNFROZEN: Final = "autoscale_unfrozen"
LOG_LEVEL_SET: Final = "log_level_set"
REQUESTS_CANCELLED: Final = "requests_cancelled"  # all of a filter; each is CANCELLED, too
ACCESS_GRANTED: Final = "access_granted"
ACCESS_CHANGED: Final = "access_changed"
ACCESS_REVOKED: Final = "access_revoked"
POLICY_UPDATED: Final = "policy_updated"
MODEL_LOAD: Final = "model_load"  # an operator asked for it
MODEL_LOADED: Final = "model_loaded"
MODEL_UNLOAD: Final = "model_unload"  # likewise
MODEL_UNLOADED: Final = "model_unloaded"
MODEL_FAILED: Final = "model_failed"  # to load, or to unload
SUSPECTED: Final = "suspected"
POISONED: Final = "poisoned"
HEDGED: Final = "hedged"

# Of stored jobs, which the core does not know: the keeper of jobs tells them.
JOB_CREATED: Final = "job_created"
JOB_CANCELLED: Final = "job_cancelled"
JOB_FINISHED: Final = "job_finished"

# Not public events: what telemetry needs besides.
ATTEMPT_ENDED: Final = "attempt_ended"
ATTEMPT_RUNNING: Final = "attempt_running"
FIRST_OUTPUT: Final = "first_output"
FINISHED: Final = "finished"
LATE_RESULT: Final = "late_result"

# The end of a request that is an event; an answer is none.
OF_OUTCOME: Final = {
    Outcome.CANCELLED: CANCELLED,
    Outcome.EXPIRED: EXPIRED,
    Outcome.FAILED: FAILED,
    Outcome.REJECTED: REJECTED,
}

PUBLIC: Final = frozenset(
    {
        SUBMIT,
        DISPATCH_BATCH,
        BATCH_FINISHED,
        NO_AVAILABLE_NODE,
        SCALE_OUT,
        SCALE_IN,
        SCALE_FAILED,
        NODE_JOINED,
        NODE_SUSPECT,
        NODE_LOST,
        NODE_RECOVERED,
        NODE_EJECTED,
        NODE_REFUSED,
        NODE_CORDONED,
        NODE_UNCORDONED,
        NODE_DRAINING,
        NODE_DRAINED,
        FAILOVER,
        DEGRADED,
        REJECTED,
        CANCELLED,
        EXPIRED,
        FAILED,
        PREEMPTED,
        LEDGER_HEALED,
        SUSPECTED,
        POISONED,
        HEDGED,
        JOB_CREATED,
        JOB_CANCELLED,
        JOB_FINISHED,
        POOL_PAUSED,
        POOL_RESUMED,
        AUTOSCALE_FROZEN,
        AUTOSCALE_UNFROZEN,
        LOG_LEVEL_SET,
        REQUESTS_CANCELLED,
        ACCESS_GRANTED,
        ACCESS_CHANGED,
        ACCESS_REVOKED,
        POLICY_UPDATED,
        MODEL_LOAD,
        MODEL_LOADED,
        MODEL_UNLOAD,
        MODEL_UNLOADED,
        MODEL_FAILED,
    }
)


class Record:
    """One decision or observation. What is not concerned is None or empty."""

    __slots__ = ("at", "attempt", "batch", "data", "kind", "node_id", "pool", "request")

    def __init__(
        self,
        kind: str,
        at: Instant,
        request: Request | None = None,
        attempt: Attempt | None = None,
        batch: Batch | None = None,
        node_id: str = "",
        pool: str = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.at = at
        self.request = request
        self.attempt = attempt
        self.batch = batch
        self.node_id = node_id
        self.pool = pool
        self.data = data

    def __repr__(self) -> str:
        return f"Record({self.kind!r}, at={self.at}, node={self.node_id!r}, data={self.data!r})"
