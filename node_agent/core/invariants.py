"""Does the agent's state hold together?

Called after every step by tests and simulations, and rarely in production: it walks everything.
"""

from __future__ import annotations

from node_agent.core.agent import Agent
from node_agent.core.items import ItemState
from node_agent.core.slots import EngineSlots


class InvariantViolation(Exception):
    """A fault of the agent itself: its state contradicts itself."""


def check(agent: Agent) -> None:
    """Walk the whole state.

    Raises:
        InvariantViolation: something does not add up; the message says what.
    """
    for slots in agent.engines.values():
        _check_room(slots)
        _check_credit(slots)
    _check_items(agent)
    _check_results(agent)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolation(message)


def _check_room(slots: EngineSlots) -> None:
    name = slots.spec.engine_id
    waiting = [held.item for group in slots.waiting for held in group.members]
    held = waiting + list(slots.inside.values())
    inside = sum(item.inputs for item in slots.inside.values())
    _require(not slots.freed.keys() & slots.inside.keys(), f"{name}: freed, and still inside")
    _require(slots.inside_inputs == inside, f"{name}: inputs in the engine")
    _require(slots.held_inputs == sum(item.inputs for item in held), f"{name}: inputs held")
    _require(slots.held_tokens == sum(item.tokens for item in held), f"{name}: tokens held")
    _require(all(group.members for group in slots.waiting), f"{name}: an empty group waits")
    batched = set().union(*slots.batches)
    _require(batched <= slots.inside.keys(), f"{name}: a batch member is not in the engine")


def _check_credit(slots: EngineSlots) -> None:
    open_inputs = slots.granted_inputs - slots.charged_inputs
    _require(
        open_inputs <= 0 or open_inputs + slots.held_inputs <= slots.capacity_peak,
        f"{slots.spec.engine_id}: {open_inputs} inputs may come beside {slots.held_inputs} held",
    )


def _check_items(agent: Agent) -> None:
    waiting = {
        held.item.dispatch_id
        for slots in agent.engines.values()
        for group in slots.waiting
        for held in group.members
    }
    for dispatch_id, held in agent.items.items():
        finished = held.state is ItemState.FINISHED
        _require(finished == (held.outcome is not None), f"{dispatch_id}: finished, by halves")
        _require((held.state is ItemState.RECEIVED) == (dispatch_id in waiting), f"{dispatch_id}")
        if not finished and dispatch_id not in waiting:
            slots = agent.engines[held.engine_id]
            known = dispatch_id in slots.inside or dispatch_id in slots.freed
            _require(known, f"{dispatch_id}: runs, but not in its engine")
        _require(not finished or held.ending is None, f"{dispatch_id}: ends twice")
        _require(held.item.stream == (dispatch_id in agent.outputs), f"{dispatch_id}: its output")
    _require(waiting <= agent.items.keys(), "an unknown item waits")
    streams = sum(held.item.stream for held in agent.items.values())
    _require(len(agent.outputs) == streams, "output of an unknown item is kept")


def _check_results(agent: Agent) -> None:
    finished = {i for i, held in agent.items.items() if held.outcome is not None}
    _require(finished == set(agent.finished_ids), "the results kept are not those of the items")
    sent = agent.unacknowledged_ids
    _require(len(sent) == len(set(sent)), "a result was sent twice in one session")
    _require(set(sent) <= finished, "a sent result is not kept")
