"""When does each part of a simulated run happen? Groups that start together, and their runs.

started          prefill_at      first token                           end_at
   |---- prefill ----|---- step ----|---- step ----| ... |--- (static: wait) ---|
"""

from __future__ import annotations

import math

from batchyard.v1 import inference_pb2, types_pb2
from node_agent.engines.interface import EngineError, Item, Result
from node_agent.engines.simulated_directives import Fate
from node_agent.engines.simulated_options import SimulatedOptions
from node_agent.engines.simulated_plan import Plan

_TOLD = (Fate.FINISH, Fate.FAIL)
_EARLY_S = 1e-6  # sums of floats may land this much short of a token's time


class Run:
    """One item, from `submit` to its end. Times are the engine's clock, in seconds."""

    __slots__ = (
        "end_at", "group", "item", "plan", "prefill_at", "shown", "started_at", "step_s",
        "submitted_at",
    )  # fmt: skip

    def __init__(self, item: Item, plan: Plan, submitted_at: float) -> None:
        self.item = item
        self.plan = plan
        self.submitted_at = submitted_at
        self.group: Group | None = None
        self.started_at: float | None = None
        self.prefill_at = 0.0
        self.step_s = 0.0
        self.end_at = 0.0
        self.shown = 0  # tokens that went out as deltas

    @property
    def last_token(self) -> int:
        """The number of tokens it gets to, its fate considered."""
        return self.plan.tokens if self.plan.fate is Fate.FINISH else self.plan.fate_after

    @property
    def final_at(self) -> float:
        """When its fate comes."""
        if self.plan.fate is Fate.FINISH:
            return self.end_at
        return self.prefill_at + self.step_s * self.plan.fate_after

    def next_at(self) -> float:
        """Return the time of its next event."""
        if self.item.stream and self.shown < self.last_token:
            return self.prefill_at + self.step_s * (self.shown + 1)
        return self.final_at

    def tokens_at(self, now: float) -> int:
        """Return how many tokens of each choice are written by `now`."""
        if self.started_at is None or now + _EARLY_S < self.prefill_at:
            return 0
        if self.step_s == 0.0:
            return self.last_token
        return min(self.last_token, int((now - self.prefill_at + _EARLY_S) / self.step_s))

    def result(self, now: float, error: EngineError | None = None, *, cut: bool = False) -> Result:
        """Return its end at `now`: its natural one, or `error` (`cut`: it was cancelled)."""
        plan = self.plan
        if error is None:
            finish, count = plan.finish, plan.tokens
            outputs = _whole_outputs(plan)
        else:
            finish = types_pb2.FINISH_REASON_CANCELLED if cut else types_pb2.FINISH_REASON_ERROR
            count = self._told(now)
            outputs = _partial_outputs(plan, count, finish)
        result = Result(
            finish_reason=finish,
            outputs=outputs,
            error=error,
            output_tokens=count * len(plan.texts),
        )
        if self.started_at is not None:
            prefill_at = min(now, self.prefill_at)
            result.input_tokens = plan.input_tokens
            result.engine_queue_s = self.started_at - self.submitted_at
            result.prefill_s = prefill_at - self.started_at
            result.decode_s = now - prefill_at
        return result

    def _told(self, now: float) -> int:
        """Return the tokens to hand over when cut at `now`; deltas and result must agree."""
        return self.shown if self.item.stream else self.tokens_at(now)


class Group:
    """Runs that start together: a static batch, or one item of a continuous engine."""

    __slots__ = ("_over_at", "freed", "inputs", "runs")

    def __init__(self, runs: list[Run]) -> None:
        self._over_at: float | None = None
        self.freed = False  # it has ended and holds nothing; its results follow
        self.runs: list[Run] = []
        self.inputs = 0
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Take a run in, before the start."""
        self.runs.append(run)
        self.inputs += run.plan.inputs
        run.group = self

    def start(self, now: float, options: SimulatedOptions) -> None:
        """Give each run its times. Jitter is that of the first run: a batch has one pace."""
        speed = self.runs[0].plan.speed
        sleep_s = longest = 0.0
        for run in self.runs:
            sleep_s = max(sleep_s, run.plan.sleep_s)
            longest = max(longest, run.plan.tokens)
        prefill_s = options.latency + options.latency_per_item * self.inputs
        prefill_at = now + sleep_s + prefill_s * speed
        step_s = options.latency_per_token * speed
        end_at = prefill_at + step_s * longest
        for run in self.runs:
            run.started_at = now
            run.prefill_at = prefill_at
            run.step_s = step_s
            run.end_at = end_at
        self._over_at = self._when_over()

    def over_by(self, now: float) -> bool:
        """Whether all its runs have come to their ends and will say so. Known from the start: it is
        asked while the engine waits for its next batch.
        """
        if self._over_at is None:
            self._over_at = self._when_over()
        return self._over_at <= now

    def _when_over(self) -> float:
        if not all(run.plan.fate in _TOLD for run in self.runs):
            return math.inf
        return max((run.final_at for run in self.runs), default=math.inf)

    def drop(self, run: Run) -> None:
        """Take a run out that has ended."""
        self.runs.remove(run)
        self.inputs -= run.plan.inputs
        self._over_at = None


def _whole_outputs(plan: Plan) -> list[inference_pb2.Output]:
    if not plan.texts:
        return plan.outputs
    return [
        inference_pb2.Output(index=choice, text=text, finish_reason=plan.finish)
        for choice, text in enumerate(plan.texts)
    ]


def _partial_outputs(
    plan: Plan, count: int, finish: types_pb2.FinishReason
) -> list[inference_pb2.Output]:
    if not count:
        return []
    return [
        inference_pb2.Output(
            index=choice, text=plan.written(choice, 0, count), finish_reason=finish
        )
        for choice in range(len(plan.texts))
    ]
