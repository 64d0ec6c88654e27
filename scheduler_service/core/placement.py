"""Which engine takes this request now, and if none, why not?

Filter, backup rule, score, pick. Within one pass over a pool's queue the answers for one request
serve all that are alike in what its policies look at (`concerns`): over 32 nodes asking anew for
each request took longer than all the rest of its way through the core. In pools of more than 32
engines a few are drawn at random (`openings.py`) instead of asking all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from scheduler_service.core import health, profile
from scheduler_service.core.hashing import hash64
from scheduler_service.core.openings import Openings
from scheduler_service.core.outcomes import EngineMode, NodeAvailability, NodeHealth
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import NEVER, Duration, Engine, Request

RING_STEPS: Final = 16  # engines that are looked at from a key's place on
RING_BOUND: Final = 1.25  # of the mean load; above it an engine of the ring is passed over


@dataclass(slots=True)
class Choice:
    """An engine, or what stands in the way."""

    engine: Engine | None
    blocked_by_credit: bool = False  # some engine would take it, once it has room
    room_elsewhere: bool = False  # another request may go now
    barred: bool = False  # only a backup out of turn has room
    unfit: bool = False  # no usable engine can take it, whatever the room
    scored: Sequence[tuple[Duration, Engine]] = ()  # all that were compared
    fit: Fit | None = None

    def hold(self, floor: bool) -> bool:
        """Whether to dispatch nothing past this one: there is no room for anybody, or it is the
        floor's turn and the oldest only waits for enough room, which others must not take.
        """
        return self.blocked_by_credit and (floor or not self.room_elsewhere)


@dataclass(slots=True)
class Fit:
    """The engines that can take requests of one kind, room aside; in order of node and engine."""

    key: tuple[Hashable, ...]
    engines: list[Engine]
    primaries: list[Engine]
    words: dict[Engine, list[str]]  # why the others cannot


@dataclass(slots=True)
class _Ranked:
    """Scores of the engines with room for one plain input, kept up to date within a pass."""

    example: Request
    engines: list[Engine] = field(default_factory=list)
    scored: list[tuple[Duration, Engine]] = field(default_factory=list)
    only: Choice | None = None  # where there is one engine, for all


class Placement:
    """Chooses engines for the requests of one pool, in one pass of one step."""

    __slots__ = (
        "_concerns", "_fits", "_limited", "_pool", "_ranked", "_room", "_scores", "_state",
        "usable",
    )  # fmt: skip

    def __init__(self, state: State, pool: Pool) -> None:
        self._state = state
        self._pool = pool
        self.usable = pool.usable
        self._concerns = [f.concerns for f in state.policies.filters]
        self._room: dict[Engine, int] = {}
        self._limited = True  # more than room counts: tokens, or prompts that are not taken in yet
        if pool.openings is None:
            self._look()
        self._fits: dict[tuple[Hashable, ...], Fit] = {}  # by what the filters look at
        self._scores: dict[Hashable, dict[Engine, Duration]] = {}  # by what the scorer looks at
        self._ranked: dict[tuple[Hashable, ...], _Ranked] = {}  # by both

    def _look(self) -> None:
        """See how much room each engine has."""
        state, model = self._state, self._pool.model
        self._room = {e: room_of(state, e) for e in self.usable}
        self._limited = any(
            e.credit_tokens is not None or e.models[model].prefill_rate for e in self.usable
        )

    def choose(self, request: Request) -> Choice:
        """The engine for it now, if any."""
        if self._pool.openings is not None:
            choice = self._drawn(request, self._pool.openings)
            if choice is not None:
                return choice
            if not self._room:
                self._look()
        fit = self._fit_of(request)
        if not fit.engines:
            return Choice(None, room_elsewhere=True, unfit=True, fit=fit)
        alike = len(fit.primaries) in (0, len(fit.engines))
        if alike and request.inputs == 1 and not self._limited:
            ranked = self._rank(request, fit)
            scored = ranked.scored
            if len(scored) == 1:
                if ranked.only is None:
                    ranked.only = self._pick(request, scored, fit)
                return ranked.only
        else:
            scored = self._score(request, self._with_room(self._by_role(request, fit), request))
        if not scored:
            elsewhere = any(self._room[e] > 0 for e in self.usable)
            barred = bool(self._with_room(fit.engines, request))
            return Choice(None, True, elsewhere, barred, fit=fit)
        return self._pick(request, scored, fit)

    def _pick(
        self, request: Request, scored: Sequence[tuple[Duration, Engine]], fit: Fit | None
    ) -> Choice:
        if len(scored) == 1:
            return Choice(scored[0][1], scored=tuple(scored), fit=fit)
        spread = self._pool.spread.fresh(self._state.now, self.usable)
        engine = self._state.policies.picker.pick(scored, request, spread)
        return Choice(engine, scored=tuple(scored), fit=fit)

    def waits_for(self, request: Request) -> list[Engine]:
        """The engines that would take it, had they room; none, where one has."""
        engines = self._by_role(request, self._fit_of(request))
        return [] if self._with_room(engines, request) else engines

    def room(self) -> int:
        """Inputs that may be sent now, over all engines."""
        return sum(self._room.values())

    @property
    def may_have_room(self) -> bool:
        """Whether any engine has; of a large pool that is not known."""
        return not self._room or any(room > 0 for room in self._room.values())

    def took(self, engine: Engine) -> None:
        """The engine was sent a request: its room and its scores are others now."""
        if not self._room:
            return
        room = self._room[engine] = room_of(self._state, engine)
        for known in self._scores.values():
            known.pop(engine, None)
        for ranked in self._ranked.values():
            if room > 0 and len(ranked.engines) == 1:
                continue  # whatever it scores, there is no other
            if engine in ranked.engines:
                place = ranked.engines.index(engine)
                ranked.only = None
                if room > 0:
                    ranked.scored[place] = self._score(ranked.example, [engine])[0]
                else:
                    del ranked.engines[place], ranked.scored[place]

    def _rank(self, request: Request, fit: Fit) -> _Ranked:
        """Scores of all that fit and have room, for a request of one input that only needs that."""
        key = (fit.key, self._state.policies.scorer.concerns(request))
        ranked = self._ranked.get(key)
        if ranked is None:
            ranked = self._ranked[key] = _Ranked(request)
            ranked.engines = [e for e in fit.engines if self._room[e] > 0]
            ranked.scored = self._score(request, ranked.engines)
        return ranked

    def _drawn(self, request: Request, openings: Openings) -> Choice | None:
        """Of a large pool: a few at random, and where its prefix may be known. None: ask all."""
        state = self._state

        def answer(engine: Engine) -> bool | None:
            room = room_of(state, engine)
            if room <= 0:
                return None
            if room < min(request.inputs, engine.spec.slots) or not self._takes(engine, request):
                return False
            return not any(f.why_not(request, engine) for f in state.policies.filters)

        subject = (request.rid, len(request.attempts), "placement")
        found = openings.draw(hash64(state.settings.seed, *subject), answer)
        if found and request.affinity_key:
            found = self._near(request, openings, found, answer)
        if not found:
            if openings.engines or self._may_use_backup(request):
                return None
            backups = self._pool.has_backups
            return Choice(None, True, room_elsewhere=backups, barred=backups)
        scorer, now = state.policies.scorer, state.now
        scored = [(scorer.estimate(request, e, now), e) for e in found]
        choice = self._pick(request, scored, None)
        if request.affinity_key and choice.engine is not None:
            self._pool.remember(request.affinity_key, choice.engine)
        return choice

    def _near(
        self,
        request: Request,
        openings: Openings,
        found: list[Engine],
        answer: Callable[[Engine], bool | None],
    ) -> list[Engine]:
        """With the engine that served its key last. Before there is one, the engine at the key's
        place on the ring alone, so that a restarted scheduler finds the prefix again; one that is
        loaded beyond the bound is passed over for the next on the ring.
        """
        home = self._pool.homes.get(request.affinity_key)
        if home is not None and home in self._pool.members and answer(home):
            return found if home in found else [*found, home]
        spread = self._pool.spread.fresh(self._state.now, self.usable)
        bound = math.ceil(RING_BOUND * (spread.total + 1) / len(self.usable))
        place = hash64(self._state.settings.seed, request.affinity_key, "key")
        for engine in islice(openings.from_place(place), RING_STEPS):
            if engine.in_flight_inputs < bound and answer(engine):
                if home is None:
                    return [engine]
                return found if engine in found else [*found, engine]
        return found

    def _may_use_backup(self, request: Request) -> bool:
        """Whether the pool has backups that might take it though no primary has room."""
        return self._pool.has_backups and (request.deadline < NEVER or bool(request.attempts))

    def _takes(self, engine: Engine, request: Request) -> bool:
        """Whether its tokens and its prompt are within what the engine takes now."""
        if not engine.takes_tokens_of(request):
            return False
        if engine.prefill_until <= self._state.now:
            return True
        fresh = profile.uncached(engine, request.prompt, request.affinity_key)
        if profile.takes_prompt(engine, self._pool.model, fresh, self._state.now):
            return True
        taken = profile.prefill_time(engine.models[self._pool.model], fresh)
        at = engine.prefill_until - max(0, profile.PREFILL_LIMIT - taken)
        if engine.prefill_wake <= self._state.now or at < engine.prefill_wake:
            engine.prefill_wake = at
            self._state.timers.set(("prefill", engine.node.node_id), at)
        return False

    def _with_room(self, engines: list[Engine], request: Request) -> list[Engine]:
        """Those with room for what it costs there: its inputs, up to the slots, and its tokens."""
        room, inputs = self._room, request.inputs
        return [
            e
            for e in engines
            if (room[e] >= inputs or room[e] >= e.spec.slots) and self._takes(e, request)
        ]

    def _fit_of(self, request: Request) -> Fit:
        key = tuple([concerns(request) for concerns in self._concerns])
        fit = self._fits.get(key)
        if fit is None:
            fit = self._fits[key] = self._fitting(request, key)
        return fit

    def _fitting(self, request: Request, key: tuple[Hashable, ...]) -> Fit:
        """Engines that pass every filter; where there are none, those that only `tried` excludes:
        it failed everywhere, and a second try there is better than none.
        """
        words = {e: objections(self._state, request, e) for e in self.usable}
        fit = [e for e in self.usable if not words[e]]
        if not fit and not _untried_returns(self._state, request):
            fit = [e for e in self.usable if words[e] == ["tried"]]
        return Fit(key, fit, [e for e in fit if not e.node.backup], words)

    def _by_role(self, request: Request, fit: Fit) -> list[Engine]:
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
    node, spec = engine.node, engine.spec
    if engine.blocked_until > state.now or node.trust.kept:
        return 0
    if node.trust.on_probation and health.tried_enough(node):
        return 0
    if engine.open_batches and spec.mode is EngineMode.STATIC and engine.held_inputs():
        lanes = max(1, (spec.slots + spec.look_ahead) // engine.max_batch)
        if len(engine.open_batches) >= lanes:
            return 0
    room = engine.free_inputs()
    if node.trust.warm_until > state.now:
        warm = health.slots_of(state, node, spec.slots)
        room = min(room, warm + spec.look_ahead - engine.in_flight_inputs)
    if engine.slots_limit:
        room = min(room, engine.slots_limit + spec.look_ahead - engine.in_flight_inputs)
    return max(0, room)


def fits_somewhere(state: State, request: Request) -> bool:
    """Whether some live engine of its pool could take it, in service or not, tried or not."""
    engines = state.pools[request.served_model].engines
    return any(objections(state, request, e) in ([], ["tried"]) for e in engines)


def _untried_returns(state: State, request: Request) -> bool:
    """Whether a node that has not failed it and could take it may be back in a moment."""
    return any(
        e.node.health is NodeHealth.SUSPECT
        and e.node.availability is NodeAvailability.ACTIVE
        and not objections(state, request, e)
        for e in state.pools[request.served_model].engines
    )


def objections(state: State, request: Request, engine: Engine) -> list[str]:
    """What the filters say against it."""
    return [w for f in state.policies.filters if (w := f.why_not(request, engine))]
