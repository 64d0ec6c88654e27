"""What happens when an attempt ends without an answer?

Theory of operation. The node's word is taken only in its present session and only for ids that are
live; all else is dropped and counted. Whose fault a failure is, and what follows from that, is the
table of `attribution.py`: it ends the request (the caller's fault), goes back to its old place
uncharged (never started), or is charged, that incarnation of the node excluded, and queued again at
its old place: at most `max_attempts` times, and as long as the pool's budget pays (`budgets.py`).

After partial output nothing is silently repeated or spliced: CONTINUE where that is right, else
FAIL with what there is, or RESTART (a new output) where the caller opted in.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import (
    apart,
    attribution,
    fairness,
    health,
    hedging,
    ledger,
    placement,
    preemption,
    profile,
    records,
    requests,
    resumption,
)
from scheduler_service.core.attribution import Fault, effects_of, fault_of
from scheduler_service.core.commands import AcknowledgeResults, StartOutput
from scheduler_service.core.events import ItemEnd, ItemsFinished, ItemsRunning, OutputsBegun
from scheduler_service.core.interfaces import GiveUp
from scheduler_service.core.outcomes import (
    AttemptState,
    Outcome,
    Reason,
    RequestClass,
    RequestState,
    ResumeMode,
)
from scheduler_service.core.state import Pool, State
from scheduler_service.core.transitions import move_request
from scheduler_service.core.types import (
    ADOPTED,
    Attempt,
    Duration,
    Engine,
    Instant,
    Node,
    ServiceEstimate,
)

# Members of enumerations on the path of every request: a look-up costs 70 ns each.
_DISPATCHED: Final = RequestState.DISPATCHED
_RUNNING: Final = RequestState.RUNNING
_NONE: Final = Reason.NONE
_SUCCEEDED: Final = Outcome.SUCCEEDED
_ANSWERED: Final = AttemptState.SUCCEEDED


def on_running(state: State, event: ItemsRunning) -> None:
    """The engine began these."""
    node = state.session(event.node_id, event.epoch)
    if node is None:
        return
    for dispatch_id in event.dispatch_ids:
        attempt = node.in_flight.get(dispatch_id)
        if attempt is None or dispatch_id not in attempt.request.live or attempt.running:
            continue
        attempt.running = True
        state.record(records.ATTEMPT_RUNNING, attempt.request, attempt=attempt)
        if attempt.request.state is _DISPATCHED:
            move_request(attempt.request, _RUNNING)
        if attempt.request.stream:
            state.emit(StartOutput(attempt.request, attempt))


def on_begun(state: State, event: OutputsBegun) -> None:
    """The edge saw first words. The step has them from the relay itself already (`hear`)."""
    del event
    hear(state)


def hear(state: State) -> None:
    """Those that spoke for the first time won: siblings are out, no second dispatch is needed."""
    fresh = state.relay.fresh
    for dispatch_id in fresh:
        lane = state.relay.lanes.get(dispatch_id)
        if lane is not None:
            _begin(state, lane.attempt)
    fresh.clear()


def _begin(state: State, attempt: Attempt) -> None:
    request = attempt.request
    attempt.spoke = True
    output = request.output
    if output is not None and not output.begun_at:
        output.begun_at = state.now
    requests.answered_by(state, attempt)
    if state.hedges:
        hedging.learn(state, attempt)
    state.record(records.FIRST_OUTPUT, request, attempt=attempt)
    for sibling in [a for a in request.live.values() if a is not attempt]:
        ledger.revoke(state, sibling, AttemptState.REVOKED, Reason.REVOKED)
    if request.state is RequestState.QUEUED:
        requests.leave_queue(state, request)
    if request.state is not _RUNNING:
        move_request(request, _RUNNING)


def on_finished(state: State, event: ItemsFinished) -> None:
    """Results came from a node."""
    node = state.session(event.node_id, event.epoch)
    if node is None:
        for item in event.items:
            _late(state, item, event.node_id)
        return
    failed: list[Attempt] = []
    freed: dict[Engine, None] = {}
    for item in event.items:
        attempt = node.in_flight.get(item.dispatch_id)
        if attempt is None:
            _late(state, item, event.node_id)
            continue
        attempt.output_tokens = item.output_tokens
        ledger.settle_one(state, attempt)
        freed[attempt.engine] = None
        if item.dispatch_id not in attempt.request.live:
            _late(state, item, event.node_id)
        elif item.reason is _NONE:
            _succeed(state, node, attempt, item)
        else:
            _conclude(state, node, attempt, item, failed)
    if failed:
        _fail(state, node, failed)
    for engine in freed:
        state.touch_engine(engine)
    state.emit(AcknowledgeResults(event.node_id, event.epoch, len(event.items)))
    ledger.check_drained(state, node)


def _late(state: State, item: ItemEnd, node_id: str) -> None:
    """A result that nobody may use: cancelled, revoked, or of a dead session."""
    state.totals.late_results += 1
    state.totals.wasted_output_tokens += item.output_tokens
    state.record(records.LATE_RESULT, node_id=node_id, dispatch_id=item.dispatch_id)


def _conclude(
    state: State, node: Node, attempt: Attempt, item: ItemEnd, failed: list[Attempt]
) -> None:
    """A live attempt failed on its node; one that may be tried again is added to `failed`."""
    request = attempt.request
    reason = item.reason
    if attempt.preempted_for and preemption.gave_way(item):
        preemption.take_back(state, attempt)
    elif item.refused or reason is Reason.ENGINE_BUSY:
        _refused(state, node, attempt, item)
    elif _is_elsewhere(state, attempt, item):
        ledger.end(state, attempt, AttemptState.REFUSED, reason, item.message)
        _note_tried(state, attempt)
        give_back(state, attempt)
    elif fault_of(reason) is Fault.CALLER:
        ledger.end(state, attempt, AttemptState.FAILED, reason, item.message)
        requests.finish(
            state, request, Outcome.FAILED, reason, item.message,
            attempt=attempt, payload=item.payload, metadata=item.metadata,
        )  # fmt: skip
    elif reason is Reason.DEADLINE_EXCEEDED:
        ledger.end(state, attempt, AttemptState.CANCELLED, reason, item.message)
        requests.finish(
            state, request, Outcome.EXPIRED, reason, item.message,
            attempt=attempt, payload=item.payload,
        )  # fmt: skip
    else:
        node.failed += 1
        ledger.end(state, attempt, AttemptState.FAILED, reason, item.message)
        failed.append(attempt)


def _is_elsewhere(state: State, attempt: Attempt, item: ItemEnd) -> bool:
    """Whether it asked for a feature that this engine lacks, and another node has: a pool may be of
    engines of several kinds.
    """
    feature = item.metadata.get("feature", "")
    if item.reason is not Reason.UNSUPPORTED_FEATURE or not feature or attempt.spoke:
        return False
    request, here = attempt.request, attempt.node.incarnation
    return any(
        feature in engine.models[attempt.model].features
        and engine.node.incarnation != here
        and not placement.objections(state, request, engine)
        for engine in state.pools[attempt.model].engines
    )


def _fail(state: State, node: Node, failed: list[Attempt]) -> None:
    """Try them again: those of a static batch that failed as a whole in halves, others as they
    are. However large, a batch is one failure of its node.
    """
    for batch in list({a.batch.batch_id: a.batch for a in failed}.values()):
        members = [a for a in failed if a.batch is batch]
        whole = batch.atomic and len(members) > 1 and batch.open_items == 0
        if whole and all(a.state is not AttemptState.SUCCEEDED for a in batch.attempts):
            _halve(state, members)
            if any(effects_of(a).blames for a in members):
                health.failed(state, node)
            continue
        for attempt in members:
            retry(state, attempt)
            if effects_of(attempt).blames:
                health.failed(state, node)


def _halve(state: State, members: list[Attempt]) -> None:
    """They failed together, and nobody is charged for it."""
    held = []
    for attempt in members:
        request = attempt.request
        if request.live or request.state is RequestState.QUEUED or apart.is_suspect(request):
            retry(state, attempt)
            continue
        request.charged -= 1
        _note_tried(state, attempt)
        if not _resume(state, attempt):
            continue
        if may_retry(state, attempt) is None:
            _give_up_unpaid(state, attempt)
            continue
        note_failover(state, attempt)
        ledger.note_moved(attempt)
        held.append(request)
    apart.hold_halves(state, held)


def _succeed(state: State, node: Node, attempt: Attempt, item: ItemEnd) -> None:
    took, request, tokens = state.now - attempt.started_at, attempt.request, item.output_tokens
    model = attempt.model
    pool = state.pools[model]
    if attempt.chosen_by != ADOPTED:
        _learn_time(attempt, pool, took, tokens)
    pool.drain.add(state.now, len(pool.queue) > 0)
    node.finished += 1
    if state.lengths is not None:
        state.lengths.learn(request, model, tokens)
    if state.hedges and not attempt.spoke:
        hedging.learn(state, attempt)
    health.succeeded(state, node)
    request.finish_reason = item.finish_reason
    state.totals.input_tokens += item.input_tokens
    state.totals.output_tokens += tokens
    if request.served_model != model:
        requests.answered_by(state, attempt)
    cost = fairness.actual_cost(request, item.input_tokens, tokens, took)
    if cost != request.cost:
        pool.queue.reconcile(request, cost)
    if node.drain is not None and not node.drain.ended_at:
        node.drain.finished.append(request.request_id)
    ledger.end(state, attempt, _ANSWERED, _NONE)
    requests.finish(state, request, _SUCCEEDED, attempt=attempt, payload=item.payload)


def _learn_time(attempt: Attempt, pool: Pool, took: Duration, tokens: int) -> None:
    """What it took; of an adopted one only the end was seen."""
    if attempt.expected_token:
        profile.learn(attempt, took)
    model, service = attempt.model, attempt.engine.service
    estimate = service.get(model)
    if estimate is None:
        estimate = service[model] = ServiceEstimate()
    estimate.learn(took, tokens)
    pool.estimate.learn(took, tokens)


def _refused(state: State, node: Node, attempt: Attempt, item: ItemEnd) -> None:
    """Not started there. The engine is left alone for a moment, so that this cannot spin."""
    if item.reason is not Reason.NODE_DRAINING:
        pause = state.settings.health.refused_pause
        attempt.engine.blocked_until = state.now + pause
        state.timers.set(("unblock", node.node_id), state.now + pause)
    taken_back = item.reason is Reason.NODE_DRAINING and attempt.running  # at the drain's end
    how = AttemptState.CANCELLED if taken_back else AttemptState.REFUSED
    ledger.end(state, attempt, how, item.reason, item.message)
    give_back(state, attempt)


def give_back(state: State, attempt: Attempt) -> None:
    """Queue the request again at its old place, uncharged: the attempt never started."""
    request = attempt.request
    request.charged -= 1
    if request.live or request.state is RequestState.QUEUED:
        ledger.note_moved(attempt)
    elif _resume(state, attempt):
        ledger.note_moved(attempt)
        requests.queue_again(state, request, state.now)


def retry(state: State, attempt: Attempt) -> None:
    """The attempt has ended without an answer: try again elsewhere, or give up."""
    request = attempt.request
    _note_tried(state, attempt)
    if request.live:  # its sibling may still answer
        ledger.note_moved(attempt)
        return
    if apart.condemned(attempt):
        _condemn(state, attempt)
        return
    verdict = state.policies.failover.decide(attempt, attempt.reason, state.now)
    if isinstance(verdict, GiveUp):
        _give_up(state, attempt, verdict.reason, verdict.message)
    elif request.state is RequestState.QUEUED:  # since its session broke
        ledger.note_moved(attempt)
    elif _resume(state, attempt):
        wait = may_retry(state, attempt)
        if wait is None:
            _give_up_unpaid(state, attempt)
        else:
            _fail_over(state, attempt, verdict.at + wait)


def _note_tried(state: State, attempt: Attempt) -> None:
    incarnation, request = attempt.node.incarnation, attempt.request
    if incarnation not in request.tried:
        request.tried = (*request.tried, incarnation)
    if effects_of(attempt).suspects:
        apart.blame(state, request)


def _give_up_unpaid(state: State, attempt: Attempt) -> None:
    _give_up(
        state, attempt, Reason.RETRY_BUDGET_EXHAUSTED,
        f"{attempt.reason.name}, and the pool has no retries left in its budget",
    )  # fmt: skip


def may_retry(state: State, attempt: Attempt) -> Duration | None:
    """Pay for another try: how long it waits for that; None: nothing is left. An attempt that has
    not ended is moved since its session broke.
    """
    pool = state.pools[attempt.request.served_model]
    deaths = attempt.reason is Reason.NONE or effects_of(attempt).by_deaths
    budget, covered = (pool.deaths, pool.most_inputs) if deaths else (pool.errors, 0)
    limits = state.settings.failover
    if budget.take(state.now, pool.firsts, limits, covered=covered):
        return 0
    if attempt.request.request_class is RequestClass.JOB:
        return budget.turn_of_job(state.now, limits)
    return None


def _fail_over(state: State, attempt: Attempt, at: Instant) -> None:
    request = attempt.request
    note_failover(state, attempt)
    ledger.note_moved(attempt)
    if apart.is_suspect(request):
        apart.hold_suspect(state, request)
    else:
        requests.queue_again(state, request, at)


def _condemn(state: State, attempt: Attempt) -> None:
    """It alone was there when its node went, and two had gone before: nobody runs it again."""
    request = attempt.request
    apart.acquit(state, request)
    nodes = ", ".join(attribution.deaths_of(request))
    state.record(records.POISONED, request, attempt=attempt, pool=attempt.model, nodes=nodes)
    _give_up(
        state, attempt, Reason.POISONED,
        f"nodes failed while they ran it ({nodes}), the last one with nothing else to run: it is "
        "not run again",
    )  # fmt: skip


def note_failover(state: State, attempt: Attempt) -> None:
    """Count and record that the request moves on from this attempt."""
    state.totals.failovers += 1
    output = attempt.request.output
    state.record(
        records.FAILOVER,
        attempt.request,
        attempt=attempt,
        node_id=attempt.node.node_id,
        pool=attempt.model,
        reason=attempt.reason.name if attempt.reason else "SESSION_BROKEN",
        fault=str(fault_of(attempt.reason or Reason.NODE_LOST, timed_out=attempt.timed_out)),
        emitted=sum(output.offsets.values()) if output is not None else 0,
    )


def _resume(state: State, attempt: Attempt) -> bool:
    """Settle how the request goes on after what its client already has; False: it ended."""
    request = attempt.request
    output = request.output
    if output is None:
        return True
    if output.lacks:
        resumption.restart(state, request)
        return True
    if not output.begun:
        return True
    mode = request.resume_mode
    if mode is not ResumeMode.FAIL and resumption.can_continue(state, request):
        request.continuing = True
        return True
    if mode is ResumeMode.RESTART:
        resumption.restart(state, request)
        return True
    _give_up(
        state, attempt, Reason.STREAM_INTERRUPTED,
        f"its attempt ended with {(attempt.reason or Reason.NODE_LOST).name} after "
        f"{sum(output.offsets.values())} bytes of output, which cannot be continued",
    )  # fmt: skip
    return False


def _give_up(state: State, attempt: Attempt, reason: Reason, message: str) -> None:
    request = attempt.request
    if (drain := ledger.open_drain(attempt)) is not None:
        drain.lost.append(request.request_id)
    emitted = sum(request.output.offsets.values()) if request.output is not None else 0
    requests.finish(
        state, request, Outcome.FAILED, reason, message, attempt=attempt,
        metadata={
            "attempts": str(request.charged),
            "lastReason": attempt.reason.name,
            "emittedBytes": str(emitted),
        },
    )  # fmt: skip
