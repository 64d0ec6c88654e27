"""What does tracing cost a request that is not sampled? The tracer by itself, in microseconds.

Too small to be seen beside a whole scheduler. What is measured is all that is done for such a
request when tracing is on, and not when it is off.
"""

from __future__ import annotations

import timeit
from types import SimpleNamespace
from typing import Any, Final

from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.records import Record
from scheduler_service.core.types import Request
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening
from scheduler_service.rpc.ports import NoTracer
from scheduler_service.security.principals import LOCAL
from scheduler_service.telemetry.sampling import ROOT_TRACES_PER_S, RootSampler
from scheduler_service.telemetry.tracer import RequestTracer

TIMES: Final = 2_000
BATCH: Final = 8  # requests whose records come in one step, as under load
# Records of one unary request; those of batches are shared.
_KINDS: Final = (records.SUBMIT, records.ATTEMPT_ENDED, records.FINISHED)


def unsampled_us() -> float:
    """Of one request: the decision, the contexts for its agent, and the look at its records."""
    clock = Clock()
    entries = [Entry(Request(n, f"r{n}", "m", 5), b"", clock) for n in range(BATCH)]
    for entry in entries:
        entry.request.outcome, entry.request.context = Outcome.SUCCEEDED, entry
    attempts: Any = [SimpleNamespace(request=entry.request) for entry in entries]
    batch: Any = SimpleNamespace(batch_id="b", attempts=attempts)
    step = [Record(records.DISPATCH_BATCH, 0, batch=batch)]
    step += [Record(kind, 0, entry.request) for entry in entries for kind in _KINDS]
    opening = Opening(b"", LOCAL, ("", ""), "Generate")
    tracer = RequestTracer(_Provider(), clock, _no_state, _exhausted())
    off = NoTracer()

    def on() -> None:
        for entry in entries:
            tracer.on_entry(entry, opening)
        for attempt in attempts:
            tracer.attempt_context(attempt)
        tracer.batch_context(batch, ())
        tracer(step)

    def without() -> None:
        for attempt in attempts:
            off.attempt_context(attempt)
        off.batch_context(batch, ())

    return (_best_us(on) - _best_us(without)) / BATCH


def _exhausted() -> RootSampler:
    """Whoever it decides about came at the same instant as all that it has let through."""
    sampler = RootSampler({})
    for _ in range(2 * int(ROOT_TRACES_PER_S)):
        sampler.sample(0)
    return sampler


class _Provider:
    def get_tracer(self, name: str) -> None:
        """Nothing is to be traced."""


def _no_state() -> Any:
    raise AssertionError("nothing is to be traced")


def _best_us(code: Any) -> float:
    return min(timeit.repeat(code, number=TIMES, repeat=5)) / TIMES * 1e6
