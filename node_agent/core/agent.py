"""What does the agent owe the scheduler and its engines after these events?

Theory of operation. A session is CLOSED, GREETING (Hello sent, Welcome awaited) or OPEN. Items live
through sessions: their engines run on while no session is there, their results and output are kept.
A Hello hands everything back; the Welcome says what to abandon and where output goes on; then all
kept results are sent again, in the order in which they came about.

The end of an item is decided once. If the engine has it, the engine is told to stop, and the result
waits for the engine's word (usage, what there is of the output), but no longer than
`Limits.cancel_grace_ns`. The engine's room is given back only when the engine is through.

`step` applies all events, then decides once: expiries, what starts, credits, the end of a drain,
models that may go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.core.closings import Closings
from node_agent.core.items import TERM_SHIFT, Held, Item, ItemState, Outcome, OutcomeKind
from node_agent.core.outputs import OutputBook
from node_agent.core.slots import EngineSlots, EngineSpec, Group
from node_agent.core.state import Counters, DrainState, Ledger, Limits, Phase
from node_agent.core.timers import Timers


class Agent:
    """The agent's state machine. Not thread-safe: one driver turns it."""

    def __init__(self, engines: Sequence[EngineSpec], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.engines = {spec.engine_id: EngineSlots(spec) for spec in engines}
        self.items: dict[int, Held] = {}  # without those that are acknowledged or abandoned
        self.outputs = OutputBook()
        self.counters = Counters()
        self.phase = Phase.CLOSED
        self.cluster_id = ""
        self.term = 0
        self.session_epoch = 0
        self.items_received = 0
        self.drain: DrainState | None = None
        self.closings = Closings()
        self._terms: dict[str, int] = {}  # cluster id -> highest term seen
        self._finished: dict[int, None] = {}  # ids with an outcome, in order
        self._sent: deque[int] = deque()  # ids whose results this session was sent, unacknowledged
        self._acked = 0
        self._credit_due = False
        self._timers = Timers()
        self._now = 0
        self._out: list[cmd.Command] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.SessionOpened: self._on_session_opened,
            ev.Welcomed: self._on_welcomed,
            ev.SessionClosed: self._on_session_closed,
            ev.BatchReceived: self._on_batch,
            ev.CancelsReceived: self._on_cancels,
            ev.ResultsAcked: self._on_acked,
            ev.EngineRunning: self._on_running,
            ev.EngineFreed: self._on_freed,
            ev.EngineFinished: self._on_finished,
            ev.EngineChanged: self._on_engine_changed,
            ev.SlotsLimited: self._on_slots_limited,
            ev.DrainRequested: self._on_drain,
            ev.DrainLifted: self._on_drain_lifted,
            ev.ModelClosed: self._on_model_closed,
            ev.ModelReopened: self._on_model_reopened,
        }

    # What a driver calls.

    def step(self, now_ns: int, events: Sequence[ev.Event] = ()) -> list[cmd.Command]:
        """Apply all events, then decide once. Returns what to do, in order."""
        self._now = now_ns
        self._out = []
        for event in events:
            self._handlers[type(event)](event)
        self._expire()
        self._start()
        self._grant()
        self._end_drain()
        if self.closings:
            self._drop_models()
        self._timers.sweep(self.items)
        return self._out

    def next_wakeup(self) -> int | None:
        """When `step` must be called again at the latest, if nothing happens before."""
        soonest = self._timers.next()
        drain = self.drain
        if drain is not None and not drain.exited:
            soonest = _earliest(soonest, drain.deadline_ns, drain.exit_due_ns)
        return _earliest(soonest, self.closings.next()) if self.closings else soonest

    def output(
        self, now_ns: int, dispatch_id: int, key: tuple[int, int], text: str, tokens: int
    ) -> cmd.SendUpdate | None:
        """Keep a delta of an item, and send it when it can be. The first one has an update."""
        held = self.items.get(dispatch_id)
        if held is None or held.outcome is not None:
            self.counters.late_outputs += 1
            return None
        if not held.item.stream:
            return None
        self.outputs.append(dispatch_id, key, text, tokens)
        if held.first_output_ns is not None or not text:
            return None
        return self._first_output(held, now_ns)

    def output_extra(
        self, now_ns: int, dispatch_id: int, key: tuple[int, int], payload: object
    ) -> cmd.SendUpdate | None:
        """Keep a rare row of an item, and send it when it can be. It may be the first output."""
        held = self.items.get(dispatch_id)
        if held is None or held.outcome is not None:
            self.counters.late_outputs += 1
            return None
        if not held.item.stream:
            return None
        self.outputs.append_extra(dispatch_id, key, payload)
        return None if held.first_output_ns is not None else self._first_output(held, now_ns)

    def _first_output(self, held: Held, now_ns: int) -> cmd.SendUpdate | None:
        held.first_output_ns = now_ns
        held.state = ItemState.FIRST_OUTPUT
        if self.phase is not Phase.OPEN:
            return None
        return cmd.SendUpdate(held.item.dispatch_id, held.state, now_ns - held.received_ns)

    def ledger(self) -> Ledger:
        """What is held without a result now."""
        ledger = Ledger(self.items_received, {}, {})
        for engine_id, slots in self.engines.items():
            unanswered = (*slots.freed, *slots.inside)
            ledger.running[engine_id] = [i for i in unanswered if self._is_live(i)]
            ledger.waiting[engine_id] = [
                held.item.dispatch_id for group in slots.waiting for held in group.members
            ]
        return ledger

    @property
    def live_items(self) -> int:
        """Items without an outcome."""
        return len(self.items) - len(self._finished)

    @property
    def finished_ids(self) -> list[int]:
        """Items with a result that is not acknowledged, in the order they ended."""
        return list(self._finished)

    @property
    def unacknowledged_ids(self) -> list[int]:
        """Items whose results this session was sent, in order."""
        return list(self._sent)

    def _is_live(self, dispatch_id: int) -> bool:
        held = self.items.get(dispatch_id)
        return held is not None and held.outcome is None

    # The session.

    def _on_session_opened(self, _event: ev.SessionOpened) -> None:
        self.phase = Phase.GREETING
        items = [cmd.HandBack(h, self.outputs.offsets(i)) for i, h in self.items.items()]
        term = self._terms.get(self.cluster_id, 0)
        self._out.append(cmd.SendHello(self.cluster_id, term, items))

    def _on_welcomed(self, event: ev.Welcomed) -> None:
        highest = self._terms.get(event.cluster_id, 0)
        if event.term < highest:
            self.phase = Phase.CLOSED
            text = f"the scheduler's term is {event.term}, but term {highest} has been seen"
            self._out.append(cmd.RefuseSession("STALE_TERM", text))
            return
        # Dispatch ids are unique within a cluster only: another one's work is of no use here.
        foreign = bool(self.cluster_id) and event.cluster_id != self.cluster_id
        another = event.term != self.term
        self._remember(event.cluster_id, event.term)
        self.session_epoch = event.session_epoch
        self.phase = Phase.OPEN
        for dispatch_id in list(self.items) if foreign else event.abandoned:
            self._abandon(dispatch_id)
        self._begin_totals()
        for dispatch_id in self.items:
            self.outputs.rewind(dispatch_id, event.resume_points.get(dispatch_id, {}))
        for dispatch_id in self._finished:
            self._send_result(self.items[dispatch_id])
        self._out.append(cmd.SendReport())
        drain = self.drain
        if drain is not None and (drain.own or (drain.terminate and another)):
            self._send_drain(drain)

    def _remember(self, cluster_id: str, term: int) -> None:
        self.cluster_id, self.term = cluster_id, term
        self._terms.pop(cluster_id, None)
        self._terms[cluster_id] = term
        if len(self._terms) > self.limits.clusters:
            del self._terms[next(iter(self._terms))]

    def _begin_totals(self) -> None:
        self.items_received = 0
        self._sent.clear()
        self._acked = 0
        self._credit_due = True
        for slots in self.engines.values():
            slots.begin_session()

    def _on_session_closed(self, _event: ev.SessionClosed) -> None:
        self.phase = Phase.CLOSED
        self._sent.clear()

    def _on_acked(self, event: ev.ResultsAcked) -> None:
        while self._acked < event.total and self._sent:
            self._acked += 1
            self._forget(self._sent.popleft())
        if event.total > self._acked:
            self.counters.acks_beyond_sent += 1

    # Work.

    def _on_batch(self, event: ev.BatchReceived) -> None:
        if self.phase is not Phase.OPEN:
            self.counters.batches_without_session += 1
            return
        if self.drain is not None and not self.drain.terminate:
            self.drain = None
        slots = self.engines.get(event.engine_id)
        kept: list[Held] = []
        for item in event.items:
            self.items_received += 1
            if slots is not None:
                slots.charge(item)
            if self._is_unusable(item):
                continue
            held = self._hold(item, event.engine_id)
            outcome = self._why_not(item, slots)
            if outcome is not None:
                self._settle(held, outcome)
            elif slots is not None:
                slots.reserve(item)
                kept.append(held)
        if slots is not None and kept:
            slots.wait(kept, atomic=event.atomic)

    def _is_unusable(self, item: Item) -> bool:
        """An item that cannot even be answered, or is answered already."""
        if not item.dispatch_id:
            self.counters.items_without_id += 1
            return True
        if item.dispatch_id in self.items:
            self.counters.items_repeated += 1
            return True
        return False

    def _hold(self, item: Item, engine_id: str) -> Held:
        held = Held(item=item, engine_id=engine_id, received_ns=self._now)
        self.items[item.dispatch_id] = held
        if item.stream:
            self.outputs.open(item.dispatch_id, item.starts)
        if item.remaining_ns is not None:
            self._timers.add(self._now + item.remaining_ns, item.dispatch_id)
        return held

    def _why_not(self, item: Item, slots: EngineSlots | None) -> Outcome | None:
        """Why this item cannot be kept. None: it can."""
        if item.fault is not None:
            fault = item.fault
            return Outcome(OutcomeKind.INVALID, "INVALID_ARGUMENT", fault.message, fault.field)
        if item.dispatch_id >> TERM_SHIFT < self.term:
            return _refusal("STALE_TERM", f"dispatched before term {self.term}")
        if self.drain is not None:
            return _refusal("NODE_DRAINING", "the node takes no new work")
        if slots is None:
            return _refusal("ENGINE_UNAVAILABLE", "the node has no such engine")
        if not slots.serving:
            return _refusal("ENGINE_UNAVAILABLE", "the engine does not serve now")
        if self.closings and (slots.spec.engine_id, item.model) in self.closings:
            return _refusal("NODE_DRAINING", "the model is being unloaded")
        if not slots.has_room(item):
            return _refusal("ENGINE_BUSY", f"the engine holds all that it may ({slots.capacity})")
        if item.remaining_ns is not None and item.remaining_ns <= 0:
            return _expiry()
        return None

    def _on_cancels(self, event: ev.CancelsReceived) -> None:
        for dispatch_id in event.dispatch_ids:
            held = self.items.get(dispatch_id)
            if held is not None:
                text = "stopped by the scheduler"
                self._end(held, Outcome(OutcomeKind.CANCELLED, event.reason, text))

    def _on_running(self, event: ev.EngineRunning) -> None:
        held = self.items.get(event.dispatch_id)
        if held is None or held.outcome is not None or held.running_ns is not None:
            return
        held.running_ns = self._now
        held.batch_size = event.batch_size
        held.state = max(held.state, ItemState.RUNNING)
        self._send_update(held, ItemState.RUNNING)

    def _on_freed(self, event: ev.EngineFreed) -> None:
        slots = self.engines.get(event.engine_id)
        if slots is not None:
            slots.free(event.dispatch_ids)

    def _on_finished(self, event: ev.EngineFinished) -> None:
        slots = self.engines.get(event.engine_id)
        if slots is None or not slots.finish(event.dispatch_id):
            self.counters.late_results += 1
            return
        held = self.items.get(event.dispatch_id)
        if held is None or held.outcome is not None:
            return  # abandoned, or the engine was given up on; now its room is free
        if held.ending is None or event.complete:
            how = "succeeded" if event.complete else "failed"
            self._settle(held, Outcome(OutcomeKind.ENGINE, result=event.result), how)
        else:
            held.ending.result = event.result
            self._settle(held, held.ending)

    # The end of an item.

    def _end(self, held: Held, outcome: Outcome) -> None:
        """Decide the end of an item, once; have the engine stop it if it is there."""
        if held.outcome is not None or held.ending is not None:
            return
        if held.state is ItemState.RECEIVED:
            self.engines[held.engine_id].leave_line(held)
            self._settle(held, outcome)
            return
        held.ending = outcome
        held.ending_due_ns = self._now + self.limits.cancel_grace_ns
        dispatch_id = held.item.dispatch_id
        self._out.append(cmd.CancelItem(held.engine_id, dispatch_id, outcome.reason))
        self._timers.add(held.ending_due_ns, dispatch_id)

    def _settle(self, held: Held, outcome: Outcome, how: str = "") -> None:
        """`how`: in a word; empty: as its kind is called."""
        how, ended = how or outcome.kind.name.lower(), self.counters.ended
        ended[how] = ended.get(how, 0) + 1
        held.outcome = outcome
        held.ending = None
        held.state = ItemState.FINISHED
        held.finished_ns = self._now
        held.item.payload = None
        self._finished[held.item.dispatch_id] = None
        if self.phase is Phase.OPEN:
            self._send_result(held)

    def _abandon(self, dispatch_id: int) -> None:
        held = self.items.get(dispatch_id)
        if held is None:
            return
        if held.state is ItemState.RECEIVED:
            self.engines[held.engine_id].leave_line(held)
        elif held.outcome is None and held.ending is None:
            self._out.append(cmd.CancelItem(held.engine_id, dispatch_id, "REVOKED"))
        self._forget(dispatch_id)

    def _forget(self, dispatch_id: int) -> None:
        self.items.pop(dispatch_id, None)
        self._finished.pop(dispatch_id, None)
        self.outputs.drop(dispatch_id)
        self._out.append(cmd.ForgetItem(dispatch_id))

    def _send_result(self, held: Held) -> None:
        self._sent.append(held.item.dispatch_id)
        self._out.append(cmd.SendResult(held))

    def _send_update(self, held: Held, state: ItemState) -> None:
        if self.phase is Phase.OPEN:
            elapsed_ns = self._now - held.received_ns
            self._out.append(cmd.SendUpdate(held.item.dispatch_id, state, elapsed_ns))

    # Engines.

    def _on_engine_changed(self, event: ev.EngineChanged) -> None:
        slots = self.engines.get(event.spec.engine_id)
        if slots is None:
            slots = self.engines[event.spec.engine_id] = EngineSlots(event.spec)
        slots.spec = event.spec
        slots.serving = event.serving
        if self.phase is Phase.OPEN:
            self._out.append(cmd.SendReport())

    def _on_slots_limited(self, event: ev.SlotsLimited) -> None:
        slots = self.engines.get(event.engine_id)
        if slots is not None:
            slots.limit = event.slots

    def _on_model_closed(self, event: ev.ModelClosed) -> None:
        deadline_ns = None if event.grace_ns is None else self._now + event.grace_ns
        self.closings.close((event.engine_id, event.model), deadline_ns)

    def _on_model_reopened(self, event: ev.ModelReopened) -> None:
        self.closings.reopen((event.engine_id, event.model))

    def _drop_models(self) -> None:
        for engine_id, model in self.closings.drained(self.engines):
            self._out.append(cmd.DropModel(engine_id, model))

    # Draining.

    def _on_drain(self, event: ev.DrainRequested) -> None:
        deadline_ns = None if event.grace_ns is None else self._now + event.grace_ns
        drain = DrainState(event.own, event.own or event.terminate, event.reason, deadline_ns)
        if self.drain is not None:
            drain.add(self.drain)
        self.drain = drain
        for held in list(self.items.values()):
            if held.state is ItemState.RECEIVED:
                self._end(held, _refusal("NODE_DRAINING", "not started before the node drained"))
        if event.own and self.phase is Phase.OPEN:
            self._send_drain(self.drain)

    def _on_drain_lifted(self, _event: ev.DrainLifted) -> None:
        if self.drain is not None and not (self.drain.own or self.drain.exited):
            self.drain = None

    def _send_drain(self, drain: DrainState) -> None:
        left_ns = None if drain.deadline_ns is None else max(0, drain.deadline_ns - self._now)
        self._out.append(cmd.SendDrain(left_ns, drain.reason))

    # What every step decides.

    def _expire(self) -> None:
        for dispatch_id in self._timers.due(self._now):
            held = self.items.get(dispatch_id)
            if held is None or held.outcome is not None:
                continue
            if held.ending is None:
                self._end(held, _expiry())
            elif held.ending_due_ns <= self._now:
                self._settle(held, held.ending)
        drain = self.drain
        if drain is not None and drain.deadline_ns is not None and drain.deadline_ns <= self._now:
            drain.deadline_ns = None
            for held in list(self.items.values()):
                self._end(held, _refusal("NODE_DRAINING", "still running when the drain ended"))
        for key in self.closings.expire(self._now) if self.closings else ():
            for held in list(self.items.values()):
                if (held.engine_id, held.item.model) == key:
                    self._end(held, _refusal("NODE_DRAINING", "its model was unloaded meanwhile"))

    def _start(self) -> None:
        for engine_id, slots in self.engines.items():
            if slots.serving and slots.waiting:
                for group in slots.start():
                    self._submit(engine_id, group)

    def _submit(self, engine_id: str, group: Group) -> None:
        for held in group.members:
            held.state = ItemState.SUBMITTED
            held.submitted_ns = self._now
        items = [held.item for held in group.members]
        self._out.append(cmd.RunItems(engine_id, items, group.atomic))

    def _grant(self) -> None:
        if self.phase is not Phase.OPEN:
            return
        first, self._credit_due = self._credit_due, False
        blocked = self._takes_no_work()
        for engine_id, slots in self.engines.items():
            grew = not blocked and slots.grant()
            if grew or first:
                limited = slots.spec.token_capacity is not None
                tokens = slots.granted_tokens if limited else None
                credit = cmd.SendCredit(engine_id, slots.granted_inputs, tokens, slots.is_hungry)
                self._out.append(credit)

    def _takes_no_work(self) -> bool:
        if self.drain is not None and self.drain.terminate:
            return True
        return len(self._finished) > self.limits.unacked_results

    def _end_drain(self) -> None:
        drain = self.drain
        if drain is None or not drain.terminate or drain.exited or self.live_items:
            return
        if self.items and drain.exit_due_ns is None:
            drain.exit_due_ns = self._now + self.limits.linger_ns
        if not self.items or (drain.exit_due_ns is not None and drain.exit_due_ns <= self._now):
            drain.exited = True
            self._out.append(cmd.Exit())


def _earliest(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _refusal(reason: str, message: str) -> Outcome:
    return Outcome(OutcomeKind.REFUSED, reason, message)


def _expiry() -> Outcome:
    return Outcome(OutcomeKind.EXPIRED, "DEADLINE_EXCEEDED", "the time of the request was up")
