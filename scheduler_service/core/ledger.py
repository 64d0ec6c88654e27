"""What is out on the nodes, and who of it may still speak?

Two ends of an attempt, often at different times:

- `end`: its outcome is decided. It leaves the request's live set and the relay at once, so nothing
  of it counts any more (cancelled, revoked, lost, failed, succeeded).
- `settle`: its node no longer holds it (a result came, the node is lost, a report says so). Only
  then is the slot free in our books. One owner, one release, on every path.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import batch_times, records
from scheduler_service.core.outcomes import AttemptState, NodeAvailability, Reason, RequestClass
from scheduler_service.core.records import Record
from scheduler_service.core.relay import Output
from scheduler_service.core.state import State
from scheduler_service.core.transitions import move_attempt, move_availability
from scheduler_service.core.types import NOBODY, Attempt, Drain, Node, Request

# Members of enumerations on the path of every request: a look-up costs 70 ns each.
_JOB: Final = RequestClass.JOB
_REVOKED: Final = AttemptState.REVOKED
_NOT_WASTED: Final = (AttemptState.SUCCEEDED, AttemptState.REFUSED, AttemptState.PREEMPTED)
FORGOTTEN: Final = Request(0, "", "")  # stands for every request that can no longer be listed


def charge(state: State, attempt: Attempt) -> None:
    """Enter a dispatched attempt into the books."""
    engine = attempt.engine
    node = engine.node
    node.items_sent += 1
    attempt.sent_index = node.items_sent
    node.in_flight[attempt.dispatch_id] = attempt
    engine.charged_inputs += attempt.inputs
    engine.charged_tokens += attempt.tokens
    engine.in_flight_inputs += attempt.inputs
    engine.in_flight_items += 1
    if attempt.request.request_class is _JOB:
        note_job(state, attempt)
    batch = attempt.batch
    batch.attempts.append(attempt)
    batch.open_items += 1
    batch.held_items += 1
    batch.kept_items += 1
    engine.open_batches[batch.batch_id] = batch


def forget(request: Request) -> None:
    """A finished request can no longer be listed: cut the circles through its attempts, so that
    memory comes back at once. Left to the collector, a hundred thousand requests stopped the loop
    for a second and a half.
    """
    for attempt in request.attempts:
        attempt.request = FORGOTTEN
        batch = attempt.batch
        batch.kept_items -= 1
        if batch.kept_items == 0:
            batch.attempts = []


def note_job(state: State, attempt: Attempt) -> None:
    """A job item is on its engine: it may be asked to make room."""
    attempt.engine.job_items[attempt.dispatch_id] = attempt
    state.jobs_running += 1


def end(
    state: State, attempt: Attempt, how: AttemptState, reason: Reason, message: str = ""
) -> None:
    """Decide the attempt's outcome; nothing of it counts from now on."""
    request = attempt.request
    if request.live:
        request.live.pop(attempt.dispatch_id, None)
        if not request.live:  # what has ended is remembered for long: without a dict of its own
            request.live = NOBODY
    lane = state.relay.revoke(attempt.dispatch_id) if state.relay.lanes else None
    move_attempt(attempt, how)
    attempt.ended_at = state.now
    attempt.reason = reason
    attempt.message = message
    if attempt.output_tokens and how not in _NOT_WASTED:
        state.totals.wasted_output_tokens += attempt.output_tokens
    if lane is not None and lane.spoke and not attempt.output_tokens:
        attempt.output_tokens = _delivered(attempt, lane.output)
    node_id = attempt.engine.node.node_id
    state.records.append(Record(records.ATTEMPT_ENDED, state.now, request, attempt, None, node_id))
    batch = attempt.batch
    batch.open_items -= 1
    if batch.open_items == 0:
        state.record(records.BATCH_FINISHED, batch=batch, node_id=node_id)
        if batch.atomic:
            batch_times.batch_over(state, batch)


def _delivered(attempt: Attempt, output: Output) -> int:
    """Tokens of this attempt, whose node did not say how many, that its client has been sent."""
    others = [a for a in attempt.request.attempts if a.output_id == output.output_id]
    return max(0, output.tokens - sum(a.output_tokens for a in others))


def revoke(state: State, attempt: Attempt, how: AttemptState, reason: Reason) -> None:
    """End it and, where its node may still run it, ask the node to stop."""
    end(state, attempt, how, reason)
    if how is _REVOKED:
        note_moved(attempt)
    node = attempt.node
    if attempt.dispatch_id in node.in_flight and node.connected and node.alive:
        key = (node.node_id, node.epoch, reason)
        state.cancels.setdefault(key, []).append(attempt.dispatch_id)


def settle(state: State, attempt: Attempt) -> None:
    """Its node no longer holds it: the room is free in our books."""
    settle_one(state, attempt)
    state.touch_engine(attempt.engine)


def settle_one(state: State, attempt: Attempt) -> None:
    """`settle` one of many: who does so touches their engines afterwards."""
    engine = attempt.engine
    node = engine.node
    del node.in_flight[attempt.dispatch_id]
    engine.in_flight_inputs -= attempt.inputs
    engine.in_flight_items -= 1
    if engine.job_items and engine.job_items.pop(attempt.dispatch_id, None) is not None:
        state.jobs_running -= 1
        if attempt.preempted_for:
            state.making_room[attempt.preempted_for] -= 1
    batch = attempt.batch
    batch.held_items -= 1
    if batch.held_items == 0:
        engine.open_batches.pop(batch.batch_id, None)


def open_drain(attempt: Attempt) -> Drain | None:
    """The drain of its node that is still going on, if any."""
    drain = attempt.node.drain
    return None if drain is None or drain.ended_at else drain


def note_moved(attempt: Attempt) -> None:
    """Its request is answered elsewhere, or will be: the proof of a drain says so."""
    drain = open_drain(attempt)
    if drain is not None:
        drain.moved.append(attempt.request.request_id)


def check_drained(state: State, node: Node) -> None:
    """A draining node without work is drained."""
    if node.availability is not NodeAvailability.DRAINING or node.in_flight:
        return
    move_availability(node, NodeAvailability.DRAINED)
    drain = node.drain
    if drain is not None and not drain.ended_at:
        drain.ended_at = state.now
        state.record(
            records.NODE_DRAINED,
            node_id=node.node_id,
            finished=len(drain.finished),
            moved=len(drain.moved),
            lost=len(drain.lost),
            reason=drain.reason,
        )
