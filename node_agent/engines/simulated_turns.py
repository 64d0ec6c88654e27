"""What happens when, in a simulated engine? Groups wait, start, write their tokens and end.

Theory of operation. Groups wait in arrival order: a batch (static), or one item (continuous).
A group that fits is started: its runs get their times, and each goes into the agenda, a heap by
the time of its next event (a token of a streamed item, or its end). Everything happens in `_turn`,
on one alarm for the earliest event, or at once when something was submitted or cancelled: where
nothing takes time, one turn answers all that was submitted before it. The sink is called from turns
only, never inside `admit` or `cancel`; what it submits waits for the next turn. That counts from
the event that it answers: the alarm is late, an engine is not.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from heapq import heapify, heappop, heappush

from batchyard.v1 import types_pb2
from node_agent.engines.interface import EngineError, Item, Result, Sink
from node_agent.engines.simulated_clock import EngineClock
from node_agent.engines.simulated_directives import Fate
from node_agent.engines.simulated_options import SimulatedOptions
from node_agent.engines.simulated_run import Group, Run

CRASH_EXIT_STATUS = 70


class Turns:
    """All that one engine holds, from `admit` to its end. `start` it before anything else."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self.clock = EngineClock(self._turn, exact=options.mode == "static")
        self.runs: dict[int, Run] = {}  # all that are held, by dispatch id
        self.held_inputs = 0
        self.running_inputs = 0
        self._running_groups = 0
        self._incoming: list[Group] = []
        self._waiting: deque[Group] = deque()
        self._agenda: list[tuple[float, int, Run]] = []
        self._agenda_count = 0
        self._outbox: list[tuple[int, Result]] = []  # ends to report in the next turn
        self._freed_at = 0.0  # when a slot last came back, by the engine's clock
        self._late_s = 0.0  # how late the event is that the present turn lets happen
        self._finished_items = 0
        self.emptied: asyncio.Event | None = None  # to be set when nothing is held any more

    def start(self, sink: Sink) -> None:
        """Bind to the running loop, and to who hears of it."""
        self.clock.start()
        self._sink = sink

    def close(self, why: EngineError) -> None:
        """End all that is held, and do nothing any more."""
        for run in list(self.runs.values()):
            self._end(run, self.clock.now())
            self._report(run, why)
        self.clock.close()
        self._flush()

    def arrival(self) -> float:
        """When what comes now has come: with the event that it answers."""
        return self.clock.now() - self._late_s

    def admit(self, runs: list[Run], atomic: bool) -> None:
        """Take these in, or refuse them; `atomic`: they are one batch."""
        for group in self._groups(runs, atomic):
            self._admit(group)
        self.clock.ring_soon()

    def refuse(self, item: Item, error: EngineError) -> None:
        """Tell in the next turn that it was not started."""
        result = Result(finish_reason=types_pb2.FINISH_REASON_ERROR, error=error)
        self._outbox.append((item.dispatch_id, result))

    def cancel(self, dispatch_id: int, reason: types_pb2.ErrorReason) -> None:
        """End it, if it is held."""
        run = self.runs.get(dispatch_id)
        if run is None:
            return
        self._end(run, self.clock.now())
        self._report(run, EngineError(reason=reason, message="cancelled"), cut=True)
        self.clock.ring_soon()

    def unread_tokens(self) -> int:
        """Of prompts that are held and whose run has not begun."""
        unread = (run for run in self.runs.values() if run.started_at is None)
        return sum(run.plan.input_tokens for run in unread)

    def kv_tokens(self) -> int:
        """That its runs keep in memory now."""
        now = self.clock.now()
        started = (run for run in self.runs.values() if run.started_at is not None)
        return sum(run.plan.input_tokens + run.tokens_at(now) for run in started)

    def _groups(self, runs: list[Run], atomic: bool) -> list[Group]:
        if self._options.mode == "continuous":
            return [Group([run]) for run in runs]
        if atomic:
            return [Group(runs)] if runs else []
        groups: list[Group] = []
        for run in runs:
            last = groups[-1] if groups else None
            if (
                last is not None
                and last.runs[0].item.model == run.item.model
                and last.inputs + run.plan.inputs <= self._options.batch_limit
            ):
                last.add(run)
            else:
                groups.append(Group([run]))
        return groups

    def _admit(self, group: Group) -> None:
        room = self._options.slots + self._options.look_ahead - self.held_inputs
        limit = self._options.batch_limit
        if group.inputs > room or group.inputs > limit:
            message = f"{group.inputs} inputs came; there is room for {max(0, min(room, limit))}"
            for run in group.runs:
                busy = EngineError(
                    reason=types_pb2.ERROR_REASON_ENGINE_BUSY, message=message, refused=True
                )
                self.refuse(run.item, busy)
            return
        self.held_inputs += group.inputs
        for run in group.runs:
            self.runs[run.item.dispatch_id] = run
        self._incoming.append(group)

    def _turn(self) -> None:
        """Report what ended, start what fits, and let happen all that is due by now."""
        self._waiting.extend(self._incoming)
        self._incoming.clear()
        with self._sink.together():
            self._flush()
        if not self.clock.is_stalled:
            now = self.clock.now()
            if self._free(now):
                self.clock.ring_soon()
                return
            while self._start(now) or self._advance(now):
                pass
            self._late_s = 0.0
        self._turn_later()

    def _free(self, now: float) -> bool:
        """Tell, a turn of the loop ahead of its results, that a batch has ended, if one has."""
        agenda = self._agenda
        if not agenda or agenda[0][0] > now or self._options.mode != "static":
            return False
        group = agenda[0][2].group
        assert group is not None
        if group.freed or not group.over_by(now):
            return False
        group.freed = True
        self.held_inputs -= group.inputs
        self.running_inputs -= group.inputs
        self._running_groups -= 1
        self._freed_at = agenda[0][0]
        self._late_s = now - self._freed_at
        self._sink.freed([run.item.dispatch_id for run in group.runs])
        self._late_s = 0.0
        return True

    def _start(self, now: float) -> bool:
        """Start what fits, in line; tell whether there was anything to do."""
        started: list[Run] = []
        with self._sink.together():
            while group := self._next_group():
                self._begin(group, now)
                started += group.runs
        with self._sink.together():
            for run in started:
                self._follow(run, now)
        return bool(started)

    def _next_group(self) -> Group | None:
        """Take the oldest waiting group out of the line, if it fits."""
        while self._waiting and not self._waiting[0].runs:
            self._waiting.popleft()  # all its runs were cancelled
        if not self._waiting or not self._fits(self._waiting[0]):
            return None
        return self._waiting.popleft()

    def _begin(self, group: Group, now: float) -> None:
        # What waited starts when the slot came free: the alarm's lateness is not the engine's.
        group.start(min(now, max(group.runs[-1].submitted_at, self._freed_at)), self._options)
        self._running_groups += 1
        self.running_inputs += group.inputs
        count = group.inputs if self._options.mode == "static" else self.running_inputs
        for run in group.runs:
            self._sink.running(run.item.dispatch_id, count)

    def _fits(self, group: Group) -> bool:
        if self._options.mode == "static":
            return self._running_groups < self._options.slots // self._options.batch_limit
        return self.running_inputs + group.inputs <= self._options.slots

    def _advance(self, now: float) -> bool:
        """Let the earliest events happen, if they are due; tell whether there were any."""
        agenda = self._agenda
        if not agenda or agenda[0][0] > now:
            return False
        at = agenda[0][0]
        self._late_s = now - at
        with self._sink.together():
            while agenda and agenda[0][0] == at:
                self._follow(heappop(agenda)[2], now)
        return True

    def _follow(self, run: Run, now: float) -> None:
        """Let happen what of `run` is due, and put its next event into the agenda."""
        if run.item.dispatch_id not in self.runs:
            return  # cancelled meanwhile
        if run.item.stream:
            self._show(run, run.tokens_at(now))
            if run.item.dispatch_id not in self.runs:
                return
        if run.final_at <= now:
            self._meet_fate(run, now)
            return
        self._agenda_count += 1
        heappush(self._agenda, (run.next_at(), self._agenda_count, run))

    def _show(self, run: Run, count: int) -> None:
        """Send the tokens up to `count` that were not sent yet."""
        dispatch_id, plan = run.item.dispatch_id, run.plan
        step = self._options.tokens_per_delta or count
        while run.shown < count and dispatch_id in self.runs:
            start = run.shown
            run.shown = end = min(count, start + step)
            for choice in range(len(plan.texts)):
                text = plan.written(choice, start, end)
                if text:
                    self._sink.delta(dispatch_id, choice, 0, text, end - start)

    def _meet_fate(self, run: Run, now: float) -> None:
        if run.plan.fate is Fate.STALL:
            return
        if run.plan.fate is Fate.CRASH:
            os._exit(CRASH_EXIT_STATUS)
        self._end(run, run.final_at)
        failed = run.plan.fate is Fate.FAIL
        self._sink.finished(run.item.dispatch_id, run.result(now, _failure() if failed else None))
        self._finished_items += 1
        if self._finished_items == self._options.crash_after_items:
            os._exit(CRASH_EXIT_STATUS)

    def _end(self, run: Run, at: float) -> None:
        """Forget a run and free what it held, unless its batch was freed as a whole."""
        del self.runs[run.item.dispatch_id]
        group = run.group
        assert group is not None
        group.drop(run)
        if not group.freed:
            self._give_back(run, group, at)
        if not self.runs and self.emptied is not None:
            self.emptied.set()

    def _give_back(self, run: Run, group: Group, at: float) -> None:
        self.held_inputs -= run.plan.inputs
        if run.started_at is not None:
            self.running_inputs -= run.plan.inputs
            self._freed_at = at
            if not group.runs:
                self._running_groups -= 1

    def _report(self, run: Run, error: EngineError, *, cut: bool = False) -> None:
        result = run.result(self.clock.now(), error, cut=cut)
        self._outbox.append((run.item.dispatch_id, result))

    def _flush(self) -> None:
        ended, self._outbox = self._outbox, []
        for dispatch_id, result in ended:
            self._sink.finished(dispatch_id, result)

    def _turn_later(self) -> None:
        """Set the alarm for the earliest event, unless nothing runs."""
        if len(self._agenda) > 2 * len(self.runs) + 64:  # mostly cancelled ones
            self._agenda = [e for e in self._agenda if e[2].item.dispatch_id in self.runs]
            heapify(self._agenda)
        if self._agenda and self.runs and not self.clock.is_stalled:
            self.clock.ring_at(self._agenda[0][0])


def _failure() -> EngineError:
    return EngineError(
        reason=types_pb2.ERROR_REASON_ENGINE_ERROR,
        message="the simulated engine failed this item",
        metadata={"engineStatus": "simulated"},
    )
