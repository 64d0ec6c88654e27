"""The life of a request: how does it enter, wait, leave the queue and end?

`finish` is the only way to the one terminal outcome. Timers of a request are keyed by
rid * 4 + kind, so that setting one costs no allocation.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler_service.core import degrading, demand, fairness, ledger, placement, records
from scheduler_service.core.commands import AcceptRequest, FinishRequest
from scheduler_service.core.interfaces import Candidate, Refusal
from scheduler_service.core.outcomes import (
    AttemptState,
    Outcome,
    Reason,
    RequestClass,
    RequestState,
)
from scheduler_service.core.records import Record
from scheduler_service.core.state import Pool, State
from scheduler_service.core.transitions import move_request
from scheduler_service.core.types import (
    MILLISECOND,
    NEVER,
    SECOND,
    Attempt,
    Duration,
    Instant,
    Request,
)

DEADLINE: Final = 0
WAIT: Final = 1
RETRY: Final = 2
MODELS_MAX: Final = 1_000  # pools, of which requests after a restart may make some
PATIENCE: Final = 3  # see `patience.py`

# Members of enumerations on the path of every request: a look-up costs 70 ns each.
_QUEUED: Final = RequestState.QUEUED
_FINISHED: Final = RequestState.FINISHED
_INTERACTIVE: Final = RequestClass.INTERACTIVE
_REJECTED: Final = Outcome.REJECTED
_SUCCEEDED: Final = Outcome.SUCCEEDED
_NONE: Final = Reason.NONE
_NOTHING: Final[dict[str, str]] = {}  # stands for all metadata that says nothing


def submit(state: State, request: Request) -> None:
    """Admit the request into its pool's queue, or refuse it."""
    state.totals.received += 1
    request.place = state.new_place()
    request.served_model = request.model
    request.queued_at = state.now
    state.requests[request.rid] = request
    refusal = _refusal(state, request)
    if refusal is not None:
        finish(
            state,
            request,
            _REJECTED,
            refusal.reason,
            refusal.message,
            retry_after=refusal.retry_after,
            metadata=refusal.metadata,
        )
        return
    state.records.append(Record(records.SUBMIT, state.now, request))
    if state.settings.autoscale.enabled:
        demand.note(state, request)
    if request.deadline < NEVER:
        state.timers.set(request.rid * 4 + DEADLINE, request.deadline)
    if request.stream:
        pool = state.pools[request.served_model]
        load = state.load_of(pool, request)
        load.ahead = pool.queue.ahead_of(request)
        wait = state.policies.admission.estimated_wait(load)
        state.emit(AcceptRequest(request, load.ahead, wait))
    enter_queue(state, request)


def _refusal(state: State, request: Request) -> Refusal | None:
    """Why it may not enter; degrades it where that lets it in."""
    if state.draining:
        return Refusal(
            Reason.SCHEDULER_DRAINING, f"this scheduler is stopping: {state.draining}",
            SECOND, {},
        )  # fmt: skip
    if request.model not in state.pools and not may_come_back(state, request.model):
        known = ", ".join(sorted(state.pools)) or "none yet"
        return Refusal(
            Reason.MODEL_NOT_FOUND,
            f"no model {request.model!r} here; known models: {known}",
            None,
            {"model": request.model},
        )
    pool = state.pools[request.model]
    if 0 < pool.context_length < request.prompt_tokens:
        return Refusal(
            Reason.CONTEXT_TOO_LONG,
            f"its {request.prompt_tokens} tokens exceed the {pool.context_length} that "
            f"{request.model!r} takes",
            None,
            {
                "promptTokens": str(request.prompt_tokens),
                "contextLength": str(pool.context_length),
            },
        )
    refusal = _admission(state, request)
    if refusal is not None and refusal.displaces and _displace(state, request):
        refusal = None
    if refusal is None:
        if not pool.up:
            degrade(state, request, "no_capacity")
        elif pool.cursor is not None and _is_below(state, request, pool):
            return (
                _admission(state, request) if degrade(state, request, "overload") else _shed(pool)
            )
        return None
    if refusal.reason is Reason.DEADLINE_UNREACHABLE:
        if degrade(state, request, "deadline"):
            return _admission(state, request)
        if _may_try(state, request):
            return None
    return refusal


def _is_below(state: State, request: Request, pool: Pool) -> bool:
    """Whether its pool is overloaded and turns it away."""
    if request.request_class is not _INTERACTIVE or pool.cursor is None:
        return False
    return not pool.cursor.admits(request, state.now)


def _shed(pool: Pool) -> Refusal:
    waiting = pool.queue.interactive
    return Refusal(
        Reason.SHED,
        f"{pool.model!r} is overloaded: {waiting} requests wait, and others are more urgent",
        pool.drain.retry_after(waiting, 1.0),
        {"queueDepth": str(waiting)},
    )


def may_come_back(state: State, model: str) -> bool:
    """Whether nodes with that model may still return after a restart; makes its pool then."""
    if state.now >= state.hold_until or len(state.pools) >= MODELS_MAX:
        return False
    state.pool(model)
    return True


def _may_try(state: State, request: Request) -> bool:
    """Whether nothing waits or runs where it would: it takes no slot from others.

    Only finished work corrects an estimate; else one slow answer would close the pool for good.
    It must have a tenth of the expected time, as no estimate is off by more, and 10 ms at least.
    """
    pool = state.pools[request.served_model]
    load = state.load_of(pool, request)
    least = max(10 * MILLISECOND, load.expected_service // 10)
    if request.deadline - state.now < least:
        return False
    return len(pool.queue) == 0 and 0 < load.parallel <= load.free_inputs


def _admission(state: State, request: Request) -> Refusal | None:
    pool = state.pools[request.served_model]
    load = state.load_of(pool, request)
    if request.deadline < NEVER:
        load.ahead = pool.queue.ahead_of(request)
    return state.policies.admission.decide(request, load, state.now)


def _displace(state: State, request: Request) -> bool:
    """Put out the request that would go last, if it is less urgent than the newcomer."""
    pool = state.pools[request.served_model]
    last = pool.waiting.last(pool.model)
    if last is None or last.priority >= request.priority:
        return False
    waiting = len(pool.queue)
    finish(
        state, last, Outcome.FAILED, Reason.SHED,
        f"the queue is full and a request of priority {request.priority} came",
        retry_after=pool.drain.retry_after(waiting, 0.1),
        metadata={"queueDepth": str(waiting), "priority": str(request.priority)},
    )  # fmt: skip
    return True


def enter_queue(state: State, request: Request, *, returning: bool = False) -> None:
    """Put it into its pool's queue; `returning`: at its old place."""
    pool = state.pools[request.served_model]
    if returning and not pool.live and degrade(state, request, "no_capacity"):
        pool = state.pools[request.served_model]
    if not request.cost:
        if request.deadline < NEVER and not pool.queue.interactive:
            pool.yardstick.copy(pool.estimate)
        fairness.assess(request, pool.estimate, pool.yardstick)
    request.in_queue = True
    if pool.has_static and not returning:
        pool.arrivals.add(state.now, request.inputs)
    if request.request_class is _INTERACTIVE:
        pool.waiting.enter(request, returning)
        if state.policies.relieves:
            degrading.watch(state, pool)
    pool.queue.push(request, returning=returning)
    state.waiting_bytes += request.size_bytes
    # Most requests may wait as they like; the call costs more than to look here.
    if request.max_wait < NEVER or request.degrade or not pool.up or request.unfit_since < NEVER:
        arm_wait(state, request, pool)
    state.dirty[pool.model] = None


def arm_wait(state: State, request: Request, pool: Pool) -> None:
    """Wake up when its wait has to have a consequence: max_wait, degrade, or no node at all.

    The guard in `enter_queue` says when there may be one; a new consequence belongs there, too.
    """
    at = NEVER
    if request.max_wait < NEVER:
        limit = request.max_wait + request.wait_forgiven
        at = request.queued_at + max(0, limit - request.queue_time)
    if request.degrade_after < NEVER and request.degrade and not request.degraded:
        due = request.queued_at + max(0, request.degrade_after - request.queue_time)
        at = min(at, due if due > state.now else state.now + SECOND)
    at = min(at, _grace_ends(state, request, pool))
    if at < NEVER:
        request.wait_timed = True
        state.timers.set(request.rid * 4 + WAIT, at)


def _grace_ends(state: State, request: Request, pool: Pool) -> Instant:
    """When it has waited long enough for a node that can take it; NEVER: there is one."""
    if not pool.live:
        since = max(pool.dead_since, request.queued_at)
        scale = pool.scale
        ends = since + state.settings.queue.no_node_grace
        if scale.desired > 0:  # one asked for by then may take as long as starts may, but
            # none that comes is asked for again and again: that is no reason to wait for ever
            start_timeout = state.settings.autoscale.start_timeout
            return max(ends, min(scale.asked_at, ends) + start_timeout)
    elif request.unfit_since < NEVER:
        since = max(request.unfit_since, request.queued_at)
    else:
        return NEVER
    return since + state.settings.queue.no_node_grace


def leave_queue(state: State, request: Request, *, taken: bool = False) -> None:
    """End this stay in the queue. `taken`: the walk that took it removes it there."""
    if request.in_queue:
        pool = state.pools[request.served_model]
        if not taken:
            pool.queue.remove(request)
        if request.request_class is _INTERACTIVE:
            pool.waiting.leave(request)
        state.waiting_bytes -= request.size_bytes
        request.in_queue = False
    else:
        state.timers.cancel(request.rid * 4 + RETRY)
    request.queue_time += state.now - request.queued_at
    if request.wait_timed:
        _stop_wait_timer(state, request)


def _stop_wait_timer(state: State, request: Request) -> None:
    request.wait_timed = False
    state.timers.cancel(request.rid * 4 + WAIT)


def queue_again(state: State, request: Request, at: Instant) -> None:
    """Back to its old place, now or at `at`; the time until then counts as waiting."""
    move_request(request, _QUEUED)
    request.queued_at = state.now
    if at <= state.now:
        enter_queue(state, request, returning=True)
        return
    arm_wait(state, request, state.pools[request.served_model])
    state.timers.set(request.rid * 4 + RETRY, at)


def on_timer(state: State, request: Request, kind: int) -> None:
    """One of a request's timers fired."""
    if kind == DEADLINE:
        expire(state, request)
    elif kind == RETRY and request.state is _QUEUED and not request.in_queue:
        enter_queue(state, request, returning=True)
    elif kind == WAIT and request.state is _QUEUED:
        _on_wait(state, request)


def expire(state: State, request: Request) -> None:
    """Its deadline passed."""
    finish(
        state, request, Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED,
        "its time was over before it ended",
    )  # fmt: skip


def _on_wait(state: State, request: Request) -> None:
    """It waited as long as it may: degrade, end, or wait on."""
    pool = state.pools[request.served_model]
    waited = request.waited(state.now)
    if waited >= request.max_wait + request.wait_forgiven:
        if not degrade(state, request, "max_wait"):
            waited_ms = str(waited // MILLISECOND)
            finish(
                state, request, Outcome.EXPIRED, Reason.MAX_WAIT_EXCEEDED,
                f"waited {waited_ms} ms, the longest it allows",
                metadata={"queueDepth": str(len(pool.queue)), "waitedMs": waited_ms},
            )  # fmt: skip
        return
    if waited >= request.degrade_after and degrade(state, request, "overload"):
        return
    if request.unfit_since < NEVER and placement.fits_somewhere(state, request):
        request.unfit_since = NEVER
    if state.now >= _grace_ends(state, request, pool):
        why = "can take this request" if pool.live else f"serves {pool.model!r}"
        finish(
            state, request, Outcome.FAILED, Reason.NO_CAPACITY,
            f"no live node {why}; start an agent that does",
            retry_after=SECOND, metadata={"model": pool.model},
        )  # fmt: skip
        return
    arm_wait(state, request, pool)


def degrade(state: State, request: Request, reason: str) -> bool:
    """Substitute the first feasible model that it permits; once. Whether that was done."""
    begun = request.output is not None and request.output.begun
    if request.degraded or not request.degrade or begun:
        return False
    candidates = []
    for model in request.degrade:
        pool = state.pools.get(model)
        if pool is not None and model != request.served_model:
            candidates.append(_candidate(state, pool, request))
    chosen = state.policies.degrade.choose(request, candidates)
    if chosen is None:
        return False
    _change_pool(state, request, chosen)
    request.degrade_reason = reason
    if reason == "max_wait":  # the substitute gets as long again
        request.wait_forgiven = request.waited(state.now)
    state.totals.degraded += 1
    state.record(records.DEGRADED, request, pool=chosen, source=request.model, reason=reason)
    arm_wait(state, request, state.pools[chosen])
    return True


def _candidate(state: State, pool: Pool, request: Request) -> Candidate:
    load = state.load_of(pool, request)
    load.ahead = pool.queue.ahead_of(request)
    wait = state.policies.admission.estimated_wait(load)
    ends = state.now + int(0.8 * wait) + load.expected_service
    in_time = request.deadline >= NEVER or ends <= request.deadline
    return Candidate(pool.model, load.live_nodes, load.free_inputs, load.waiting, in_time, wait)


def on_pressure(state: State, model: str) -> None:
    """Look whether the pool is overloaded."""
    pool = state.pools[model]
    for request in degrading.overdue(state, pool):
        degrade(state, request, "overload")


def _change_pool(state: State, request: Request, model: str) -> None:
    """Serve it by another model from now on; if it waits, at its old place."""
    if request.in_queue:
        source, target = state.pools[request.served_model], state.pools[model]
        source.queue.remove(request)
        target.queue.push(request, returning=True)
        if request.request_class is _INTERACTIVE:
            source.waiting.leave(request)
            target.waiting.enter(request, True)
            if state.policies.relieves:
                degrading.watch(state, target)
        state.touch(model)
    request.served_model = model
    request.unfit_since = NEVER


def answered_by(state: State, attempt: Attempt) -> None:
    """The attempt that speaks or succeeds says which model serves the request: it may have been
    degraded while that attempt's session was broken.
    """
    request = attempt.request
    if request.served_model != attempt.model:
        _change_pool(state, request, attempt.model)
        if attempt.model == request.model:
            request.degrade_reason = ""


def note_unfit(state: State, request: Request) -> None:
    """No usable engine of its pool can take it: it does not wait for one for ever."""
    if request.unfit_since >= NEVER and not placement.fits_somewhere(state, request):
        request.unfit_since = state.now
        arm_wait(state, request, state.pools[request.served_model])


def note_no_node(state: State, pool: Pool) -> None:
    """Nobody alive serves the pool: say so once, and look at those who wait.

    They are looked at once after each change of nodes, for they may be many; those that come later
    are seen to as they come.
    """
    if pool.stranded_seen:
        return
    pool.stranded_seen = True
    if not pool.no_node_noted:
        pool.no_node_noted = True
        state.record(records.NO_AVAILABLE_NODE, pool=pool.model, waiting=len(pool.queue))
    for band in list(pool.queue.bands.values()):
        for request in list(band):
            if not degrade(state, request, "no_capacity"):
                arm_wait(state, request, pool)


def cancel(state: State, rid: int, reason: Reason, message: str) -> bool:
    """End it as cancelled; whether it was known."""
    request = state.requests.get(rid)
    if request is None:
        return False
    finish(state, request, Outcome.CANCELLED, reason, message)
    return True


def finish(
    state: State,
    request: Request,
    outcome: Outcome,
    reason: Reason = _NONE,
    message: str = "",
    *,
    attempt: Attempt | None = None,
    payload: Any = None,
    retry_after: Duration | None = None,
    metadata: dict[str, str] | None = None,
) -> None:
    """The one end of a request: nothing of it stays in queue, timers, relay or live attempts."""
    if request.state is _QUEUED:
        if outcome is _REJECTED:
            _stop_wait_timer(state, request)
        else:
            leave_queue(state, request)
    if request.live:
        for sibling in list(request.live.values()):
            how = _end_of(sibling, attempt, outcome)
            ledger.revoke(state, sibling, how, reason or Reason.REVOKED)
    move_request(request, _FINISHED)
    request.finished_at = state.now
    request.outcome = outcome
    request.reason = reason
    if request.deadline < NEVER:
        state.timers.cancel(request.rid * 4 + DEADLINE)
    del state.requests[request.rid]
    if state.apart:
        state.dirty.update(state.apart)  # a node may be kept for it
    if state.watches and state.watches.pop(request.rid, None) is not None:
        state.timers.cancel(request.rid * 4 + PATIENCE)
    if state.blamed and state.blamed.pop(request.rid, state) is None:
        _forget_deaths(state, request)
    finished = state.finished
    if finished and len(finished) == finished.maxlen:
        ledger.forget(finished[0])
    finished.append(request)
    state.totals.outcomes[outcome] += 1
    kind_of_record = records.OF_OUTCOME.get(outcome)
    if kind_of_record is not None:
        state.record(kind_of_record, request, reason=reason.name, message=message)
    state.records.append(Record(records.FINISHED, state.now, request, attempt))
    state.commands.append(
        FinishRequest(
            request, outcome, reason, message, attempt, payload, retry_after, metadata or _NOTHING
        )
    )


def _forget_deaths(state: State, request: Request) -> None:
    """Of one that ended otherwise they are remembered, for it may come again."""
    if request.outcome is _SUCCEEDED or request.reason is Reason.POISONED:
        state.blames[request.rid] = request, ()


def _end_of(sibling: Attempt, winner: Attempt | None, outcome: Outcome) -> AttemptState:
    if winner is not None and sibling is not winner:
        return AttemptState.REVOKED
    return AttemptState.FAILED if outcome is Outcome.FAILED else AttemptState.CANCELLED
