"""Which engine takes this request now, and if none, why not?

Filter, backup rule, score, pick. Filters that do not depend on the request (availability, health,
loaded model) are asked once per pool and step; the rest per request.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_service.core.outcomes import EngineMode, NodeAvailability, NodeHealth
from scheduler_service.core.state import Pool, State, accepts_work
from scheduler_service.core.types import NEVER, Engine, Request


@dataclass(slots=True)
class Choice:
    """An engine, or what stands in the way."""

    engine: Engine | None
    blocked_by_credit: bool = False  # some engine would take it, once it has room
    room_elsewhere: bool = False  # another request may go now
    barred: bool = False  # only a backup out of turn has room
    unfit: bool = False  # no usable engine can take it, whatever the room

    def hold(self, floor: bool) -> bool:
        """Whether to dispatch nothing past this one: there is no room for anybody, or it is the
        floor's turn and the oldest only waits for enough room, which others must not take.
        """
        return self.blocked_by_credit and (floor or not self.room_elsewhere)


def usable_engines(pool: Pool) -> list[Engine]:
    """The pool's engines that take new work at all, credit aside."""
    return [e for e in pool.engines if accepts_work(e, pool.model)]


def choose(state: State, request: Request, usable: list[Engine]) -> Choice:
    """Choose among `usable`, which is in order of node and engine id."""
    fit, excluded = _fitting(state, request, usable)
    if not fit and excluded and not _untried_returns(state, request):
        fit = excluded  # it failed everywhere: better a second try there than none
    if not fit and not excluded:
        return Choice(None, unfit=True, room_elsewhere=True)
    candidates = _by_role(state, request, fit)
    open_now = [e for e in candidates if has_room(state, e, e.charge_of(request))]
    if not open_now:
        elsewhere = any(has_room(state, e, 1) for e in usable)
        barred = any(has_room(state, e, e.charge_of(request)) for e in fit)
        return Choice(None, bool(fit), elsewhere, barred)
    scorer, now = state.policies.scorer, state.now
    if len(open_now) == 1:
        return Choice(open_now[0])
    scored = [(scorer.estimate(request, e, now), e) for e in open_now]
    return Choice(state.policies.picker.pick(scored, request))


def _fitting(
    state: State, request: Request, usable: list[Engine]
) -> tuple[list[Engine], list[Engine]]:
    """Engines that pass every filter, and those that only `tried` excludes."""
    fit, excluded = [], []
    for engine in usable:
        words = _objections(state, request, engine)
        if not words:
            fit.append(engine)
        elif words == ["tried"]:
            excluded.append(engine)
    return fit, excluded


def _objections(state: State, request: Request, engine: Engine) -> list[str]:
    return [w for f in state.policies.filters if (w := f.why_not(request, engine))]


def _untried_returns(state: State, request: Request) -> bool:
    """Whether a node that has not failed it and could take it may be back in a moment."""
    return any(
        e.node.health is NodeHealth.SUSPECT
        and e.node.availability is NodeAvailability.ACTIVE
        and not _objections(state, request, e)
        for e in state.pools[request.served_model].engines
    )


def fits_somewhere(state: State, request: Request) -> bool:
    """Whether some live engine of its pool could take it, in service or not, tried or not."""
    engines = state.pools[request.served_model].engines
    return any(_objections(state, request, e) in ([], ["tried"]) for e in engines)


def _by_role(state: State, request: Request, fit: list[Engine]) -> list[Engine]:
    """Backups only where no primary is eligible. A primary that is only out of room counts as
    eligible, unless the request would miss its deadline there or has been failed over already.
    """
    primaries = [e for e in fit if not e.node.backup]
    if not primaries:
        return fit
    if len(primaries) == len(fit):
        return fit
    if any(has_room(state, e, e.charge_of(request)) for e in primaries):
        return primaries
    if request.attempts or _would_miss(state, request, primaries):
        return fit
    return primaries


def _would_miss(state: State, request: Request, primaries: list[Engine]) -> bool:
    """Whether waiting for a primary to free a slot would cost it its deadline."""
    if request.deadline >= NEVER:
        return False
    scorer, now = state.policies.scorer, state.now
    soonest = min(scorer.estimate(request, e, now) for e in primaries)
    return now + 2 * soonest > request.deadline


def has_room(state: State, engine: Engine, inputs: int) -> bool:
    """Whether so many inputs may be sent to it now."""
    if engine.blocked_until > state.now or engine.free_inputs() < inputs:
        return False
    if engine.open_batches and engine.spec.mode is EngineMode.STATIC:
        lanes = max(1, (engine.spec.slots + engine.spec.look_ahead) // engine.max_batch)
        return len(engine.open_batches) < lanes
    return True
