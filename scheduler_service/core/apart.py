"""Which requests must not run with others, and where do they run instead?

**Trials.** A request that was in flight on two nodes as they died, froze or ran out of memory may
be the cause. Its next attempt runs alone: on a node that holds nothing else and gets nothing else
meanwhile, one such trial per pool at a time. If that node goes, too, the request is POISONED: it
is never run again. If it does not, the request was only unlucky. Others that died with the culprit,
and on no other node, are cleared by the verdict and wait in the queue again.

**Halves.** A static batch that fails as a whole names no culprit. It is run again in two halves,
and these in halves, until the culprit is alone: after ceil(log2 B) + 1 runs. Only who fails alone
is charged an attempt.

Both kinds wait here, not in the queue, at their old place in time, and go before those who wait
there. `next_run` says what goes where; `dispatch.py` sends it. A trial keeps its node from the
choice (`Node.trust.kept`) until its attempt has left the node, or its request needs it no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from scheduler_service.core import attribution, placement, records, requests
from scheduler_service.core.attribution import deaths_of
from scheduler_service.core.commands import RememberDeaths
from scheduler_service.core.outcomes import EngineMode, NodeHealth, RequestState
from scheduler_service.core.state import Pool, State, accepts_work
from scheduler_service.core.transitions import move_request
from scheduler_service.core.types import Apart, Attempt, Engine, Request, Trial

TRIAL = "trial"  # why its batch was closed
HALVED = "halved"


@dataclass(slots=True)
class Run:
    """Send these together, now, to that engine."""

    engine: Engine
    members: Sequence[Request]
    why: str


def is_suspect(request: Request) -> bool:
    """Whether two nodes went while they had it."""
    return len(deaths_of(request)) >= attribution.SUSPECT_DEATHS


def condemned(attempt: Attempt) -> bool:
    """Whether the node went though it had nothing else."""
    return attempt.batch.close_reason == TRIAL and attribution.effects_of(attempt).suspects


def blame(state: State, request: Request) -> None:
    """Which nodes died with it has changed: that is to be remembered, should it live again."""
    state.blamed[request.rid] = None
    state.blames[request.rid] = request, tuple(deaths_of(request))


def flush_blames(state: State) -> None:
    """One command for all blames of the step."""
    if state.blames:
        state.emit(RememberDeaths(list(state.blames.values())))
        state.blames.clear()


def on_returned(state: State, request: Request) -> None:
    """A request came of which nodes have died before: it may have to wait for its trial."""
    if request.state is RequestState.FINISHED:
        return
    state.blamed[request.rid] = None
    if request.in_queue and is_suspect(request):
        requests.leave_queue(state, request)
        _wait_for_trial(state, request, _stay(state, request))


def hold_suspect(state: State, request: Request) -> None:
    """It waits for its trial."""
    _wait_for_trial(state, request, _hold(state, request))


def _wait_for_trial(state: State, request: Request, pool: Pool) -> None:
    apart = _apart(state, pool)
    if request not in apart.suspects:
        apart.suspects.append(request)
    nodes = ", ".join(deaths_of(request))
    state.record(records.SUSPECTED, request, pool=pool.model, nodes=nodes)


def hold_halves(state: State, members: Sequence[Request]) -> None:
    """They failed together: half of them at a time from now on."""
    if not members:
        return
    ordered = sorted(members, key=attrgetter("place"))
    middle = (len(ordered) + 1) // 2
    for request in ordered:
        pool = _hold(state, request)
    _apart(state, pool).halves += [half for half in (ordered[:middle], ordered[middle:]) if half]


def _apart(state: State, pool: Pool) -> Apart:
    if pool.apart is None:
        pool.apart = Apart()
        state.apart[pool.model] = None
    return pool.apart


def _hold(state: State, request: Request) -> Pool:
    """It waits, and not in the queue."""
    move_request(request, RequestState.QUEUED)
    return _stay(state, request)


def _stay(state: State, request: Request) -> Pool:
    """Begin a stay outside the queue."""
    request.queued_at = state.now
    pool = state.pools[request.served_model]
    requests.arm_wait(state, request, pool)
    state.touch(pool.model)
    return pool


def acquit(state: State, culprit: Request) -> None:
    """Those whose misfortunes the culprit explains are suspects no more."""
    guilty = set(deaths_of(culprit))  # membership only
    apart = state.pools[culprit.served_model].apart
    if apart is None:
        return
    for request in [r for r in apart.suspects if guilty.issuperset(deaths_of(r))]:
        apart.suspects.remove(request)
        if _waits(request):
            requests.enter_queue(state, request, returning=True)


def next_run(state: State, pool: Pool) -> Run | None:
    """What goes next of those that run apart; None: nothing can now."""
    apart = pool.apart
    if apart is None:
        return None
    _settle_trial(state, apart)
    apart.suspects = [r for r in apart.suspects if _belongs(state, r, pool)]
    if apart.trial is None and apart.suspects:
        _begin_trial(state, pool, apart)
    run = _trial_run(state, apart) or _half_run(state, pool, apart)
    if run is None and not (apart.suspects or apart.halves or apart.trial):
        pool.apart = None
        del state.apart[pool.model]
    return run


def _waits(request: Request) -> bool:
    return request.state is RequestState.QUEUED and not request.in_queue


def _belongs(state: State, request: Request, pool: Pool) -> bool:
    """Whether it still waits here; one that was degraded meanwhile waits with the others."""
    if not _waits(request):
        return False
    if request.served_model == pool.model:
        return True
    requests.enter_queue(state, request, returning=True)
    return False


def _settle_trial(state: State, apart: Apart) -> None:
    """End a trial whose node is free again, or whose request does not need it any more."""
    trial = apart.trial
    if trial is None:
        return
    attempt, node = trial.attempt, trial.node
    if attempt is None:
        engines = node.engines.values()
        usable = any(accepts_work(e, m) for e in engines for m in e.models)
        if _waits(trial.request) and usable and state.nodes.get(node.node_id) is node:
            return
    elif attempt.dispatch_id in attempt.node.in_flight:
        return
    apart.trial = None
    node.trust.kept = False
    if attempt is not None:
        attempt.node.trust.kept = False  # its session may be another one by now
    for engine in node.engines.values():
        state.touch_engine(engine)


def _begin_trial(state: State, pool: Pool, apart: Apart) -> None:
    """Keep a node for the oldest suspect: one on probation rather, else the least loaded."""
    request = apart.suspects[0]
    nodes = {
        engine.node.node_id: engine.node
        for engine in pool.usable
        if placement.objections(state, request, engine) in ([], ["tried"])
        and not engine.node.trust.kept
    }
    chosen = min(
        nodes.values(),
        key=lambda n: (n.health is not NodeHealth.PROBATION, len(n.in_flight), n.node_id),
        default=None,
    )
    if chosen is not None:
        chosen.trust.kept = True
        apart.trial = Trial(request, chosen)


def _trial_run(state: State, apart: Apart) -> Run | None:
    trial = apart.trial
    if trial is None or trial.attempt is not None or trial.node.in_flight:
        return None
    request = trial.request
    for engine in trial.node.engines.values():
        serves = request.served_model in engine.models
        if serves and accepts_work(engine, request.served_model) and _fits(state, request, engine):
            apart.suspects.remove(request)
            return Run(engine, [request], TRIAL)
    return None


def _fits(state: State, request: Request, engine: Engine) -> bool:
    return engine.blocked_until <= state.now and engine.free_inputs() >= engine.charge_of(request)


def _half_run(state: State, pool: Pool, apart: Apart) -> Run | None:
    """The first half that an engine has room for. Where none is static, all go to the queue."""
    apart.halves = [
        left for half in apart.halves if (left := [r for r in half if _belongs(state, r, pool)])
    ]
    if not apart.halves:
        return None
    engines = [e for e in pool.usable if e.spec.mode is EngineMode.STATIC]
    if pool.usable and not engines:
        for request in [r for half in apart.halves for r in half]:
            requests.enter_queue(state, request, returning=True)
        apart.halves = []
        return None
    for index, half in enumerate(apart.halves):
        engine = _engine_for(state, engines, half[0])
        if engine is not None:
            taken = _within(half, engine, placement.room_of(state, engine))
            apart.halves[index : index + 1] = [rest] if (rest := half[len(taken) :]) else []
            return Run(engine, taken, HALVED)
    return None


def _engine_for(state: State, engines: list[Engine], request: Request) -> Engine | None:
    """One that has not failed it rather than one that has; then the least loaded."""
    found = []
    for engine in engines:
        words = placement.objections(state, request, engine)
        room = min(engine.max_batch, placement.room_of(state, engine))
        if words in ([], ["tried"]) and room >= engine.charge_of(request):
            found.append((bool(words), engine.in_flight_inputs, engine.node.node_id, engine))
    return min(found, key=lambda entry: entry[:3])[3] if found else None


def _within(half: list[Request], engine: Engine, room: int) -> list[Request]:
    """As many from the front as the engine takes in one batch."""
    left = min(engine.max_batch, room)
    taken = []
    for request in half:
        left -= engine.charge_of(request)
        if left < 0:
            break
        taken.append(request)
    return taken


def begun(pool: Pool, run: Run, attempts: Sequence[Attempt]) -> None:
    """It was sent."""
    if run.why == TRIAL and pool.apart is not None and pool.apart.trial is not None:
        pool.apart.trial.attempt = attempts[0]
