"""An engine that re-forms its batch at every iteration: prompts join and sequences leave at once.

Theory of operation. An iteration makes one token for each decoding sequence and reads a chunk of
prompts: decodes first, prompts with what is left of the token budget, in order of admission (Orca,
OSDI 2022; Sarathi-Serve, OSDI 2024). A prompt's last chunk makes its first token. Sequences are
admitted while there are slots and memory; when memory for the next tokens is lacking, the one
admitted last gives all of its back and is read again later (preemption by recompute).

Iterations without prompts differ only by the context that they have added, so a whole run of them,
up to the next end of a sequence, is one action of the agenda (a "leap"). A newcomer cuts the leap
at the end of the iteration in progress. `progress_every` 1 makes single iterations, with the same
instants, and tells the node of every token.

                leap of n                        cut: n' <= n
    |--|--|--|--|--|--|--|--|      newcomer |--|--|--|
    ^ plan                  ^ boundary          ^ it comes  ^ boundary, it is admitted
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from scheduler_service.core.types import Duration
from simulator.calibration import PS_PER_NS, IterationCost
from simulator.engines.gaps import GapHistogram
from simulator.engines.interface import Host, Work
from simulator.engines.sequences import KvMemory, Sequence


@dataclass(frozen=True, kw_only=True)
class ContinuousProfile:
    """What one continuous engine is like."""

    cost: IterationCost
    slots: int  # sequences at once
    kv_tokens: int
    token_budget: int = 2048  # per iteration; 0: whole prompts at once
    progress_every: int = 0  # iterations between words on output; 0: none before the end


class ContinuousEngine:
    """One continuous engine."""

    def __init__(self, host: Host, profile: ContinuousProfile) -> None:
        self.busy: Duration = 0
        self.preemptions = 0
        self.iterations = 0  # that made tokens, so far
        self.gaps: GapHistogram | None = None  # set one to measure times between tokens
        self.memory = KvMemory(profile.kv_tokens)
        self._host = host
        self._profile = profile
        self._waiting: deque[Sequence] = deque()
        self._reading: dict[int, Sequence] = {}  # prompts being read, in order of admission
        self._decoding: dict[int, Sequence] = {}
        self._ends: list[tuple[int, int, Sequence]] = []  # (iteration, order, sequence) heap
        self._context = 0  # tokens of the decoding sequences
        self._order = 0
        self._clock = 0  # ps; of the last boundary
        self._planned = 0  # iterations until the next boundary; 0: it is idle
        self._chunks: list[tuple[Sequence, int]] = []  # of prompts in the planned iteration
        self._stopping: list[Sequence] = []  # cancelled, leave at the next boundary
        self._plan_number = 0
        self._accounted_at = 0

    # What the node asks.

    def submit(self, works: Seq[Work], *, atomic: bool) -> None:
        """They join at the next boundary, if there is room."""
        del atomic
        self._waiting.extend(Sequence(work) for work in works)
        self._hurry()

    def cancel(self, dispatch_id: int) -> None:
        """It leaves at the next boundary; at once while it waits."""
        for sequence in self._waiting:
            if sequence.work.dispatch_id == dispatch_id:
                self._waiting.remove(sequence)
                sequence.work.ended = True
                self._host.ended((sequence.work,))
                return
        running = self._decoding.get(dispatch_id) or self._reading.get(dispatch_id)
        if running is not None and running not in self._stopping:
            self._stopping.append(running)
            self._hurry()

    def halt(self) -> None:
        """Forget everything."""
        self._account()
        for sequence in [*self._waiting, *self._reading.values(), *self._decoding.values()]:
            sequence.work.ended = True
        self._waiting.clear()
        self._reading.clear()
        self._decoding.clear()
        self._ends.clear()
        self._stopping.clear()
        self._chunks.clear()
        self.memory.clear()
        self._context = self._planned = 0
        self._plan_number += 1

    @property
    def running(self) -> int:
        """Sequences admitted."""
        return len(self._reading) + len(self._decoding)

    # Boundaries.

    def _hurry(self) -> None:
        """Something waits for the next boundary: let it be the end of the present iteration."""
        agenda = self._host.agenda
        if not self._planned:
            self._clock = agenda.now * PS_PER_NS
            self._set_boundary(0)
            return
        full = len(self._waiting) > 0 and self.running >= self._profile.slots
        if self._planned == 1 or (full and not self._stopping):
            return
        elapsed = agenda.now * PS_PER_NS - self._clock
        low, high = 1, self._planned  # the first iteration that ends now or later
        while low < high:
            middle = (low + high) // 2
            if self._length(middle) >= elapsed:
                high = middle
            else:
                low = middle + 1
        if low < self._planned:
            self._set_boundary(low)

    def _length(self, iterations: int) -> int:
        """Time of that many of the planned iterations, ps."""
        batch = len(self._decoding)
        cost = self._profile.cost
        length = cost.decode(batch, self._context, iterations) if batch else 0
        if self._chunks:
            tokens = sum(chunk for _, chunk in self._chunks)
            length += cost.prefill_of(tokens, beside_decodes=batch > 0)
        return self._host.stretch(length)

    def _set_boundary(self, iterations: int) -> None:
        """The next boundary is the end of that many iterations; 0: now."""
        self._plan_number += 1
        self._planned = max(1, iterations)
        length = self._length(iterations) if iterations else 0
        instant = -(-(self._clock + length) // PS_PER_NS)  # in whole nanoseconds, never early
        agenda = self._host.agenda
        plan = (self._plan_number, iterations, length)
        agenda.at(max(instant, agenda.now), self._boundary, plan)

    def _boundary(self, plan: tuple[int, int, int]) -> None:
        """The planned iterations are over: take in what they made, then plan the next."""
        number, iterations, length = plan
        if number != self._plan_number:
            return  # the leap was cut, or the process is gone
        self._account()
        ended: list[Work] = []
        if iterations:
            self._pass(iterations, length)
            self._end_decodes(ended)
            self._end_prompts(ended)
        self._stop(ended)
        if self._profile.progress_every:
            self._tell_progress(ended)
        self._admit(ended)
        self._plan(ended)
        if ended:
            self._host.ended(ended)

    def _account(self) -> None:
        now = self._host.agenda.now
        self.busy += self.running * (now - self._accounted_at)
        self._accounted_at = now

    def _pass(self, iterations: int, length: int) -> None:
        batch = len(self._decoding)
        now = self._host.agenda.now * PS_PER_NS
        self._clock += length
        if now - self._clock >= PS_PER_NS:  # the node's speed changed meanwhile
            self._clock = now
        if batch:
            self.iterations += iterations
            self._context += batch * iterations
            self.memory.grow(batch * iterations)
            if self.gaps is not None:
                self.gaps.add(length // iterations // PS_PER_NS, batch * iterations)

    def _end_decodes(self, ended: list[Work]) -> None:
        while self._ends and self._ends[0][0] <= self.iterations:
            done_at, _, sequence = heapq.heappop(self._ends)
            if sequence.done_at == done_at and sequence.work.dispatch_id in self._decoding:
                self._leave(sequence)
                sequence.work.complete = True
                ended.append(sequence.work)

    def _end_prompts(self, ended: list[Work]) -> None:
        """Chunks are read; a prompt's last one made a token."""
        chunks, self._chunks = self._chunks, []
        for sequence, chunk in chunks:
            sequence.remaining -= chunk
            if sequence.remaining:
                continue
            work = sequence.work
            del self._reading[work.dispatch_id]
            if work.to_make > work.made:
                work.made += 1
                self.memory.grow(1)
                if work.first_output_at < 0:
                    work.first_output_at = self._host.agenda.now
            left = work.to_make - work.made
            if left <= 0:
                self.memory.release(sequence, work.made)
                work.ended = work.complete = True
                ended.append(work)
                continue
            sequence.joined_at = self.iterations
            sequence.done_at = self.iterations + left
            self._decoding[work.dispatch_id] = sequence
            self._context += work.prompt_tokens + work.made
            heapq.heappush(self._ends, (sequence.done_at, sequence.order, sequence))

    def _leave(self, sequence: Sequence) -> None:
        """A decoding sequence goes; what it made is settled."""
        work = sequence.work
        made = sequence.made(self.iterations)
        del self._decoding[work.dispatch_id]
        self._context -= work.prompt_tokens + made
        self.memory.release(sequence, made)
        sequence.done_at = 0
        work.made = made
        work.ended = True

    def _stop(self, ended: list[Work]) -> None:
        """Cancelled ones leave."""
        stopping, self._stopping = self._stopping, []
        for sequence in stopping:
            work = sequence.work
            if work.dispatch_id in self._decoding:
                self._leave(sequence)
            elif self._reading.pop(work.dispatch_id, None) is not None:
                self.memory.release(sequence, work.made)
                work.ended = True
            else:
                continue  # it ended by itself meanwhile, or waits again
            ended.append(work)

    def _tell_progress(self, ended: Seq[Work]) -> None:
        """Let the node know how far each has come."""
        for sequence in self._decoding.values():
            sequence.work.made_so_far = sequence.made(self.iterations)
        for work in ended:
            work.made_so_far = work.made
        self._host.progressed([s.work for s in self._decoding.values()])

    # What comes next.

    def _admit(self, ended: list[Work]) -> None:
        now = self._host.agenda.now
        while self._waiting and self.running < self._profile.slots:
            sequence = self._waiting[0]
            if not self.memory.admits(sequence, self.running):
                if self.running:
                    return
                self._fail(self._waiting.popleft(), ended)  # it can never fit
                continue
            self._waiting.popleft()
            hit = self.memory.admit(sequence)
            work = sequence.work
            sequence.remaining = sequence.tokens - hit
            self._order += 1
            sequence.order = self._order
            self._reading[work.dispatch_id] = sequence
            if work.started_at < 0:
                work.started_at = now

    def _fail(self, sequence: Sequence, ended: list[Work]) -> None:
        sequence.work.ended = True
        sequence.work.out_of_memory = True
        ended.append(sequence.work)

    def _plan(self, ended: list[Work]) -> None:
        """Choose the next iterations."""
        self._make_room(ended)
        if not self.running and self._waiting:
            self._admit(ended)
        batch = len(self._decoding)
        self._take_chunks(batch)
        if self._chunks:
            self._set_boundary(1)
        elif batch:
            self._set_boundary(self._leap(batch))
        else:
            self._planned = 0

    def _leap(self, batch: int) -> int:
        """Iterations until a sequence ends, memory is short, or a word on output is due."""
        while self._ends[0][2].done_at != self._ends[0][0]:
            heapq.heappop(self._ends)  # of one that has left
        limit = min(self._ends[0][0] - self.iterations, self.memory.room // batch)
        every = self._profile.progress_every
        return max(1, min(limit, every) if every else limit)

    def _take_chunks(self, batch: int) -> None:
        budget = self._profile.token_budget - batch if self._profile.token_budget else 1 << 62
        self._chunks = []
        for sequence in self._reading.values():
            if budget <= 0:
                return
            chunk = min(sequence.remaining, budget)
            self._chunks.append((sequence, chunk))
            budget -= chunk

    def _make_room(self, ended: list[Work]) -> None:
        """Preempt the latest admitted until the next tokens have room."""
        while self.memory.room < self.running:
            last = max([*self._decoding.values(), *self._reading.values()], key=lambda s: s.order)
            if self.running == 1:
                self._drop(last)
                self._fail(last, ended)
                return
            self.preemptions += 1
            self._drop(last)
            last.work.ended = False
            self._waiting.appendleft(last)

    def _drop(self, sequence: Sequence) -> None:
        work = sequence.work
        if work.dispatch_id in self._decoding:
            self._leave(sequence)
        else:
            del self._reading[work.dispatch_id]
            self.memory.release(sequence, work.made)
