"""Did the scheduler keep its promises? Accounts kept outside the code under test.

`Accounts` sees only what callers and nodes see: submissions, commands, text, outcomes, what nodes
hold. It keeps its own books and raises `Broken` at the first promise that does not hold:

- every request that was submitted has one outcome, never two, and at the end none is missing;
- nothing is dispatched after its outcome or its deadline, no id twice, no batch above its limit;
- no node holds more than its slots and look-ahead;
- fences hold: a success names an attempt that was dispatched for this request and was answered by
  its own node, and the text that a caller got is one legal text: each attempt writes its own stamp,
  goes on exactly where it was told to, and a success has all of it.

`Floor` keeps its own queue and holds the exported bound on starting against it, `Fairness` the
bound on how far two tenants that both wait are apart, `Steadiness` the time from a step up to a
step down of scaling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from scheduler_service.core import commands as cmd
from scheduler_service.core import records
from scheduler_service.core.outcomes import Outcome, RequestClass
from scheduler_service.core.records import Record
from scheduler_service.core.types import SECOND, Attempt, Batch, Duration, Instant, Request
from simulator.agent_node import stamp
from simulator.edge import UNIT
from simulator.engines.interface import Work
from simulator.watchers import Watcher

if TYPE_CHECKING:
    from simulator.world import World


class Broken(AssertionError):
    """A promise that was not kept, and when."""


def _hold(condition: bool, now: Instant, message: str) -> None:
    if not condition:
        raise Broken(f"at {now / SECOND:.6f} s: {message}")


class Story:
    """What became of one request, as its caller and the nodes saw it."""

    __slots__ = ("dispatched", "outcome", "output_id", "position", "request", "speaker")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.outcome: Outcome | None = None
        self.dispatched: dict[int, int] = {}  # dispatch id: offset at which it was to go on
        self.output_id = 0
        self.position = 0  # bytes of the present output
        self.speaker = 0


class Accounts(Watcher):
    """One outcome each, capacity, fences."""

    def __init__(self) -> None:
        self.stories: dict[int, Story] = {}
        self.holding: dict[str, int] = {}  # inputs by node
        self.delivered = 0  # bytes of text
        self._ids: dict[int, None] = {}  # all dispatch ids ever

    def on_submitted(self, now: Instant, requests: Sequence[Request]) -> None:
        """A new story each."""
        for request in requests:
            _hold(request.rid not in self.stories, now, f"{request.request_id} came twice")
            self.stories[request.rid] = Story(request)

    def on_commanded(self, now: Instant, commands: Sequence[cmd.Command]) -> None:
        """In the order in which they are carried out."""
        for command in commands:
            if isinstance(command, cmd.DispatchBatch):
                self._dispatch(now, command.batch)
            elif isinstance(command, cmd.FinishRequest):
                self._finish(now, command)

    def _dispatch(self, now: Instant, batch: Batch) -> None:
        inputs = 0
        for attempt in batch.attempts:
            request = attempt.request
            name = f"{request.request_id}, attempt {attempt.number}"
            story = self.stories[request.rid]
            _hold(story.outcome is None, now, f"{name} was sent after its outcome")
            _hold(request.deadline > now, now, f"{name} was sent after its deadline")
            _hold(attempt.dispatch_id not in self._ids, now, f"{name} has a used dispatch id")
            self._ids[attempt.dispatch_id] = None
            start = 0
            if request.continuing and request.output is not None:
                start = sum(end for _, _, end in request.output.positions())
                _hold(start == story.position, now, f"{name} is to go on at a wrong place")
            story.dispatched[attempt.dispatch_id] = start
            inputs += attempt.inputs
        _hold(bool(batch.attempts), now, f"{batch.batch_id} is empty")
        limit = batch.engine.spec.max_batch_size or batch.engine.spec.slots
        _hold(not batch.atomic or inputs <= limit, now, f"{batch.batch_id} is too large")

    def _finish(self, now: Instant, command: cmd.FinishRequest) -> None:
        request, name = command.request, command.request.request_id
        story = self.stories.get(request.rid)
        if story is None:
            raise Broken(f"at {now / SECOND:.6f} s: {name} was never submitted and has an outcome")
        _hold(story.outcome is None, now, f"{name} has two outcomes")
        story.outcome = command.outcome
        if command.outcome is not Outcome.SUCCEEDED:
            return
        attempt = command.attempt
        _hold(attempt is not None, now, f"{name} succeeded by itself")
        assert attempt is not None
        sent = attempt.dispatch_id in story.dispatched
        _hold(sent, now, f"{name} succeeded by an attempt that was never sent")
        told = command.payload
        answer = told.dispatch_id if isinstance(told, Work) else told
        _hold(answer == attempt.dispatch_id, now, f"{name} got another attempt's result")
        if request.stream:
            whole = request.context.arrival.output_tokens * UNIT
            _hold(story.position == whole, now, f"{name} got {story.position} of {whole} bytes")
            silent = story.dispatched[attempt.dispatch_id] == whole
            spoke = story.speaker == attempt.dispatch_id or silent
            _hold(spoke, now, f"{name}: another attempt spoke last")

    def on_delivered(
        self, now: Instant, attempt: Attempt, output_id: int, offset: int, text: str
    ) -> None:
        """The next piece of a legal text."""
        story, name = self.stories[attempt.request.rid], attempt.request.request_id
        dispatch_id = attempt.dispatch_id
        _hold(story.outcome is None, now, f"{name} got text after its outcome")
        if story.output_id != output_id:
            story.output_id, story.position, story.speaker = output_id, 0, 0
        _hold(offset == story.position, now, f"{name}: text at {offset}, not {story.position}")
        if story.speaker != dispatch_id:
            start = story.dispatched.get(dispatch_id)
            _hold(start == offset, now, f"{name}: attempt {attempt.number} cuts in at {offset}")
            legal = not offset or attempt.request.context.arrival.continuable
            _hold(legal, now, f"{name} must not be continued, and was at {offset}")
            story.speaker = dispatch_id
        pattern = stamp(dispatch_id)
        shift = offset % UNIT
        expected = (pattern * (len(text) // UNIT + 2))[shift : shift + len(text)]
        _hold(text == expected, now, f"{name}: text of another attempt at {offset}")
        story.position += len(text)
        self.delivered += len(text)

    def on_held(self, now: Instant, node_id: str, inputs: int, capacity: int) -> None:
        """Never more than there is room for."""
        self.holding[node_id] = inputs
        _hold(0 <= inputs <= capacity, now, f"{node_id} holds {inputs} of {capacity}")

    def close(self, world: World) -> None:
        """All is over: nobody waits, nothing is held anywhere.

        Raises:
            Broken: something is left.
        """
        missing = [s.request.request_id for s in self.stories.values() if s.outcome is None]
        _hold(not missing, world.now, f"no outcome for {', '.join(missing[:10])}")
        held = {node_id: inputs for node_id, inputs in self.holding.items() if inputs}
        _hold(not held, world.now, f"nodes still hold {held}")
        state = world.scheduler.state
        left = sum(len(pool.queue) for pool in state.pools.values())
        left += len(state.requests) + len(state.relay.lanes)
        left += sum(len(node.in_flight) for node in state.nodes.values())
        _hold(left == 0, world.now, f"the core still has {left} things of requests that are over")


class Floor(Watcher):
    """The bound on starting: with m older requests waiting in its pool, a request starts within
    every * (m + 1) dispatches of it, twice that where jobs wait too.

    For pools whose requests any node takes: one that cannot be placed has no turn to wait for.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.closest = 0.0  # the largest share of its bound that any request used
        self._waiting: dict[str, dict[int, int]] = {}  # by pool and rid: place
        self._dispatches: dict[str, int] = {}
        self._entered: dict[int, tuple[int, int]] = {}  # rid: (dispatches then, older ones)
        self._classes: dict[RequestClass, None] = {}

    def on_recorded(self, now: Instant, taken: Sequence[Record]) -> None:
        """Of one step: all that came, then all that went."""
        sent: list[Attempt] = []
        for record in taken:
            request, batch = record.request, record.batch
            if record.kind == records.SUBMIT and request is not None:
                self._enter(request)
            elif record.kind == records.DISPATCH_BATCH and batch is not None:
                sent += batch.attempts
            elif record.kind == records.FINISHED and request is not None:
                self._waiting.get(request.served_model, {}).pop(request.rid, None)
                self._entered.pop(request.rid, None)
        for attempt in sorted(sent, key=lambda a: a.dispatch_id):
            self._go(now, attempt)

    def _enter(self, request: Request) -> None:
        pool = self._waiting.setdefault(request.served_model, {})
        older = len(pool)
        pool[request.rid] = request.place
        self._entered[request.rid] = self._dispatches.get(request.served_model, 0), older
        self._classes[request.request_class] = None

    def _go(self, now: Instant, attempt: Attempt) -> None:
        model, rid = attempt.model, attempt.request.rid
        if attempt.chosen_by in ("apart", "hedge"):
            return  # it takes nobody's turn
        count = self._dispatches[model] = self._dispatches.get(model, 0) + 1
        self._waiting.get(model, {}).pop(rid, None)
        entered = self._entered.pop(rid, None)
        if entered is None:
            return  # a second attempt: it has started already
        dispatches = count - entered[0]
        bound = self.every * (entered[1] + 1) * (2 if len(self._classes) > 1 else 1)
        self.closest = max(self.closest, dispatches / bound)
        name = attempt.request.request_id
        _hold(dispatches <= bound, now, f"{name} started after {dispatches}, not {bound}")


class Fairness(Watcher):
    """The bound on unfairness: for two tenants of one pool that both have requests waiting all the
    time, what was dispatched for them, in cost over weight, differs over any stretch of that time
    by at most 2 * window + the largest cost over weight of each.

    Costs are counted here: prompt plus twice the output, as the scheduler was told. For runs of one
    priority, without floor, whose predictions are exact.
    """

    def __init__(self, window: int, weights: Mapping[str, float] | None = None) -> None:
        self.window = window
        self.weights = dict(weights or {})
        self.closest = 0.0  # the largest share of its bound that any two used
        self.served: dict[str, float] = {}  # cost over weight, by tenant
        self._waiting: dict[str, dict[int, None]] = {}  # rids by tenant
        self._largest: dict[str, float] = {}  # cost over weight
        # By two tenants with requests waiting: the least and the most by which the first was ahead
        # since both have been waiting.
        self._ahead: dict[tuple[str, str], tuple[float, float]] = {}

    def on_recorded(self, now: Instant, taken: Sequence[Record]) -> None:
        """Of one step: all that came, then all that went."""
        sent: list[Attempt] = []
        for record in taken:
            if record.kind == records.SUBMIT and record.request is not None:
                self._enter(record.request)
            elif record.kind == records.DISPATCH_BATCH and record.batch is not None:
                sent += record.batch.attempts
            elif record.kind == records.FINISHED and record.request is not None:
                self._leave(record.request)
        for attempt in sorted(sent, key=lambda a: a.dispatch_id):
            if attempt.number == 1:
                self._serve(now, attempt.request)

    def _enter(self, request: Request) -> None:
        tenant = request.tenant
        waiting = self._waiting.setdefault(tenant, {})
        if not waiting:
            for other, theirs in self._waiting.items():
                if other != tenant and theirs:
                    pair = (min(tenant, other), max(tenant, other))
                    ahead = self.served.get(pair[0], 0.0) - self.served.get(pair[1], 0.0)
                    self._ahead[pair] = ahead, ahead
        waiting[request.rid] = None
        cost = self._cost(request)
        self._largest[tenant] = max(self._largest.get(tenant, 0.0), cost)

    def _cost(self, request: Request) -> float:
        cost = request.prompt_tokens + 2 * request.output_tokens
        return cost / self.weights.get(request.tenant, 1.0)

    def _serve(self, now: Instant, request: Request) -> None:
        tenant = request.tenant
        self.served[tenant] = self.served.get(tenant, 0.0) + self._cost(request)
        for pair, (least, most) in self._ahead.items():
            if tenant in pair:
                ahead = self.served.get(pair[0], 0.0) - self.served.get(pair[1], 0.0)
                self._ahead[pair] = min(least, ahead), max(most, ahead)
                self._judge(now, pair)
        self._leave(request)

    def _judge(self, now: Instant, pair: tuple[str, str]) -> None:
        least, most = self._ahead[pair]
        bound = 2 * self.window + sum(self._largest[tenant] for tenant in pair)
        self.closest = max(self.closest, (most - least) / bound)
        names = " and ".join(pair)
        _hold(most - least <= bound, now, f"{names} are {most - least:.0f} apart, not {bound:.0f}")

    def _leave(self, request: Request) -> None:
        tenant = request.tenant
        waiting = self._waiting.get(tenant, {})
        waiting.pop(request.rid, None)
        if not waiting:
            for pair in [p for p in self._ahead if tenant in p]:
                del self._ahead[pair]


class Steadiness(Watcher):
    """Scaling turns from more nodes to fewer only after `hold`, as the law promises."""

    def __init__(self, hold: Duration) -> None:
        self.hold = hold
        self.outs = 0
        self.ins = 0
        self._out_at: dict[str, Instant] = {}  # by pool

    def on_recorded(self, now: Instant, taken: Sequence[Record]) -> None:
        """Look for steps of scaling."""
        for record in taken:
            if record.kind == records.SCALE_OUT:
                self.outs += 1
                self._out_at[record.pool] = now
            elif record.kind == records.SCALE_IN:
                self.ins += 1
                since = now - self._out_at.get(record.pool, -self.hold)
                wanted = f"{self.hold / SECOND:.0f} s"
                _hold(
                    since >= self.hold, now, f"down {since / SECOND:.0f} s after up, not {wanted}"
                )
