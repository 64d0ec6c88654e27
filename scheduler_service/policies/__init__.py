"""Which policies are there, by name? `build` makes the set that a configuration names.

Each answers one question of `core/interfaces.py`, is pure, and is described in `docs/policies.md`.
To add one: write it in its module, name it here, add its section there; the contract tests find it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from scheduler_service.core.interfaces import Ordering, PolicySet
from scheduler_service.policies import (
    admission,
    autoscale,
    batching,
    degrade,
    failover,
    filters,
    health,
    ordering,
    pickers,
    preempt,
    scorers,
)

ORDERING: Final = {
    "aged": ordering.Aged,
    "strict": ordering.Strict,
    "fair": ordering.Fair,
    "edf": ordering.Edf,
    "fifo": ordering.Fifo,
    "aged_uncapped": ordering.AgedUncapped,
}
PREEMPTION: Final = {"after_run": preempt.AfterRun, "never": preempt.Never}
ADMISSION: Final = {
    "bounded": admission.Bounded,
    "guarded": admission.Guarded,
    "shed": admission.Shed,
    "open": admission.Open,
}
FORMER: Final = {"windowed": batching.Windowed, "feasible": batching.Feasible}
FILTERS: Final = {
    "tried": filters.Tried,
    "task_type": filters.TaskType,
    "fits": filters.Fits,
    "resumable": filters.Resumable,
}
SCORER: Final = {"completion": scorers.Completion, "estimate": scorers.Estimate}
PICKER: Final = {"soonest": pickers.Soonest, "hot_cold": pickers.HotCold}
DEGRADE: Final = {
    "first_feasible": degrade.FirstFeasible,
    "pressed": degrade.Pressed,
    "never": degrade.Never,
}
FAILOVER: Final = {"backoff": failover.Backoff}
AUTOSCALE: Final = {
    "threshold": autoscale.Threshold,
    "law": autoscale.Law,
    "fixed": autoscale.Fixed,
}
HEALTH: Final = {"outlier": health.Outlier, "trusting": health.Trusting}

REGISTRY: Final[dict[str, Mapping[str, Callable[..., Any]]]] = {
    "order": ORDERING,
    "preempt": PREEMPTION,
    "admission": ADMISSION,
    "batch": FORMER,
    "filters": FILTERS,
    "score": SCORER,
    "pick": PICKER,
    "degrade": DEGRADE,
    "failover": FAILOVER,
    "autoscale": AUTOSCALE,
    "health": HEALTH,
}

DEFAULTS: Final = {
    "order": "aged",
    "preempt": "after_run",
    "admission": "bounded",
    "batch": "windowed",
    "score": "completion",
    "pick": "soonest",
    "degrade": "first_feasible",
    "failover": "backoff",
    "autoscale": "threshold",
    "health": "outlier",
}


class UnknownPolicyError(ValueError):
    """No policy of that name answers that question; the message lists those that do."""


def make(question: str, name: str, **options: Any) -> Any:
    """The policy `name` for `question`, with its options (see its class)."""
    known = REGISTRY[question]
    if name not in known:
        raise UnknownPolicyError(f"{question}: no policy {name!r}; known: {', '.join(known)}")
    return known[name](**options)


def build(
    names: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    orderings: Mapping[str, Ordering] | None = None,
) -> PolicySet:
    """The policies in force: `names` over the defaults, `options` by question, `orderings` of
    pools that have their own.
    """
    chosen = {**DEFAULTS, **(names or {})}
    given = options or {}

    def one(question: str) -> Any:
        return make(question, chosen[question], **given.get(question, {}))

    return PolicySet(
        ordering=one("order"),
        admission=one("admission"),
        former=one("batch"),
        filters=[filters.Tried(), filters.TaskType(), filters.Fits(), filters.Resumable()],
        scorer=one("score"),
        picker=one("pick"),
        degrade=one("degrade"),
        failover=one("failover"),
        autoscale=one("autoscale"),
        health=one("health"),
        preemption=one("preempt"),
        orderings=dict(orderings or {}),
    )
