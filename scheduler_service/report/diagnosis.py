"""What is wrong, in plain words? Judged over the window, not at an instant: a state counts when it
held for most of it, an incident when it is more than a small share.
"""

from __future__ import annotations

import statistics as numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from batchyard.v1 import report_pb2
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import SECOND, Duration
from scheduler_service.report import histogram
from scheduler_service.report.statistics import PoolSample
from scheduler_service.report.texts import Language, sentence
from scheduler_service.report.window import Window

MOST: Final = 0.5  # share of the window
SAMPLES_MIN: Final = 3  # before anything is said of a state
NO_NODE_S: Final = 10  # a lack of nodes that goes on now is told after so many samples
UNWELL_S: Final = 10  # samples, likewise of nodes none of whose engines answers
ATTEMPTS_MIN: Final = 5  # of a node, before it is judged
FAILING: Final = 0.2
SLOW: Final = 2.0  # times the median of the other nodes
REFUSED: Final = 0.01
REFUSED_CRITICAL: Final = 0.2
EXPIRED: Final = 0.01
FAILED: Final = 0.01
FAILED_CRITICAL: Final = 0.2
DEGRADED: Final = 0.05
FEW: Final = 3  # incidents that are not worth a sentence yet
BATCHES_MIN: Final = 10
FILL_LOW: Final = 0.5
STARTING_S: Final = 60


class Severity(IntEnum):
    """The protocol's DiagnosisSeverity."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence to be said; `variables` fill it in."""

    code: str
    severity: Severity
    variables: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What counts as long; those of the autoscaler."""

    queue: int = 5
    wait: Duration = 3 * SECOND
    max_nodes: int = 0  # 0: not scaled


@dataclass(frozen=True, slots=True)
class Case:
    """What there is to judge."""

    window: Window
    thresholds: Thresholds
    node_joined: bool  # whether any ever did
    live_nodes: int
    uptime: Duration

    def pools(self) -> Iterator[tuple[str, list[PoolSample]]]:
        """Pools with enough samples to judge."""
        for pool in self.window.pools():
            samples = self.window.pool_samples(pool)
            if len(samples) >= SAMPLES_MIN:
                yield pool, samples

    def is_long(self, sample: PoolSample) -> bool:
        """Whether many wait, and not only because an operator wants them to."""
        return not sample.paused and sample.waiting >= self.thresholds.queue

    def is_late(self, sample: PoolSample) -> bool:
        """Whether somebody waits long, likewise."""
        return not sample.paused and sample.oldest_wait > self.thresholds.wait

    def is_pressed(self, sample: PoolSample) -> bool:
        """Whether the autoscaler would want another node."""
        return self.is_long(sample) or self.is_late(sample)


def diagnose(case: Case) -> list[Finding]:
    """All that is to be said, most severe first."""
    found = [finding for rule in _RULES for finding in rule(case)]
    if not any(finding.severity > Severity.INFO for finding in found):
        found += _in_order(case)
    return sorted(found, key=lambda finding: -finding.severity)


def write(finding: Finding, language: Language) -> report_pb2.Diagnosis:
    """The finding in words."""
    text, reason = sentence(finding.code, language, finding.variables)
    return report_pb2.Diagnosis(
        code=finding.code,
        severity=int(finding.severity),  # type: ignore[arg-type]
        text=text,
        reason=reason,
        metadata=finding.variables,
    )


def _share(flags: Iterable[bool]) -> float:
    counted = list(flags)
    return sum(counted) / len(counted) if counted else 0.0


def _mean(values: Iterable[int]) -> str:
    return f"{numbers.fmean(values):.1f}".removesuffix(".0")


def _percent(share: float) -> str:
    return f"{share * 100:.0f}" if share >= 0.01 else f"{share * 100:.1f}"


def _seconds(length: Duration) -> str:
    seconds = length / SECOND
    return f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.3f}"


def _no_node(case: Case) -> Iterator[Finding]:
    for pool, samples in case.pools():
        lacking = [s.waiting > 0 and s.live_nodes == 0 for s in samples]
        now = lacking[-NO_NODE_S:]
        if _share(lacking) >= MOST or (len(now) == NO_NODE_S and all(now)):
            waiting = [s.waiting for s, lack in zip(samples, lacking, strict=True) if lack]
            yield Finding(
                "no_node",
                Severity.CRITICAL,
                {"pool": pool, "waiting": str(waiting[-1]), "seconds": str(len(waiting))},
            )


def _pool_paused(case: Case) -> Iterator[Finding]:
    """What holds now: an operator's decision is no trend."""
    for pool, samples in case.pools():
        if samples[-1].paused:
            waiting = samples[-1].waiting
            severity = Severity.WARNING if waiting else Severity.INFO
            yield Finding("pool_paused", severity, {"pool": pool, "waiting": str(waiting)})


def _node_failing(case: Case) -> Iterator[Finding]:
    for node_id, figures in sorted(case.window.sums.nodes.items()):
        rate = figures.failure_rate or 0.0
        lost = node_id in case.window.sums.lost  # told as such: its engine may be as good as any
        if figures.ended >= ATTEMPTS_MIN and rate >= FAILING and not lost:
            variables = {
                "node": node_id,
                "failed": str(figures.failed),
                "ended": str(figures.ended),
                "percent": _percent(rate),
            }
            severity = Severity.CRITICAL if rate >= MOST else Severity.WARNING
            yield Finding("node_failing", severity, variables)


def _rejects(case: Case) -> Iterator[Finding]:
    totals = case.window.totals
    count = totals.outcomes[Outcome.REJECTED]
    share = count / totals.received if totals.received else 0.0
    if count > FEW and share >= REFUSED:
        variables = {
            "count": str(count),
            "received": str(totals.received),
            "percent": _percent(share),
            "reason": next(iter(case.window.rejects), "?"),
        }
        severity = Severity.CRITICAL if share >= REFUSED_CRITICAL else Severity.WARNING
        yield Finding("rejects", severity, variables)


def _nodes_idle(case: Case) -> Iterator[Finding]:
    for pool, samples in case.pools():
        both = [s for s in samples if case.is_long(s) and s.idle_nodes > 0]
        if len(both) >= MOST * len(samples):
            variables = {
                "pool": pool,
                "waiting": _mean(s.waiting for s in both),
                "idle": _mean(s.idle_nodes for s in both),
                "percent": _percent(len(both) / len(samples)),
            }
            yield Finding("nodes_idle", Severity.WARNING, variables)


def _scaled_at_max(case: Case) -> Iterator[Finding]:
    most = case.thresholds.max_nodes
    for pool, samples in case.pools():
        share = _share(case.is_pressed(s) and s.nodes >= most for s in samples)
        if most and share >= MOST:
            variables = {"pool": pool, "nodes": str(samples[-1].nodes), "max": str(most)}
            variables["percent"] = _percent(share)
            yield Finding("scaled_at_max", Severity.WARNING, variables)


def _queue_long(case: Case) -> Iterator[Finding]:
    for pool, samples in case.pools():
        share = _share(case.is_long(s) for s in samples)
        if share >= MOST:
            variables = {
                "pool": pool,
                "waiting": _mean(s.waiting for s in samples),
                "threshold": str(case.thresholds.queue),
                "percent": _percent(share),
            }
            yield Finding("queue_long", Severity.WARNING, variables)


def _wait_long(case: Case) -> Iterator[Finding]:
    for pool, samples in case.pools():
        share = _share(case.is_late(s) for s in samples)
        if share >= MOST:
            variables = {
                "pool": pool,
                "threshold": _seconds(case.thresholds.wait),
                "seconds": _seconds(max(s.oldest_wait for s in samples if not s.paused)),
                "percent": _percent(share),
            }
            yield Finding("wait_long", Severity.WARNING, variables)


def _node_lost(case: Case) -> Iterator[Finding]:
    lost = sorted(case.window.sums.lost)
    if lost:
        shown = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
        yield Finding("node_lost", Severity.WARNING, {"count": str(len(lost)), "nodes": shown})


def _engines_unwell(case: Case) -> Iterator[Finding]:
    """What has held for the last samples, and goes on."""
    now = case.window.samples[-UNWELL_S:]
    if len(now) < UNWELL_S:
        return
    nodes = [node for node in sorted(now[-1].unwell) if all(node in s.unwell for s in now)]
    if nodes:
        told = [f"{node} ({now[-1].unwell[node]})" for node in nodes[:5]]
        shown = ", ".join(told) + (", ..." if len(nodes) > 5 else "")
        variables = {"count": str(len(nodes)), "nodes": shown, "node": nodes[0]}
        yield Finding("engines_unwell", Severity.WARNING, variables)


def _deadlines_missed(case: Case) -> Iterator[Finding]:
    outcomes = case.window.totals.outcomes
    count, ended = outcomes[Outcome.EXPIRED], sum(outcomes.values())
    if count >= FEW and count >= EXPIRED * ended:
        variables = {"count": str(count), "ended": str(ended), "percent": _percent(count / ended)}
        yield Finding("deadlines_missed", Severity.WARNING, variables)


def _requests_failed(case: Case) -> Iterator[Finding]:
    """For whatever reason: a node that fails often, or is lost, has its own sentence beside it."""
    outcomes = case.window.totals.outcomes
    count, ended = outcomes[Outcome.FAILED], sum(outcomes.values())
    if count >= FEW and count >= FAILED * ended:
        variables = {"count": str(count), "ended": str(ended), "percent": _percent(count / ended)}
        severity = Severity.CRITICAL if count >= FAILED_CRITICAL * ended else Severity.WARNING
        yield Finding("requests_failed", severity, variables)


def _node_slow(case: Case) -> Iterator[Finding]:
    """Compared with the other nodes of the same model, each with enough attempts."""
    means: dict[str, dict[str, Duration]] = {}  # by model and node
    for node_id, figures in sorted(case.window.sums.nodes.items()):
        for model, (number, total) in figures.latency.items():
            if number >= ATTEMPTS_MIN:
                means.setdefault(model, {})[node_id] = total // number
    for model, by_node in sorted(means.items()):
        for node_id, mean in by_node.items():
            others = [other for name, other in by_node.items() if name != node_id]
            median = numbers.median(others) if others else 0
            if others and mean > SLOW * median:
                variables = {"node": node_id, "model": model}
                variables |= {"latency": _seconds(mean), "median": _seconds(int(median))}
                yield Finding("node_slow", Severity.WARNING, variables)


def _degraded(case: Case) -> Iterator[Finding]:
    totals = case.window.totals
    if totals.degraded > FEW and totals.degraded >= DEGRADED * totals.received:
        share = totals.degraded / max(1, totals.received)
        variables = {"count": str(totals.degraded), "received": str(totals.received)}
        yield Finding(
            "degraded", Severity.INFO, {**variables, "percent": _percent(min(1.0, share))}
        )


def _batch_fill_low(case: Case) -> Iterator[Finding]:
    for pool, samples in case.pools():
        batches, inputs, room = case.window.sums.fills.get(pool, [0, 0, 0])
        waiting = _share(s.waiting > 0 for s in samples) >= MOST
        if waiting and batches >= BATCHES_MIN and inputs < FILL_LOW * room:
            variables = {"pool": pool, "batches": str(batches), "percent": _percent(inputs / room)}
            yield Finding("batch_fill_low", Severity.INFO, variables)


def _spans_lost(case: Case) -> Iterator[Finding]:
    if case.window.spans_lost:
        yield Finding("spans_lost", Severity.WARNING, {"count": str(case.window.spans_lost)})


def _in_order(case: Case) -> Sequence[Finding]:
    """Nothing is wrong: say so, or why that says little."""
    window, uptime_s = case.window, case.uptime // SECOND
    if uptime_s < STARTING_S and (not case.node_joined or len(window.samples) < SAMPLES_MIN):
        variables = {"seconds": str(uptime_s), "nodes": str(case.live_nodes)}
        return [Finding("starting", Severity.INFO, variables)]
    outcomes = window.totals.outcomes
    ended = sum(outcomes.values())
    if not ended and not window.totals.received and not any(s.waiting for s in _last(window)):
        return [Finding("idle", Severity.INFO, {"seconds": f"{window.span_s:.0f}"})]
    variables = {
        "succeeded": str(outcomes[Outcome.SUCCEEDED]),
        "ended": str(ended),
        "wait": _seconds(histogram.percentile(window.waits(), 0.99) or 0),
    }
    return [Finding("healthy", Severity.INFO, variables)]


def _last(window: Window) -> Iterable[PoolSample]:
    return window.samples[-1].pools.values() if window.samples else ()


# In the order in which equally severe ones are said.
_RULES: Final[tuple[Callable[[Case], Iterator[Finding]], ...]] = (
    _no_node,
    _pool_paused,
    _node_failing,
    _requests_failed,
    _rejects,
    _nodes_idle,
    _scaled_at_max,
    _queue_long,
    _wait_long,
    _node_lost,
    _engines_unwell,
    _deadlines_missed,
    _node_slow,
    _spans_lost,
    _degraded,
    _batch_fill_low,
)
