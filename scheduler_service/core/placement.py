"""Which engine takes this request now, and if none, why not?

Filter, backup rule, score, pick. Within one pass over a pool's queue the answers for one request
serve all that are alike in what its policies look at (`concerns`): over 32 nodes asking anew for
each request took longer than all the rest of its way through the core.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from scheduler_service.core import health
from scheduler_service.core.outcomes import EngineMode, NodeAvailability, NodeHealth
from scheduler_service.core.state import Pool, State, accepts_work
from scheduler_service.core.types import NEVER, Duration, Engine, Request


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


@dataclass(slots=True)
class _Fit:
    """The engines that can take requests of one kind, room aside; in order of node and engine."""

    engines: list[Engine]
    primaries: list[Engine]


class Placement:
    """Chooses engines for the requests of one pool, in one pass of one step."""

    __slots__ = ("_fits", "_room", "_scores", "_state", "usable")

    def __init__(self, state: State, pool: Pool) -> None:
        self._state = state
        self.usable = [e for e in pool.engines if accepts_work(e, pool.model)]
        self._room = {e: room_of(state, e) for e in self.usable}
        self._fits: dict[tuple[Hashable, ...], _Fit] = {}  # by what the filters look at
        self._scores: dict[Hashable, dict[Engine, Duration]] = {}  # by what the scorer looks at

    def choose(self, request: Request) -> Choice:
        """The engine for it now, if any."""
        fit = self._fit_of(request)
        if not fit.engines:
            return Choice(None, room_elsewhere=True, unfit=True)
        open_now = self._with_room(self._by_role(request, fit), request)
        if not open_now:
            elsewhere = any(self._room[e] > 0 for e in self.usable)
            barred = bool(self._with_room(fit.engines, request))
            return Choice(None, True, elsewhere, barred)
        if len(open_now) == 1:
            return Choice(open_now[0])
        scored = self._score(request, open_now)
        return Choice(self._state.policies.picker.pick(scored, request))

    def took(self, engine: Engine) -> None:
        """The engine was sent a request: its room and its scores are others now."""
        self._room[engine] = room_of(self._state, engine)
        for known in self._scores.values():
            known.pop(engine, None)

    def _with_room(self, engines: list[Engine], request: Request) -> list[Engine]:
        """Those with room for what it costs there: its inputs, up to the slots, and its tokens."""
        room, inputs = self._room, request.inputs
        return [
            e
            for e in engines
            if (room[e] >= inputs or room[e] >= e.spec.slots) and e.takes_tokens_of(request)
        ]

    def _fit_of(self, request: Request) -> _Fit:
        key = tuple([f.concerns(request) for f in self._state.policies.filters])
        fit = self._fits.get(key)
        if fit is None:
            engines = self._fitting(request)
            fit = self._fits[key] = _Fit(engines, [e for e in engines if not e.node.backup])
        return fit

    def _fitting(self, request: Request) -> list[Engine]:
        """Engines that pass every filter; where there are none, those that only `tried` excludes:
        it failed everywhere, and a second try there is better than none.
        """
        words = {e: _objections(self._state, request, e) for e in self.usable}
        fit = [e for e in self.usable if not words[e]]
        if fit or _untried_returns(self._state, request):
            return fit
        return [e for e in self.usable if words[e] == ["tried"]]

    def _by_role(self, request: Request, fit: _Fit) -> list[Engine]:
        """Backups only where no primary is eligible. A primary that is only out of room counts as
        eligible, unless the request would miss its deadline there or has been failed over already.
        """
        primaries = fit.primaries
        if not primaries or len(primaries) == len(fit.engines):
            return fit.engines
        if self._with_room(primaries, request):
            return primaries
        if request.attempts or self._would_miss(request, primaries):
            return fit.engines
        return primaries

    def _would_miss(self, request: Request, primaries: list[Engine]) -> bool:
        """Whether waiting for a primary to free a slot would cost it its deadline."""
        if request.deadline >= NEVER:
            return False
        soonest = min(estimate for estimate, _ in self._score(request, primaries))
        return self._state.now + 2 * soonest > request.deadline

    def _score(self, request: Request, engines: list[Engine]) -> list[tuple[Duration, Engine]]:
        scorer, now = self._state.policies.scorer, self._state.now
        known = self._scores.setdefault(scorer.concerns(request), {})
        for engine in engines:
            if engine not in known:
                known[engine] = scorer.estimate(request, engine, now)
        return [(known[e], e) for e in engines]


def room_of(state: State, engine: Engine) -> int:
    """Inputs that may be sent to it now; 0 while it is left alone or runs all batches it can."""
    node = engine.node
    if engine.blocked_until > state.now:
        return 0
    if node.trust.on_probation and health.tried_enough(node):
        return 0
    if engine.open_batches and engine.spec.mode is EngineMode.STATIC:
        lanes = max(1, (engine.spec.slots + engine.spec.look_ahead) // engine.max_batch)
        if len(engine.open_batches) >= lanes:
            return 0
    room = engine.free_inputs()
    if node.trust.warm_until > state.now:
        spec = engine.spec
        warm = health.slots_of(state, node, spec.slots)
        room = min(room, warm + spec.look_ahead - engine.in_flight_inputs)
    return max(0, room)


def fits_somewhere(state: State, request: Request) -> bool:
    """Whether some live engine of its pool could take it, in service or not, tried or not."""
    engines = state.pools[request.served_model].engines
    return any(_objections(state, request, e) in ([], ["tried"]) for e in engines)


def _untried_returns(state: State, request: Request) -> bool:
    """Whether a node that has not failed it and could take it may be back in a moment."""
    return any(
        e.node.health is NodeHealth.SUSPECT
        and e.node.availability is NodeAvailability.ACTIVE
        and not _objections(state, request, e)
        for e in state.pools[request.served_model].engines
    )


def _objections(state: State, request: Request, engine: Engine) -> list[str]:
    return [w for f in state.policies.filters if (w := f.why_not(request, engine))]
