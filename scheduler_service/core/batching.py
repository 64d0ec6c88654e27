"""Which requests share a static batch, and is it time to send it?

A batch never exceeds the engine's maximum (counted in inputs, not requests), never mixes what the
engine needs equal, and holds no cancelled or expired request, for those left the queue at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_service.core import batch_times
from scheduler_service.core.batch_times import BatchTime
from scheduler_service.core.interfaces import BatchView, WaitUntil
from scheduler_service.core.placement import room_of
from scheduler_service.core.queues import Walk
from scheduler_service.core.state import Pool, State
from scheduler_service.core.types import NEVER, Batch, BatchRules, Engine, Instant, Request, Traits

MAX_LOOKS = 4  # requests looked at per place in a batch, where unlike ones lie between
SHORT = 32  # inputs up to this length are alike to the former's own length ratio
_UNKNOWN = Traits()


def new_batch(state: State, engine: Engine, model: str, why: str, *, atomic: bool) -> Batch:
    """An empty batch."""
    inputs_max = engine.max_batch if atomic else 0
    batch = Batch(f"b{state.new_id():x}", engine, model, atomic, why, state.now, inputs_max)
    batch.behind = atomic and engine.held_inputs() > 0
    return batch


def form(state: State, pool: Pool, engine: Engine) -> Batch | WaitUntil:
    """Send a batch of the pool to `engine` now, or wait until when for more to join?"""
    inputs_max = min(engine.max_batch, room_of(state, engine))
    full = len(pool.queue) >= inputs_max
    waiting = [] if full else list(pool.queue)
    estimate = engine.service.get(pool.model) or pool.estimate
    time = batch_times.time_of(engine, pool.model)
    inputs = inputs_max if full else sum(engine.charge_of(r) for r in waiting)
    view = BatchView(
        waiting=inputs,
        inputs_max=inputs_max,
        oldest_at=min((r.queued_at for r in waiting), default=state.now),
        earliest_deadline=min((r.deadline for r in waiting), default=NEVER),
        expected_service=estimate.mean,
        single=time.expect(1),
        whole=time.expect(min(inputs, inputs_max)),
        size_limit=time.size_limit,
        arrivals=pool.arrivals.per_second,
    )
    verdict = state.policies.former.decide(view, state.now)
    if isinstance(verdict, WaitUntil):
        return verdict
    batch = new_batch(state, engine, pool.model, verdict.reason, atomic=True)
    batch.inputs_max = min(batch.inputs_max, verdict.inputs_max or batch.inputs_max)
    batch.reserve, batch.length_ratio = verdict.reserve, verdict.length_ratio
    return batch


def members(state: State, batch: Batch, walk: Walk) -> Iterator[Request]:
    """The requests of the batch, in queue order; the caller takes each from the walk.

    Where the batch keeps deadlines it is the largest prefix of them that ends before the earliest
    of its deadlines; those that could not be met alone do not count.
    When the floor's turn comes within the batch and its request does not fit in, the batch ends
    there, so that the next one begins with it.
    """
    engine = batch.engine
    room = min(batch.inputs_max, room_of(state, engine))
    company: _Company | None = None
    time = engine.batch_times.get(batch.model) if batch.reserve else None
    clock = _Deadlines(state.now, batch.reserve, time) if time is not None else None
    looks = MAX_LOOKS * room
    while room > 0 and looks > 0:
        request = walk.peek()
        if request is None:
            return
        looks -= 1
        inputs = engine.charge_of(request)
        if company is None:  # the head goes, whatever the size limit says
            room = max(room, min(inputs, engine.max_batch, room_of(state, engine)))
            batch.inputs_max = max(batch.inputs_max, room)
        fits = inputs <= room and (company is None or company.suits(request))
        if fits and clock is not None and not clock.takes(request, inputs):
            if clock.over:
                return
            fits = False
        if fits:
            if company is None:
                company = _Company(state, batch, request)
            else:
                company.join(request)
            room -= inputs
            yield request
            if engine.node.trust.on_probation:
                return
        elif walk.floor:
            batch.close_reason = "floor"
            return
        else:
            walk.skip(request)


class _Company:
    """Those in a batch that is being filled, and who can run beside them. What its engine asks
    nothing about costs nothing: it is looked at for each member of each batch.
    """

    __slots__ = (
        "_batch", "_engine", "_first", "_limited", "_longest", "_same", "_shaped", "_shortest",
        "_why_not",
    )  # fmt: skip

    def __init__(self, state: State, batch: Batch, head: Request) -> None:
        rules = batch.engine.spec.rules
        self._batch = batch
        self._engine = batch.engine
        self._why_not = [each.why_not for each in state.policies.filters]
        self._limited = batch.engine.credit_tokens is not None
        self._same = bool(rules.equal)
        self._shaped = bool(rules.max_length_ratio or rules.max_tokens or batch.length_ratio)
        self._first = head
        self._shortest = self._longest = (head.traits or _UNKNOWN).length

    def suits(self, request: Request) -> bool:
        """Whether the engine can take it, and run it beside those that are in."""
        engine = self._engine
        for why_not in self._why_not:
            if why_not(request, engine) is not None:
                return False
        if self._limited and not engine.takes_tokens_of(request):
            return False
        if self._same and not alike(engine.spec.rules, self._first, request):
            return False
        return not self._shaped or self._shape_fits((request.traits or _UNKNOWN).length)

    def join(self, request: Request) -> None:
        """It is in."""
        if self._shaped:
            length = (request.traits or _UNKNOWN).length
            self._shortest = min(self._shortest, length)
            self._longest = max(self._longest, length)

    def _shape_fits(self, length: int) -> bool:
        """Whether padding stays within the limits if one of this length joins."""
        rules, batch = self._engine.spec.rules, self._batch
        shortest, longest = min(self._shortest, length), max(self._longest, length)
        ratio = 0.0 if rules.max_length_ratio or not shortest else batch.length_ratio
        if ratio and longest > ratio * max(SHORT, shortest):
            return False
        if rules.max_length_ratio and longest > rules.max_length_ratio * max(1, shortest):
            return False
        return not rules.max_tokens or longest * (len(batch.attempts) + 1) <= rules.max_tokens


class _Deadlines:
    """The deadlines of a batch that is being filled."""

    __slots__ = ("_earliest", "_inputs", "_now", "_reserve", "_time", "over")

    def __init__(self, now: Instant, reserve: float, time: BatchTime) -> None:
        self._now = now
        self._reserve = reserve
        self._time = time
        self._earliest = NEVER
        self._inputs = 0
        self.over = False  # nobody can join any more

    def takes(self, request: Request, inputs: int) -> bool:
        """Whether it may join without making itself or an earlier one late; if so it is in."""
        if self._inputs and self._ends(self._inputs + inputs) > self._earliest:
            self.over = True
            return False
        if request.deadline < NEVER and self._ends(inputs) <= request.deadline:
            if self._inputs and self._ends(self._inputs + inputs) > request.deadline:
                self.over = True
                return False
            self._earliest = min(self._earliest, request.deadline)
        self._inputs += inputs
        return True

    def _ends(self, inputs: int) -> Instant:
        return self._now + int(self._reserve * self._time.expect(inputs))


def alike(rules: BatchRules, one: Request, other: Request) -> bool:
    """Whether the engine can run both in one batch. Unknown rules allow batches of one only."""
    a, b = one.traits or _UNKNOWN, other.traits or _UNKNOWN
    for name in rules.equal:
        if name == "params":
            same = a.params == b.params
        elif name == "task_type":
            same = one.task_type == other.task_type
        elif name == "input_kind":
            same = a.input_kind == b.input_kind
        elif name == "tensor_shapes":
            same = a.tensor_shapes == b.tensor_shapes
        elif name == "dimensions":
            same = a.dimensions == b.dimensions
        elif name == "stream":
            same = one.stream == other.stream
        else:
            return False
        if not same:
            return False
    return True
