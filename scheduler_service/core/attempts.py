"""How does an attempt begin? It is entered into all books and may speak from then on.

Whoever decides that a request goes to an engine (`dispatch.py` for what waits, `hedging.py` for a
rival of what is slow) begins its attempts here and then sends their batch.
"""

from __future__ import annotations

from scheduler_service.core import ledger, profile, records
from scheduler_service.core.commands import DispatchBatch
from scheduler_service.core.relay import Output
from scheduler_service.core.state import State
from scheduler_service.core.types import NOBODY, Attempt, Batch, Request


def begin(state: State, request: Request, batch: Batch) -> Attempt:
    """Make an attempt of the request as a member of the batch, and let it speak."""
    engine = batch.engine
    attempt = Attempt(
        state.new_id(),
        len(request.attempts) + 1,
        request,
        engine,
        batch.model,
        batch,
        engine.charge_of(request),
        state.now,
        0 if engine.credit_tokens is None else engine.tokens_of(request),
    )
    request.attempts = (*request.attempts, attempt)
    request.charged += 1
    if request.stream:
        if request.output is None:
            request.output = Output(state.new_id(), request.context)
        attempt.output_id = request.output.output_id
        sole = not request.live
        state.relay.open(attempt.dispatch_id, request.output, attempt, sole=sole)
    if request.live is NOBODY:
        request.live = {attempt.dispatch_id: attempt}
    else:
        request.live[attempt.dispatch_id] = attempt
    if request.affinity_key or engine.models[batch.model].token_times:
        profile.note_dispatch(attempt, state.now)
    ledger.charge(state, attempt)
    return attempt


def send(state: State, batch: Batch) -> None:
    """Send the batch to its node."""
    node = batch.engine.node
    state.totals.batches += 1
    state.record(records.DISPATCH_BATCH, batch=batch, node_id=node.node_id, pool=batch.model)
    state.emit(DispatchBatch(node.node_id, node.epoch, batch))
