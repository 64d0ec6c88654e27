"""What do the scheduler's spans say? Their attributes, from the core's books.

Only what is known is said: an attribute that would be empty is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from scheduler_service.core.hedging import RIVAL
from scheduler_service.core.outcomes import AttemptState
from scheduler_service.core.state import State
from scheduler_service.core.types import MILLISECOND, NEVER, SECOND, Attempt, Batch, Request
from scheduler_service.policies.ordering import Aged
from service_kit import span_names as names

Attributes = dict[str, Any]
CLOCK_OFFSET_MS: Final = 5  # a node's clock that is further off is told on its attempts
_DECISIONS_MAX: Final = 256  # that are looked through for an attempt's own

# Why a request waits again, by how its attempt before ended.
_WAITS_AFTER: Final[Mapping[AttemptState, str]] = {
    AttemptState.PREEMPTED: "preempted",
    AttemptState.REFUSED: "refused",
    AttemptState.CANCELLED: "drained",
    AttemptState.REVOKED: "revoked",
}


class NodeFacts(Protocol):
    """What the session of a node knows beside the core."""

    @property
    def descriptor(self) -> Any:
        """A NodeDescriptor; None: it has not come yet."""

    @property
    def round_trip_s(self) -> float | None:
        """Of the last ping; None: not measured."""

    @property
    def clock_offset_us(self) -> int | None:
        """Its clock minus ours, microseconds; None: not measured."""


def of_request(request: Request) -> Attributes:
    """Known when it comes in."""
    attributes: Attributes = {
        names.REQUEST_ID: request.request_id,
        names.PRIORITY: request.priority,
        names.TASK_TYPE: request.task_type,
        names.MODEL: request.model,
        names.COST_TOKENS: request.prompt_tokens + request.output_tokens,
        names.REQUEST_CLASS: request.request_class.name.lower(),
    }
    if request.tenant:
        attributes[names.TENANT] = request.tenant
    if request.deadline < NEVER:
        left = (request.deadline - request.received_at) // MILLISECOND
        attributes[names.DEADLINE_REMAINING_MS] = left
    return attributes


def of_end(request: Request, attempt: Attempt | None) -> Attributes:
    """Known when it has ended. `attempt`: the one that ended it; None: it had none."""
    attributes: Attributes = {
        names.FINISH_REASON: str(request.outcome),
        names.ATTEMPTS: len(request.attempts),
        names.DEGRADED: request.degraded,
        names.QUEUE_MS: request.queue_time // MILLISECOND,
    }
    if request.degraded:
        attributes[names.DEGRADE_REASON] = request.degrade_reason
        attributes[names.SERVED_MODEL] = request.served_model
    if request.preemptions:
        attributes[names.PREEMPTIONS] = request.preemptions
    tokens = attempt.output_tokens if attempt is not None else 0
    if request.output is not None:  # of all attempts that spoke
        tokens = max(tokens, request.output.tokens)
    if tokens:
        attributes[names.GEN_AI_USAGE_OUTPUT] = tokens
    return attributes


def at_entry(state: State, request: Request) -> Attributes:
    """Of the queue that it is about to join: who waits there, and who of them would go first."""
    pool = state.pools.get(request.model)
    if pool is None:
        return {names.QUEUE_DEPTH: 0, names.QUEUE_POSITION: 0}
    queue = pool.queue
    return {names.QUEUE_DEPTH: len(queue), names.QUEUE_POSITION: queue.ahead_of(request)}


def of_wait(attempt: Attempt, state: State) -> Attributes:
    """Of the stay in the queue that this attempt ended."""
    request = attempt.request
    return {
        names.QUEUE_NAME: attempt.model,
        names.PRIORITY: request.priority,
        names.PRIORITY_EFFECTIVE: _effective(state, request, attempt.started_at),
        names.CHOSEN_BY: attempt.chosen_by,
        names.QUEUE_OUTCOME: "dispatched",
        names.QUEUE_REASON: _reason(request, attempt.number),
    }


def of_last_wait(request: Request, state: State) -> Attributes:
    """Of a stay in the queue that ended with the request."""
    return {
        names.QUEUE_NAME: request.served_model or request.model,
        names.PRIORITY: request.priority,
        names.PRIORITY_EFFECTIVE: _effective(state, request, request.finished_at),
        names.QUEUE_OUTCOME: str(request.outcome),
        names.QUEUE_REASON: _reason(request, len(request.attempts) + 1),
    }


def _effective(state: State, request: Request, at: int) -> float:
    """Its priority with what waiting has added to it."""
    ordering = state.policies.ordering
    if not isinstance(ordering, Aged):
        return float(request.priority)
    return round(-ordering.key(request, at)[0] / ordering.per_level, 2)


def _reason(request: Request, number: int) -> str:
    """Why it waited before its attempt of that number, in one word."""
    if number < 2:
        return "submit"
    return _WAITS_AFTER.get(request.attempts[number - 2].state, "failover")


def of_attempt(attempt: Attempt, state: State, facts: NodeFacts | None) -> Attributes:
    """Known when it is sent."""
    batch, request = attempt.batch, attempt.request
    attributes: Attributes = {
        names.ATTEMPT: attempt.number,
        names.REQUEST_ID: request.request_id,
        names.NODE_ID: attempt.node.node_id,
        names.ENGINE_ID: attempt.engine.engine_id,
        names.DISPATCH_ID: str(attempt.dispatch_id),
        names.BATCH_ID: batch.batch_id,
        names.BATCH_SIZE: len(batch.attempts),
        names.BATCH_POSITION: batch.attempts.index(attempt),
        **_placement(attempt, state),
        **_node(facts),
    }
    if attempt.chosen_by == RIVAL:
        attributes[names.HEDGE] = True
    elif attempt.number > 1 and request.output is not None:
        attributes[names.RESUME_MODE] = "continue" if request.continuing else "restart"
        if request.continuing:
            attributes[names.RESUME_BYTES] = sum(request.output.offsets.values())
    return attributes


def _placement(attempt: Attempt, state: State) -> Attributes:
    """Of the decision that sent it there, where it was one: members of a batch only joined it."""
    scored = _scored(attempt, state)
    for estimate, engine in scored:
        if engine is attempt.engine:
            score = round(estimate / SECOND, 6)
            return {names.NODE_SCORE: score, names.NODE_CANDIDATES: len(scored)}
    return {}


def _scored(attempt: Attempt, state: State) -> Sequence[tuple[int, Any]]:
    for noted in _latest(state):
        if noted[1] is attempt:
            found: Sequence[tuple[int, Any]] = noted[2]
            return found
        if noted[0] < attempt.started_at:
            break
    return ()


def _latest(state: State) -> Iterator[Any]:
    return islice(reversed(state.decisions), _DECISIONS_MAX)


def _node(facts: NodeFacts | None) -> Attributes:
    found: Attributes = {}
    if facts is None:
        return found
    if facts.descriptor is not None and facts.descriptor.hostname:
        found[names.SERVER_ADDRESS] = facts.descriptor.address or facts.descriptor.hostname
    offset_us = facts.clock_offset_us
    unsure_us = (facts.round_trip_s or 0.0) / 2 * 1e6  # as far as the ping can tell
    if offset_us is not None and abs(offset_us) > CLOCK_OFFSET_MS * 1000 + unsure_us:
        found[names.CLOCK_OFFSET_MS] = round(offset_us / 1000, 3)
    return found


def of_attempt_end(attempt: Attempt) -> Attributes:
    """Known when it has ended."""
    found: Attributes = {names.ATTEMPT_OUTCOME: attempt.state.name.lower()}
    if attempt.output_tokens:  # 0: not known, or none
        found[names.OUTPUT_TOKENS] = attempt.output_tokens
    return found


def of_batch(batch: Batch) -> Attributes:
    """Known when it is sent, but for its size in bytes."""
    return {
        names.BATCH_ID: batch.batch_id,
        names.BATCH_SIZE: len(batch.attempts),
        names.BATCH_CLOSE_REASON: batch.close_reason,
        names.BATCH_OLDEST_WAIT_MS: batch.oldest_wait // MILLISECOND,
        names.NODE_ID: batch.engine.node.node_id,
        names.ENGINE_ID: batch.engine.engine_id,
        names.MODEL: batch.model,
    }


def of_rpc(method: str, peer: str) -> Attributes:
    """Of a call as gRPC sees it. `peer`: as gRPC spells it, "ipv4:127.0.0.1:4711"."""
    attributes: Attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: method}
    kind, _, rest = peer.partition(":")
    if kind in ("ipv4", "ipv6"):
        host, _, port = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")
        attributes[names.NETWORK_PEER_ADDRESS] = host.strip("[]")
        if port.isdigit():
            attributes[names.NETWORK_PEER_PORT] = int(port)
    elif peer:
        attributes[names.NETWORK_PEER_ADDRESS] = rest or peer
    return attributes


def plain(data: Mapping[str, Any] | None) -> Attributes:
    """What an event carries, as values that spans can hold."""
    kinds = (str, int, float, bool)
    return {k: v if isinstance(v, kinds) else str(v) for k, v in (data or {}).items()}
