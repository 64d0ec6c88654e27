"""The walk over the state sees each kind of contradiction, and names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_service.core import events as ev
from scheduler_service.core import invariants
from scheduler_service.core.errors import InvariantViolation
from scheduler_service.core.outcomes import AttemptState, NodeHealth, RequestState
from scheduler_service.core.relay import Output
from scheduler_service.core.state import State
from scheduler_service.core.types import Attempt, Engine, Request
from tests.builders import World, engine, static


def a_world() -> World:
    """Two requests out, one of them streaming, and one that waits."""
    world = World(check_every=1_000_000)
    world.agent("a", engine(slots=1))
    world.submit(stream=True, size_bytes=10)
    world.agent("b", static(slots=1))
    world.submit(size_bytes=10)
    world.advance(0.1)
    world.submit(size_bytes=10)
    return world


def out(state: State) -> Request:
    """A request that is out."""
    return next(r for r in state.requests.values() if r.live)


def waiting(state: State) -> Request:
    """The request that waits."""
    return next(r for r in state.requests.values() if r.in_queue)


def attempt(state: State) -> Attempt:
    """Its attempt."""
    return next(iter(out(state).live.values()))


def books(state: State, node_id: str = "a") -> Engine:
    """The books about an engine."""
    return state.nodes[node_id].engines["e0"]


def setting(target: Callable[[State], object], name: str, value: object) -> Callable[[State], None]:
    """Break one field."""
    return lambda state: setattr(target(state), name, value)


def bogus_lane(state: State) -> None:
    """A lane for an id that no request has."""
    request = out(state)
    assert request.output is not None
    state.relay.open(99, request.output, attempt(state), sole=False)


CONTRADICTIONS: dict[str, tuple[Callable[[State], object], str]] = {
    "finished and kept": (setting(out, "state", RequestState.FINISHED), "finished and kept"),
    "out without attempt": (lambda s: out(s).live.clear(), "no live attempt"),
    "out and waiting": (setting(out, "in_queue", True), "out and in the queue"),
    "ended and live": (setting(attempt, "state", AttemptState.FAILED), "has ended"),
    "in no books": (lambda s: s.nodes["a"].in_flight.clear(), "in no node's books"),
    "unknown waits": (lambda s: s.requests.pop(waiting(s).rid), "is not known"),
    "waits unaware": (setting(waiting, "in_queue", False), "does not know it"),
    "wrong pool": (setting(waiting, "served_model", "other"), "wrong pool"),
    "miscounted queue": (setting(lambda s: s.pools["m"].queue, "interactive", 9), "are counted"),
    "miscounted bytes": (setting(lambda s: s, "waiting_bytes", 1), "bytes wait"),
    "lost in the queue": (lambda s: s.pools["m"].queue.remove(waiting(s)), "is lost"),
    "work on a lost node": (
        setting(lambda s: s.nodes["a"], "health", NodeHealth.LOST), "lost node a has work",
    ),
    "miscounted inputs": (setting(books, "in_flight_inputs", 3), "miscounted"),
    "miscounted items": (setting(books, "in_flight_items", 0), "miscounted"),
    "over its credit": (setting(books, "credit_inputs", 0), "on a credit of 0"),
    "lane of nobody": (lambda s: bogus_lane(s), "the relay's lanes"),
    "lane is missing": (lambda s: s.relay.lanes.clear(), "the relay's lanes"),
    "one is missing": (setting(lambda s: s.totals, "received", 9), "9 were received"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradiction_is_seen_and_named(name: str) -> None:
    damage, message = CONTRADICTIONS[name]
    state = a_world().scheduler.state
    invariants.check(state)
    damage(state)
    with pytest.raises(InvariantViolation, match=message):
        invariants.check(state)


def test_batch_that_is_too_large_is_seen() -> None:
    state = a_world().scheduler.state
    (batch,) = books(state, "b").open_batches.values()
    batch.attempts *= 2
    with pytest.raises(InvariantViolation, match="too large"):
        invariants.check(state)


def test_step_checks_as_often_as_it_is_told() -> None:
    world = World(check_every=3)
    world.agent()
    world.submit()
    while world.scheduler.state.step % 3:
        world.step()
    world.scheduler.state.waiting_bytes = 5
    world.step()
    world.step()
    with pytest.raises(InvariantViolation):
        world.step()


def test_walk_of_a_very_long_queue_is_left_out_and_nodes_are_still_checked() -> None:
    """It would hold up everybody; what is in flight is bounded by the slots."""
    world = World(check_every=1_000_000)
    world.agent()
    requests = [world.request() for _ in range(invariants.WALK_MAX + 1)]
    world.step(ev.RequestsSubmitted(requests))
    state = world.scheduler.state
    assert len(state.requests) > invariants.WALK_MAX
    state.waiting_bytes = 5
    invariants.check(state)
    state.relay.open(99, Output(1, None), requests[0].attempts[0], sole=True)
    with pytest.raises(InvariantViolation, match="lane 99"):
        invariants.check(state)
    books(state, "n0").in_flight_inputs = 3
    with pytest.raises(InvariantViolation, match="miscounted"):
        invariants.check(state)
