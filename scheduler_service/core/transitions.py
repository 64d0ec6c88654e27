"""Which moves between states are legal?

Theory of operation. A request moves forward to FINISHED and back to QUEUED only when an attempt
ended without an answer, or may have (its session broke before anything was delivered). An attempt
ends once. A node's health goes HEALTHY -> SUSPECT -> LOST and never back from LOST: a node that
returns is a new session with books of its own, but trusted no more than before: STARTING ->
EJECTED or PROBATION is a new stream of the same process. Availability is what operators want,
independent of health. `docs/lifecycles.md` is drawn from these tables by
`scripts/draw_transitions.py`.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core.errors import InvariantViolation
from scheduler_service.core.outcomes import AttemptState as A
from scheduler_service.core.outcomes import NodeAvailability as V
from scheduler_service.core.outcomes import NodeHealth as H
from scheduler_service.core.outcomes import RequestState as R
from scheduler_service.core.types import Attempt, Node, Request

REQUEST: Final[dict[R, frozenset[R]]] = {
    R.QUEUED: frozenset({R.DISPATCHED, R.RUNNING, R.FINISHED}),
    R.DISPATCHED: frozenset({R.RUNNING, R.QUEUED, R.FINISHED}),
    R.RUNNING: frozenset({R.QUEUED, R.FINISHED}),
    R.FINISHED: frozenset(),
}

ATTEMPT: Final[dict[A, frozenset[A]]] = {
    A.RUNNING: frozenset(
        {A.SUCCEEDED, A.FAILED, A.CANCELLED, A.LOST, A.REFUSED, A.PREEMPTED, A.REVOKED}
    ),
    **{end: frozenset() for end in A if end is not A.RUNNING},
}

HEALTH: Final[dict[H, frozenset[H]]] = {
    H.STARTING: frozenset({H.HEALTHY, H.SUSPECT, H.EJECTED, H.PROBATION, H.LOST}),
    H.HEALTHY: frozenset({H.STARTING, H.SUSPECT, H.EJECTED, H.LOST}),
    H.SUSPECT: frozenset({H.HEALTHY, H.STARTING, H.PROBATION, H.EJECTED, H.LOST}),
    H.PROBATION: frozenset({H.HEALTHY, H.SUSPECT, H.EJECTED, H.STARTING, H.LOST}),
    H.EJECTED: frozenset({H.PROBATION, H.SUSPECT, H.STARTING, H.LOST}),
    H.LOST: frozenset(),
}

AVAILABILITY: Final[dict[V, frozenset[V]]] = {
    V.ACTIVE: frozenset({V.CORDONED, V.DRAINING}),
    V.CORDONED: frozenset({V.ACTIVE, V.DRAINING}),
    V.DRAINING: frozenset({V.ACTIVE, V.DRAINED}),
    V.DRAINED: frozenset({V.ACTIVE, V.DRAINING}),
}


def move_request(request: Request, state: R) -> None:
    """Put the request into `state`, or raise InvariantViolation."""
    if state not in REQUEST[request.state]:
        raise InvariantViolation(f"request {request.rid}: {request.state.name} -> {state.name}")
    request.state = state


def move_attempt(attempt: Attempt, state: A) -> None:
    """End the attempt with `state`, or raise InvariantViolation."""
    if state not in ATTEMPT[attempt.state]:
        raise InvariantViolation(
            f"attempt {attempt.dispatch_id}: {attempt.state.name} -> {state.name}"
        )
    attempt.state = state


def move_health(node: Node, health: H) -> None:
    """Set the node's health, or raise InvariantViolation; staying is no move."""
    if health is node.health:
        return
    if health not in HEALTH[node.health]:
        raise InvariantViolation(f"node {node.node_id}: {node.health.name} -> {health.name}")
    node.health = health


def move_availability(node: Node, availability: V) -> None:
    """Set the node's availability, or raise InvariantViolation; staying is no move."""
    if availability is node.availability:
        return
    if availability not in AVAILABILITY[node.availability]:
        raise InvariantViolation(
            f"node {node.node_id}: {node.availability.name} -> {availability.name}"
        )
    node.availability = availability
