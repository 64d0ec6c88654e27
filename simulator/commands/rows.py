"""What does a program that reads a pipe get of runs? One row for each run, priority and tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scheduler_service.core.outcomes import Outcome
from simulator.summary import Part, Summary

TIMES: Final = ("wait", "ttft", "total")
UNHAPPY: Final = [outcome for outcome in Outcome if outcome is not Outcome.SUCCEEDED]


def run_rows(summaries: Sequence[Summary]) -> dict[str, list[dict[str, Any]]]:
    """Lists by name, keys as in JSON."""
    return {
        "runs": [_run(summary) for summary in summaries],
        "priorities": [
            {"run": summary.name, "priority": priority, **_part(part)}
            for summary in summaries
            for priority, part in summary.priorities.items()
        ],
        "tenants": [
            {"run": summary.name, "tenant": tenant, **_part(part)}
            for summary in summaries
            for tenant, part in summary.tenants.items()
        ],
    }


def _run(summary: Summary) -> dict[str, Any]:
    return {
        "name": summary.name,
        **_part(summary.all),
        **{o.value: summary.outcomes.get(o.value, 0) for o in UNHAPPY},
        "requests_per_s": summary.requests_per_s,
        "output_tokens_per_s": summary.output_tokens_per_s,
        "utilisation": summary.utilisation,
        "node_hours": summary.node_hours,
        "cost": summary.cost,
        "degraded": summary.degraded,
        "failovers": summary.failovers,
        "preempted": summary.preempted,
        "scale_turns": summary.scale_turns,
    }


def _part(part: Part) -> dict[str, Any]:
    times = {}
    for name in TIMES:
        spread = getattr(part, name)
        times[f"{name}_p50_s"], times[f"{name}_p99_s"] = spread.p50, spread.p99
    return {
        "requests": part.requests,
        "succeeded": part.succeeded,
        "attained": part.attained,
        **times,
    }
