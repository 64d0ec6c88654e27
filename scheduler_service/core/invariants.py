"""Does the state contradict itself? A full walk; raises InvariantViolation naming what is wrong."""

from __future__ import annotations

from scheduler_service.core.errors import InvariantViolation
from scheduler_service.core.outcomes import AttemptState, RequestState
from scheduler_service.core.state import State


def check(state: State) -> None:
    """Compare every count with what it counts, and every claim with its other side."""
    _check_requests(state)
    _check_queues(state)
    _check_nodes(state)
    _check_relay(state)
    ended = sum(state.totals.outcomes.values())
    _hold(
        state.totals.received == ended + len(state.requests),
        f"received {state.totals.received} != ended {ended} + open {len(state.requests)}",
    )


def _hold(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolation(message)


def _check_requests(state: State) -> None:
    for rid, request in state.requests.items():
        _hold(request.state is not RequestState.FINISHED, f"request {rid} is finished and kept")
        if request.state is not RequestState.QUEUED:
            _hold(bool(request.live), f"request {rid} is out but has no live attempt")
            _hold(not request.in_queue, f"request {rid} is out and in the queue")
        for dispatch_id, attempt in request.live.items():
            _hold(attempt.state is AttemptState.RUNNING, f"live attempt {dispatch_id} has ended")
            held = attempt.node.in_flight.get(dispatch_id) is attempt
            _hold(held, f"live attempt {dispatch_id} is in no node's books")


def _check_queues(state: State) -> None:
    waiting_bytes = 0
    for pool in state.pools.values():
        queued = list(pool.queue)
        _hold(len(queued) == len(pool.queue), f"pool {pool.model}: its count is off")
        for request in queued:
            known = state.requests.get(request.rid) is request
            _hold(known, f"request {request.rid} waits and is not known")
            _hold(request.in_queue, f"request {request.rid} waits and does not know it")
            _hold(request.served_model == pool.model, f"request {request.rid} is in a wrong pool")
            waiting_bytes += request.size_bytes
    _hold(waiting_bytes == state.waiting_bytes, "the count of waiting bytes is off")
    in_queue = sum(r.in_queue for r in state.requests.values())
    _hold(in_queue == sum(len(p.queue) for p in state.pools.values()), "a waiting request is lost")


def _check_nodes(state: State) -> None:
    for node in state.nodes.values():
        _hold(node.alive or not node.in_flight, f"lost node {node.node_id} has work")
        inputs: dict[int, int] = {}
        for attempt in node.in_flight.values():
            key = id(attempt.engine)
            inputs[key] = inputs.get(key, 0) + attempt.inputs
        for engine in node.engines.values():
            name = f"engine {node.node_id}/{engine.engine_id}"
            _hold(engine.in_flight_inputs == inputs.get(id(engine), 0), f"{name}: count is off")
            _hold(engine.in_flight_items >= 0, f"{name}: negative")
            _hold(
                engine.charged_inputs <= max(engine.credit_inputs, 0),
                f"{name}: sent {engine.charged_inputs} on a credit of {engine.credit_inputs}",
            )
            for batch in engine.open_batches.values():
                sent = sum(a.inputs for a in batch.attempts)
                _hold(not batch.atomic or sent <= engine.max_batch, f"{name}: batch too large")


def _check_relay(state: State) -> None:
    live = {d for r in state.requests.values() if r.stream for d in r.live}
    _hold(live == set(state.relay.lanes), "the relay's lanes are not the live attempts")
