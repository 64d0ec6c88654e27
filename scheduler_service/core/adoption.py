"""What becomes of work that an agent brings back to a restarted scheduler?

Agents go on while no scheduler is there, and hand back what they run and what they have finished.
The edge says which of it is still wanted, and for which request (`RunningItem.orphan`): one that it
made from the item's cookie, the stored item of a job, or that of a caller who was here first. It is
adopted as an attempt under its old dispatch id, uncharged (the agent's first credits leave out the
room that it holds); all of its output comes again, from its beginning. How long it took is not
known, so no estimate learns from it. Until all of its output is here, its caller may have more of
the text than this scheduler: if the node is lost meanwhile, nothing may be written behind it, and
the next attempt begins a new output.

The body of a call comes with its caller (`on_body`). Before, the call can run nowhere else.

After such a start nothing is dispatched, and a model that no node has yet is no error, until the
nodes of before are back, or `recovery_window` is over: callers often come before their nodes.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import apart, demand, ledger, records, requests
from scheduler_service.core.events import BodyReturned, RunningItem
from scheduler_service.core.outcomes import Outcome, Reason, RequestClass, RequestState
from scheduler_service.core.relay import ReturnedOutput
from scheduler_service.core.state import State
from scheduler_service.core.transitions import move_request
from scheduler_service.core.types import ADOPTED, NEVER, Attempt, Batch, Engine, Node, Request

_STATED: Final = (
    "user_id", "task_type", "max_wait", "max_attempts", "resume_mode", "continuable", "inputs",
    "prompt_tokens", "output_tokens", "size_bytes", "affinity_key", "traits", "former_deaths",
)  # fmt: skip
OVER: Final = ("recovered", "")  # the timer of the window's end


def begin(state: State) -> None:
    """The first step: callers and agents of before have a while to come back."""
    if state.settings.nodes_before and state.settings.recovery_window:
        state.hold_until = state.now + state.settings.recovery_window
        state.timers.set(OVER, state.hold_until)


def note_joined(state: State) -> None:
    """A node came: when all of before are back, nobody is waited for any more."""
    if state.hold_until and state.settings.nodes_before.issubset(state.nodes):
        state.timers.cancel(OVER)
        on_window_over(state, "")


def on_window_over(state: State, _subject: str) -> None:
    """Dispatch what waits."""
    state.hold_until = 0
    for model in state.pools:
        state.touch(model)


def on_body(state: State, event: BodyReturned) -> None:
    """What its caller states counts from now on, but for what the cookie has told already."""
    request, stated = state.requests.get(event.rid), event.stated
    if request is None or request.max_attempts or request.state is RequestState.FINISHED:
        return
    for name in _STATED:
        setattr(request, name, getattr(stated, name))
    if request.former_deaths:
        apart.on_returned(state, request)
    if stated.model == request.model:  # else it is degraded already
        request.degrade, request.degrade_after = stated.degrade, stated.degrade_after


def adopt(state: State, node: Node, item: RunningItem) -> bool:
    """Take the item over; False: it is to be abandoned, and its request goes its usual way."""
    request = item.orphan
    assert request is not None
    if request.state is RequestState.FINISHED:
        return False
    engine = node.engines.get(item.engine_id)
    fits = engine is not None and item.model in engine.models
    if request.rid in state.requests:
        waits = request.state is RequestState.QUEUED and not request.attempts
        if not (fits and waits and request.served_model == item.model):
            return False
        requests.leave_queue(state, request)
    elif fits:
        _enter(state, request, item)
    elif request.max_attempts:  # its body is here
        requests.submit(state, request)
        if request.former_deaths:
            apart.on_returned(state, request)
        return False
    else:
        _enter(state, request, item)
        text = "the engine that ran it is gone"
        requests.finish(state, request, Outcome.FAILED, Reason.NODE_LOST, text)
        return False
    assert engine is not None
    _attempt(state, engine, request, item)
    return True


def _enter(state: State, request: Request, item: RunningItem) -> None:
    """A request that this scheduler has not seen."""
    state.totals.received += 1
    request.place = state.new_place()
    request.served_model = item.model
    request.queued_at = state.now
    state.requests[request.rid] = request
    state.pool(item.model)
    state.record(records.SUBMIT, request)
    demand.note(state, request)
    if request.former_deaths:
        apart.on_returned(state, request)
    if request.deadline < NEVER:
        state.timers.set(request.rid * 4 + requests.DEADLINE, request.deadline)


def _attempt(state: State, engine: Engine, request: Request, item: RunningItem) -> None:
    """The attempt that goes on, in the books of its node."""
    batch = Batch(f"b{state.new_id():x}", engine, item.model, False, ADOPTED, state.now)
    attempt = Attempt(
        dispatch_id=item.dispatch_id,
        number=item.attempt,
        request=request,
        engine=engine,
        model=item.model,
        batch=batch,
        inputs=engine.charge_of(request),
        started_at=state.now,
        chosen_by=ADOPTED,
        output_id=item.output_id,
    )
    request.attempts = (attempt,)
    request.charged = max(1, item.attempt)
    request.first_dispatch_at = state.now
    request.live = {attempt.dispatch_id: attempt}
    if request.stream:
        request.output = ReturnedOutput(item.output_id, request.context, item.written)
        state.relay.open(attempt.dispatch_id, request.output, attempt, sole=True)
    node = engine.node
    node.in_flight[attempt.dispatch_id] = attempt
    engine.in_flight_inputs += attempt.inputs
    engine.in_flight_items += 1
    batch.attempts.append(attempt)
    batch.open_items = batch.held_items = batch.kept_items = 1
    engine.open_batches[batch.batch_id] = batch
    if request.request_class is RequestClass.JOB:
        ledger.note_job(state, attempt)
    move_request(request, RequestState.DISPATCHED)
    state.record(records.DISPATCH_BATCH, batch=batch, node_id=node.node_id, pool=item.model)
