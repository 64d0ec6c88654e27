"""An engine whose batch starts and ends together: everybody waits for the longest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from scheduler_service.core.types import Duration
from simulator.calibration import PS_PER_NS, IterationCost
from simulator.engines.interface import Host, Work

BatchTime = Callable[[Sequence[Work]], Duration]


def affine(base: Duration, per_item: Duration) -> BatchTime:
    """T(B) = a + b * B."""

    def duration(works: Sequence[Work]) -> Duration:
        return base + per_item * sum(work.inputs for work in works)

    return duration


def padded(base: Duration, per_token: float) -> BatchTime:
    """T(B) = a + b * B * longest prompt: the others are padded to it."""

    def duration(works: Sequence[Work]) -> Duration:
        longest = max(work.prompt_tokens for work in works)
        return base + round(per_token * longest * sum(work.inputs for work in works))

    return duration


def generation(cost: IterationCost) -> BatchTime:
    """All prompts read at once, then tokens for all until the longest output is made."""

    def duration(works: Sequence[Work]) -> Duration:
        size = len(works)
        prompt = max(work.prompt_tokens for work in works)
        steps = max(0, max(work.to_make for work in works) - 1)
        length = cost.prefill_of(size * prompt, beside_decodes=False)
        length += cost.decode(size, size * (prompt + 1), steps) if steps else 0
        return -(-length // PS_PER_NS)

    return duration


class _Batch:
    __slots__ = ("halted", "started_at", "works")

    def __init__(self, works: list[Work]) -> None:
        self.works = works
        self.started_at = 0
        self.halted = False


class StaticEngine:
    """Runs `lanes` batches at once; more of them wait in order."""

    def __init__(self, host: Host, lanes: int, duration: BatchTime) -> None:
        self.busy: Duration = 0
        self.batches = 0
        self._host = host
        self._lanes = lanes
        self._duration = duration
        self._waiting: deque[_Batch] = deque()
        self._running: list[_Batch] = []

    def submit(self, works: Sequence[Work], *, atomic: bool) -> None:
        """One batch, or each by itself."""
        groups = [list(works)] if atomic else [[work] for work in works]
        self._waiting.extend(_Batch(group) for group in groups)
        self._start()

    def _start(self) -> None:
        agenda = self._host.agenda
        while self._waiting and len(self._running) < self._lanes:
            batch = self._waiting.popleft()
            batch.started_at = agenda.now
            for work in batch.works:
                work.started_at = agenda.now
            self._running.append(batch)
            self.batches += 1
            lasts = self._host.stretch(self._duration(batch.works))
            agenda.at(agenda.now + lasts, self._end, batch)

    def _end(self, batch: _Batch) -> None:
        if batch.halted:
            return
        now = self._host.agenda.now
        self._running.remove(batch)
        for work in batch.works:
            work.ended = True
            if not work.stopped:
                work.complete = True
                work.made = work.to_make
                work.first_output_at = now
            self.busy += work.inputs * (now - batch.started_at)
        self._start()
        self._host.ended(batch.works)

    def cancel(self, dispatch_id: int) -> None:
        """One that waits leaves at once; one that runs keeps its place until its batch ends."""
        for batch in self._waiting:
            for work in batch.works:
                if work.dispatch_id == dispatch_id:
                    batch.works.remove(work)
                    if not batch.works:
                        self._waiting.remove(batch)
                    work.ended = True
                    self._host.ended((work,))
                    return
        for batch in self._running:
            for work in batch.works:
                if work.dispatch_id == dispatch_id:
                    work.stopped = True

    def halt(self) -> None:
        """Forget everything."""
        now = self._host.agenda.now
        for batch in [*self._running, *self._waiting]:
            batch.halted = True
            for work in batch.works:
                work.ended = True
        for batch in self._running:
            self.busy += sum(w.inputs for w in batch.works) * (now - batch.started_at)
        self._running.clear()
        self._waiting.clear()
