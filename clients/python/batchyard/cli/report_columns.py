"""The columns of a report's tables, titled in its language."""

from __future__ import annotations

from batchyard.cli.columns import Column, Document, clock, duration, number, share, slots
from batchyard.cli.words import Words, state_shown, truth


def report_node_columns(words: Words) -> tuple[Column, ...]:
    """The nodes of a report."""
    return (
        Column("node_id", words.node, cut=True, keep_end=True),
        Column("model_name", words.model, cut=True),
        Column("state", words.state, show=lambda state: state_shown(words, state)),
        number("running", words.running),
        slots(words.slots),
        number("max_batch_size", words.max_batch_size),
        duration("avg_latency_ms", words.avg_latency_ms),
        share("failure_rate", words.failure_rate),
        Column("can_accept", words.can_accept, show=truth(words)),
        number("total_finished", words.total_finished),
        number("total_failed", words.total_failed),
    )


def use_columns(words: Words) -> tuple[Column, ...]:
    """How much of each node's slot time was used."""
    return (Column("node_id", words.node), share("utilization", words.utilization))


def wait_columns(words: Words) -> tuple[Column, ...]:
    """Queues of a report."""
    classes = {"job": words.job, "interactive": words.interactive}
    return (
        Column("pool", words.pool, cut=True),
        number("priority", words.priority),
        Column("request_class", words.request_class, show=lambda each: classes.get(each, each)),
        number("depth", words.depth),
        duration("oldest_wait_ms", words.oldest),
        duration("wait_p50_ms", words.p50),
        duration("wait_p99_ms", words.p99),
    )


def tenant_columns(words: Words) -> tuple[Column, ...]:
    """Tenants of a report."""
    return (
        Column("tenant", words.tenant, cut=True),
        number("dispatched", words.dispatched),
        duration("wait_p50_ms", words.p50),
        duration("wait_p99_ms", words.p99),
    )


def cost_columns(words: Words) -> tuple[Column, ...]:
    """Costs of a report."""
    return (
        Column("tenant", words.tenant, cut=True),
        Column("model", words.model, cut=True),
        Column("task_type", words.task_type),
        number("requests", words.requests),
        Column("node_hours", words.node_hours, show=lambda hours: f"{hours:.4f}", right=True),
        number("output_tokens", words.tokens),
        Column("tokens_per_node_hour", words.tokens_per_hour, show=_whole, right=True),
        Column("cost", words.cost, show=_money, right=True),
    )


def pool_columns(words: Words) -> tuple[Column, ...]:
    """Pools of a report."""
    return (
        Column("pool", words.pool, cut=True),
        number("running", words.running),
        number("slots", words.slots),
        share("batch_fill", words.fill),
        Column("scale", words.scale, show=_target),
    )


def slowest_columns(words: Words) -> tuple[Column, ...]:
    """The slowest requests of a report."""
    return (
        Column("request_id", words.request, cut=True, keep_end=True),
        duration("age_ms", words.took),
        duration("queue_duration_ms", words.queued),
        Column("finish_reason", words.end),
        number("priority", words.priority),
        Column("model", words.model, cut=True),
        Column("node_id", words.node, cut=True, keep_end=True),
        number("attempts", words.tries),
        Column("trace_id", words.trace, cut=True),
    )


def reject_columns(words: Words) -> tuple[Column, ...]:
    """Refusals of a report."""
    return (Column("reason", words.reason), number("count", words.count))


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _money(value: Document | None) -> str:
    return "-" if value is None else f"{value['micros'] / 1e6:.4f} {value['currency']}"


def _target(scale: Document | None) -> str:
    if scale is None:
        return "-"
    return f"{scale['ready']} + {scale['starting']} / {scale['desired']}"


def event_columns(words: Words) -> tuple[Column, ...]:
    """The events of a report, each on one line."""
    return (
        Column("time", words.time, show=clock),
        Column("event", words.event),
        Column("detail", words.detail, fold=True),
    )
