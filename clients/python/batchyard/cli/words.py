"""Titles that the command line itself writes, in the report's languages."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.cli.columns import Column, clock, duration, number, share


@dataclass(frozen=True, slots=True)
class Words:
    """One language; the text of the diagnosis comes from the scheduler in the same language."""

    window: str = "window"
    generated: str = "generated"
    queue: str = "Queue"
    waiting: str = "waiting"
    oldest: str = "oldest wait"
    priority_note: str = "10 = most urgent"
    nodes: str = "Nodes"
    totals: str = "Totals"
    since_start: str = "since start"
    in_window: str = "in the window"
    diagnosis: str = "Diagnosis"
    events: str = "Recent events"
    scale: str = "Scale"
    nothing_waits: str = "nothing waits"
    node: str = "NODE"
    model: str = "MODEL"
    state: str = "STATE"
    running: str = "RUN"
    slots: str = "SLOTS"
    max_batch_size: str = "BATCH"
    avg_latency_ms: str = "AVG"
    failure_rate: str = "FAIL"
    can_accept: str = "ACCEPTS"
    total_finished: str = "OK"
    total_failed: str = "FAILED"
    time: str = "TIME"
    event: str = "EVENT"
    detail: str = "DETAIL"
    outcome: str = "OUTCOME"


ENGLISH = Words()
CHINESE = Words(
    window="统计窗口",
    generated="生成时间",
    queue="队列",
    waiting="等待",
    oldest="最久等待",
    priority_note="10 = 最紧急",
    nodes="节点",
    totals="合计",
    since_start="启动以来",
    in_window="窗口内",
    diagnosis="诊断",
    events="最近事件",
    scale="扩缩容",
    nothing_waits="没有等待的请求",
    node="节点",
    model="模型",
    state="状态",
    running="运行",
    slots="槽位",
    max_batch_size="批次",
    avg_latency_ms="延迟",
    failure_rate="失败率",
    can_accept="接收",
    total_finished="完成",
    total_failed="失败",
    time="时间",
    event="事件",
    detail="内容",
    outcome="结果",
)
LANGUAGES = {"en": ENGLISH, "zh": CHINESE}
OUTCOMES_ZH = {
    "received": "收到",
    "succeeded": "成功",
    "failed": "失败",
    "rejected": "拒绝",
    "cancelled": "取消",
    "expired": "过期",
    "degraded": "降级",
    "failovers": "故障转移",
    "preemptions": "抢占",
    "batches": "批次",
    "input_tokens": "输入词元",
    "output_tokens": "输出词元",
    "wasted_output_tokens": "浪费词元",
    "late_results": "迟到结果",
}


def outcome_word(words: Words, key: str) -> str:
    """The name of one of the totals."""
    return OUTCOMES_ZH[key] if words is CHINESE and key in OUTCOMES_ZH else key.replace("_", " ")


def report_node_columns(words: Words) -> tuple[Column, ...]:
    """The nodes of a report."""
    return (
        Column("node_id", words.node, cut=True, keep_end=True),
        Column("model_name", words.model, cut=True),
        Column("state", words.state),
        number("running", words.running),
        number("slots", words.slots),
        number("max_batch_size", words.max_batch_size),
        duration("avg_latency_ms", words.avg_latency_ms),
        share("failure_rate", words.failure_rate),
        Column("can_accept", words.can_accept),
        number("total_finished", words.total_finished),
        number("total_failed", words.total_failed),
    )


def event_columns(words: Words) -> tuple[Column, ...]:
    """The events of a report, each on one line."""
    return (
        Column("time", words.time, show=clock),
        Column("event", words.event),
        Column("detail", words.detail, fold=True),
    )
