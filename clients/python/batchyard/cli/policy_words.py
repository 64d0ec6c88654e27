"""What does each setting of a policy decide, in plain words?

By its path in the file; `*` stands for a name. A test compares the paths with the scheduler's.
"""

from __future__ import annotations

from typing import Final

_CHOICES: Final = {
    "order": "which waiting request goes next",
    "preempt": "when a running job item makes room for interactive work",
    "admission": "whether a request enters or is refused at once",
    "batch": "when a static batch is sent",
    "score": "how the time to completion on a node is estimated",
    "pick": "which of the scored nodes takes a request",
    "degrade": "which smaller model stands in, and when",
    "failover": "whether and when a failed attempt is tried again",
    "autoscale": "how many nodes a pool should have",
    "health": "when a node counts as an outlier",
}
_TIMES: Final = {
    "first_output": "longest time from dispatch to the first output of a stream",
    "idle": "longest silence between two pieces of output",
    "total": "longest time from dispatch to the end of an attempt",
}
_RIVALS: Final = {
    "enabled": "whether a slow attempt gets a rival on a second node",
    "share": "rivals per first attempt, at most",
    "least_delay": "no attempt is slow before",
}
_TASKS: Final = {
    "model": "model of requests that name none",
    "priority": "priority of requests that give none; 10 = most urgent",
    "max_wait": "longest wait of requests that give none",
    "timeout": "total time of requests that give none",
    "degrade": "models that may stand in, where a request names none",
    "expected_output_tokens": "output expected of a request without a limit of its own",
}

WORDS: Final[dict[str, str]] = {
    **{f"policies.{name}": words for name, words in _CHOICES.items()},
    **{f"policies.{name}.options.*": f"a parameter of: {w}" for name, w in _CHOICES.items()},
    "policies.order_by_model.*": "which waiting request of this model goes next",
    "policies.order_by_model.*.options.*": "a parameter of this model's order",
    "queue.max_requests": "interactive requests that may wait per pool",
    "queue.max_bytes": "bytes of all waiting requests together",
    "queue.floor_every": "of so many dispatches one goes to the oldest; 0: nothing is kept moving",
    "queue.headroom": "free slots that job items leave to interactive requests",
    "queue.weights.*": "share of this tenant; others have 1",
    "queue.learn_lengths": "whether lengths of outputs are learnt by tenant",
    "queue.no_node_grace": "how long a request waits for a first node of its model",
    "health.lost_memory": "how long a lost node is still shown",
    "health.refused_pause": "how long an engine that refused work is left alone",
    "health.eject_base": "how long an outlier gets no new work the first time",
    "health.eject_max": "how long an outlier gets no new work at most",
    "health.eject_share": "share of a pool's nodes that may be out as outliers",
    "health.keep_share": "share of a pool's nodes that always stays",
    "health.warm_up": "time in which a node that was out gets all its slots again",
    "health.warm_up_new": "time in which a new node gets all its slots",
    "failover.max_attempts": "attempts of a request that does not say",
    "failover.backoff_base": "first delay after an engine's error, at most",
    "failover.backoff_max": "any delay before another attempt, at most",
    "failover.retry_share": "retries that each first attempt pays for",
    "failover.retry_floor": "retries a second that are always allowed",
    "failover.retry_burst": "retries that a pool can save up",
    **{f"timeouts.{name}": words for name, words in _TIMES.items()},
    **{f"timeouts.by_model.*.{name}": f"of this model: {w}" for name, w in _TIMES.items()},
    **{f"hedging.{name}": words for name, words in _RIVALS.items()},
    **{f"hedging.by_model.*.{name}": f"of this model: {w}" for name, w in _RIVALS.items()},
    **{f"task_types.*.{name}": words for name, words in _TASKS.items()},
    "ladders.*": "models of a family, the best first",
    "default_model": "model of requests whose task type has none either",
    "autoscale.min": "nodes per pool at least",
    "autoscale.max": "nodes per pool at most",
    "autoscale.tick": "how often pools are looked at",
    "autoscale.queue": "scale out when so many interactive requests wait",
    "autoscale.wait": "scale out when the oldest waits longer",
    "autoscale.cooldown_out": "least time between two steps out",
    "autoscale.idle": "scale in after nothing waited or ran for this long",
    "autoscale.cooldown_in": "least time from any step to a step in",
    "autoscale.start_timeout": "how long a node that was asked for may take to join",
    "autoscale.drain_grace": "time for a node on its way out to finish what runs",
    "autoscale.cold_start": "from asking for a node to its hello, until one was measured",
    "autoscale.min_spare": "nodes kept beyond the need",
}


def words_of(path: str) -> str:
    """What the setting decides; empty: this version does not know it."""
    parts = path.split(".")
    for known, words in WORDS.items():
        pattern = known.split(".")
        if len(pattern) == len(parts) and all(
            p in ("*", part) for p, part in zip(pattern, parts, strict=True)
        ):
            return words
    return ""
