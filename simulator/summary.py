"""How did a run go? One record of plain numbers per run, for tables, JSON and reports.

Definitions, the same for every policy:

- wait: time in the queue over all stays; ttft: from submission to the first output; total: to the
  outcome. Quantiles are of the requests that succeeded.
- attained: the share of all requests that were submitted, rejected and failed ones included, that
  succeeded within the objective; a request with a deadline of its own has to keep that too.
- utilisation: input-time spent in engines over slot-time of nodes that were up.
- cost: node-hours by price, cold starts included; per tenant and model by the share of slot time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from scheduler_service.core import records
from scheduler_service.core.outcomes import Outcome
from scheduler_service.core.types import NEVER, SECOND, Duration
from simulator.fleet import Fleet
from simulator.metrics import OUTCOMES, Metrics, Rows

TOP_TENANTS: Final = 10
_SUCCEEDED: Final = OUTCOMES.index(Outcome.SUCCEEDED)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What counts as served well."""

    wait: Duration = NEVER
    ttft: Duration = NEVER
    total: Duration = NEVER


@dataclass(kw_only=True)
class Spread:
    """Of one duration, in seconds."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    most: float = 0.0


@dataclass(kw_only=True)
class Part:
    """Of the requests of one priority, of one tenant, or of all."""

    requests: int = 0
    succeeded: int = 0
    attained: float = 0.0
    wait: Spread = field(default_factory=Spread)
    ttft: Spread = field(default_factory=Spread)
    total: Spread = field(default_factory=Spread)
    output_tokens: int = 0


@dataclass(kw_only=True)
class Summary:
    """One run."""

    name: str = ""
    seed: int = 0
    span_s: float = 0.0
    requests: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)  # of what did not succeed
    all: Part = field(default_factory=Part)
    priorities: dict[int, Part] = field(default_factory=dict)  # most urgent first
    tenants: dict[str, Part] = field(default_factory=dict)  # those with the most requests
    requests_per_s: float = 0.0  # that succeeded
    output_tokens_per_s: float = 0.0
    input_tokens_per_s: float = 0.0
    utilisation: float = 0.0
    node_hours: float = 0.0
    cost: float = 0.0
    cost_per_tenant: dict[str, float] = field(default_factory=dict)
    cost_per_model: dict[str, float] = field(default_factory=dict)
    rejected: int = 0
    degraded: int = 0
    failovers: int = 0
    hedges: int = 0
    preempted: int = 0
    scale_turns: int = 0  # steps of scaling
    log_digest: str = ""
    log_lines: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of all do not exceed; 0 where there is none."""
    if not ordered:
        return 0
    rank = -(-len(ordered) * round(share * 10_000) // 10_000)
    return ordered[max(0, min(len(ordered), rank) - 1)]


def spread(values: Iterable[int]) -> Spread:
    """Of nanoseconds."""
    ordered = sorted(values)
    if not ordered:
        return Spread()
    return Spread(
        mean=sum(ordered) / len(ordered) / SECOND,
        p50=quantile(ordered, 0.5) / SECOND,
        p90=quantile(ordered, 0.9) / SECOND,
        p99=quantile(ordered, 0.99) / SECOND,
        most=ordered[-1] / SECOND,
    )


def summarise(
    metrics: Metrics, fleet: Fleet | None = None, objective: Objective | None = None
) -> Summary:
    """The whole run."""
    aim, rows = objective or Objective(), metrics.rows
    span = max(1, metrics.ended_at - max(0, metrics.started_at))
    everything = range(len(rows))
    whole = part(rows, everything, aim)
    events = metrics.events
    summary = Summary(
        span_s=span / SECOND,
        requests=metrics.submitted,
        outcomes={o.value: rows.outcome.count(n) for n, o in enumerate(OUTCOMES)},
        reasons=dict(sorted(metrics.reasons.items())),
        all=whole,
        priorities={p: part(rows, i, aim) for p, i in _by_priority(rows)},
        tenants={name: part(rows, i, aim) for name, i in _by_tenant(metrics)},
        requests_per_s=whole.succeeded * SECOND / span,
        output_tokens_per_s=whole.output_tokens * SECOND / span,
        input_tokens_per_s=sum(rows.prompt_tokens[i] for i in _good(rows)) * SECOND / span,
        rejected=rows.outcome.count(OUTCOMES.index(Outcome.REJECTED)),
        degraded=sum(rows.degraded),
        failovers=events[records.FAILOVER],
        hedges=events[records.HEDGED],
        preempted=events[records.PREEMPTED],
        scale_turns=events[records.SCALE_OUT] + events[records.SCALE_IN],
    )
    if fleet is not None:
        _bill(summary, metrics, fleet)
    return summary


def part(rows: Rows, indexes: Sequence[int], aim: Objective) -> Part:
    """Of those rows."""
    good = [i for i in indexes if rows.outcome[i] == _SUCCEEDED]
    met = sum(_attained(rows, i, aim) for i in good)
    return Part(
        requests=len(indexes),
        succeeded=len(good),
        attained=met / len(indexes) if indexes else 1.0,
        wait=spread(rows.wait[i] for i in good),
        ttft=spread(rows.first_output[i] for i in good if rows.first_output[i] >= 0),
        total=spread(rows.total[i] for i in good),
        output_tokens=sum(rows.output_tokens[i] for i in good),
    )


def _attained(rows: Rows, index: int, aim: Objective) -> bool:
    return (
        rows.wait[index] <= aim.wait
        and rows.first_output[index] <= aim.ttft
        and rows.total[index] <= aim.total
        and rows.submitted[index] + rows.total[index] <= rows.deadline[index]
    )


def _good(rows: Rows) -> Iterable[int]:
    return (i for i in range(len(rows)) if rows.outcome[i] == _SUCCEEDED)


def _by_priority(rows: Rows) -> list[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for index, priority in enumerate(rows.priority):
        found.setdefault(priority, []).append(index)
    return sorted(found.items(), reverse=True)


def _by_tenant(metrics: Metrics) -> list[tuple[str, list[int]]]:
    """The largest ones, by number and then by name; none where there is but one."""
    if len(metrics.tenants) < 2:
        return []
    found: list[list[int]] = [[] for _ in metrics.tenants]
    for index, tenant in enumerate(metrics.rows.tenant):
        found[tenant].append(index)
    named = [(name, found[number]) for name, number in metrics.tenants.items()]
    named.sort(key=lambda pair: (-len(pair[1]), pair[0]))
    return named[:TOP_TENANTS]


def _bill(summary: Summary, metrics: Metrics, fleet: Fleet) -> None:
    summary.node_hours = fleet.node_hours()
    summary.cost = fleet.cost()
    summary.utilisation = fleet.busy() / max(1, fleet.capacity())
    price = {g.kind.name: g.kind.price_per_hour / g.kind.slots for g in fleet.groups}
    for (kind, tenant, model), slot_time in sorted(metrics.slot_time.items()):
        cost = slot_time / (3600 * SECOND) * price.get(kind, 0.0)
        for table, name in (
            (summary.cost_per_tenant, tenant or "-"),
            (summary.cost_per_model, model),
        ):
            table[name] = table.get(name, 0.0) + cost
