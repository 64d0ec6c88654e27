"""How much may one engine hold, who holds it, and how much may the scheduler still send?

Credit is a running total per session. With C = slots + look-ahead, H = what is held now and
S = what the scheduler charged in this session, the total is C - H + S. So what may still come,
total - S, is C - H: exactly the free room.

    receive:  H + c, S + c     the total stays
    finish:   H - c            the total grows by c, at once
    refuse:   S + c            the total grows by c: a refused item took no room
    adopted:  in H, not in S   the first total leaves out the room it holds

A total never falls, so after slots shrink the scheduler may send too much once; that is refused.
An item leaves the room when the ENGINE is through with it, not when its result is decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.core.items import Held, Item

# Ends in one moment from which on credit leaves ahead of their results. With fewer, a message more
# costs the scheduler more than the engine gains.
MANY_ENDS = 8


@dataclass(slots=True, frozen=True, kw_only=True)
class EngineSpec:
    """What the core knows of an engine."""

    engine_id: str
    slots: int  # inputs that run at once, from 1
    look_ahead: int = 0  # inputs held beyond the slots
    max_batch_size: int = 0  # inputs of an atomic batch; 0: as slots
    static: bool = False  # batches start and end together: slots // max_batch_size of them at once
    token_capacity: int | None = None  # None: tokens are not limited


@dataclass(slots=True, eq=False)
class Group:
    """Items that go to the engine together."""

    members: list[Held]
    atomic: bool

    @property
    def inputs(self) -> int:
        """Their charge."""
        return sum(held.item.inputs for held in self.members)


class EngineSlots:
    """The room of one engine."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.serving = False
        self.limit = 0  # slots set by the scheduler; 0: none
        self.waiting: deque[Group] = deque()
        self.inside: dict[int, Item] = {}  # dispatch id -> item, until the engine is through
        self.freed: dict[int, Item] = {}  # their slots are free, their results follow
        self.batches: list[set[int]] = []  # of those, what is left of each atomic batch
        self.held_inputs = 0  # waiting and inside
        self.held_tokens = 0
        self.inside_inputs = 0
        self.charged_inputs = 0  # in this session
        self.charged_tokens = 0
        self.granted_inputs = 0  # last total of this session
        self.granted_tokens = 0
        self.capacity_peak = 0  # largest capacity in this session, for the invariants

    @property
    def slots(self) -> int:
        """Inputs that may run at once now."""
        return min(self.spec.slots, self.limit) if self.limit else self.spec.slots

    @property
    def capacity(self) -> int:
        """Inputs that may be held now."""
        return self.slots + self.spec.look_ahead

    @property
    def _largest_batch(self) -> int:
        return min(self.slots, self.spec.max_batch_size or self.slots)

    @property
    def _batches_at_once(self) -> int:
        return max(1, self.slots // self._largest_batch)

    @property
    def is_hungry(self) -> bool:
        """Whether the engine can do nothing until another batch is sent."""
        return self.spec.static and not self.held_inputs

    def begin_session(self) -> None:
        """Start the totals anew; what is held stays."""
        self.charged_inputs = self.charged_tokens = 0
        self.granted_inputs = self.granted_tokens = 0
        self.capacity_peak = 0

    def charge(self, item: Item) -> None:
        """Count what the scheduler says that it spent, kept or refused."""
        self.charged_inputs += item.inputs
        self.charged_tokens += item.tokens

    def has_room(self, item: Item) -> bool:
        """Whether the item fits beside what is held. Tokens alone never refuse the only item."""
        if self.held_inputs + item.inputs > self.capacity:
            return False
        limit = self.spec.token_capacity
        return limit is None or not self.held_inputs or self.held_tokens + item.tokens <= limit

    def reserve(self, item: Item) -> None:
        """Take room for an item that will wait in line."""
        self.held_inputs += item.inputs
        self.held_tokens += item.tokens

    def wait(self, members: list[Held], *, atomic: bool) -> None:
        """Put items that have room in line: an atomic batch in groups that fit the engine."""
        if not atomic:
            self.waiting.extend(Group([held], atomic=False) for held in members)
            return
        largest = self._largest_batch
        group, inputs = Group([], atomic=True), 0
        for held in members:
            if group.members and inputs + held.item.inputs > largest:
                self.waiting.append(group)
                group, inputs = Group([], atomic=True), 0
            group.members.append(held)
            inputs += held.item.inputs
        if group.members:
            self.waiting.append(group)

    def start(self) -> list[Group]:
        """Move to the engine what fits its slots now, in line. Too large a group runs alone."""
        started: list[Group] = []
        while self.waiting and self._fits(self.waiting[0]):
            group = self.waiting.popleft()
            for held in group.members:
                self.inside[held.item.dispatch_id] = held.item
            if group.atomic:
                self.batches.append({held.item.dispatch_id for held in group.members})
            self.inside_inputs += group.inputs
            started.append(group)
        return started

    def _fits(self, group: Group) -> bool:
        if not self.inside_inputs:
            return True
        if group.atomic and self.spec.static and len(self.batches) >= self._batches_at_once:
            return False
        return self.inside_inputs + group.inputs <= self.slots

    def leave_line(self, held: Held) -> None:
        """Take a waiting item out of the line."""
        for group in self.waiting:
            if held in group.members:
                group.members.remove(held)
                if not group.members:
                    self.waiting.remove(group)
                self._give_back(held.item)
                return

    def free(self, dispatch_ids: Sequence[int]) -> None:
        """The engine is through with these; what it says of each comes later."""
        for dispatch_id in dispatch_ids:
            item = self.inside.pop(dispatch_id, None)
            if item is not None:
                self.freed[dispatch_id] = item
                self.inside_inputs -= item.inputs
                self._give_back(item)
        self._leave_batches(dispatch_ids)

    def finish(self, dispatch_id: int) -> bool:
        """The engine said what became of it. False: it did not have it."""
        item = self.inside.pop(dispatch_id, None)
        if item is None:
            return self.freed.pop(dispatch_id, None) is not None
        self.inside_inputs -= item.inputs
        self._give_back(item)
        if self.batches:
            self._leave_batches((dispatch_id,))
        return True

    def _leave_batches(self, dispatch_ids: Sequence[int]) -> None:
        for batch in self.batches:
            batch.difference_update(dispatch_ids)
        self.batches = [batch for batch in self.batches if batch]

    def _give_back(self, item: Item) -> None:
        self.held_inputs -= item.inputs
        self.held_tokens -= item.tokens

    def grant(self) -> bool:
        """Raise the totals to the room there is. False: nothing changed."""
        if not self.serving:
            return False
        self.capacity_peak = max(self.capacity_peak, self.capacity)
        inputs = self.capacity - self.held_inputs + self.charged_inputs
        tokens = (self.spec.token_capacity or 0) - self.held_tokens + self.charged_tokens
        grew = inputs > self.granted_inputs
        self.granted_inputs = max(self.granted_inputs, inputs)
        if self.spec.token_capacity is not None and tokens > self.granted_tokens:
            self.granted_tokens = tokens
            grew = True
        return grew
