"""Titles that the command line itself writes, in the report's languages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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
    timeline: str = "Queue and slots over time"
    waits: str = "Waits by priority"
    tenants: str = "Tenants"
    costs: str = "Cost"
    pools: str = "Pools"
    rejects: str = "Refusals"
    slowest: str = "Slowest requests"
    pool: str = "POOL"
    priority: str = "PRIO"
    request_class: str = "CLASS"
    depth: str = "WAIT"
    p50: str = "P50"
    p99: str = "P99"
    tenant: str = "TENANT"
    dispatched: str = "STARTED"
    task_type: str = "TASK"
    requests: str = "REQUESTS"
    node_hours: str = "NODE H"
    tokens: str = "TOKENS"
    tokens_per_hour: str = "TOKENS/NODE H"
    cost: str = "COST"
    utilization: str = "USED"
    use_of_nodes: str = "Use of nodes"
    fill: str = "BATCH FILL"
    reason: str = "REASON"
    count: str = "COUNT"
    request: str = "REQUEST"
    took: str = "TOOK"
    queued: str = "QUEUED"
    end: str = "END"
    tries: str = "TRIES"
    trace: str = "TRACE"
    yes: str = "yes"
    no: str = "no"
    job: str = "job"
    interactive: str = "interactive"
    of_slots: str = "slots in use"


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
    timeline="队列与槽位变化",
    waits="各优先级等待",
    tenants="租户",
    costs="成本",
    pools="资源池",
    rejects="拒绝原因",
    slowest="最慢的请求",
    pool="池",
    priority="优先级",
    request_class="类别",
    depth="等待",
    p50="P50",
    p99="P99",
    tenant="租户",
    dispatched="已开始",
    task_type="任务",
    requests="请求",
    node_hours="节点小时",
    tokens="词元",
    tokens_per_hour="词元/节点小时",
    cost="费用",
    utilization="使用率",
    use_of_nodes="节点使用率",
    fill="批次装满",
    reason="原因",
    count="次数",
    request="请求",
    took="耗时",
    queued="排队",
    end="结果",
    tries="尝试",
    trace="追踪",
    yes="是",
    no="否",
    job="批量",
    interactive="在线",
    of_slots="使用中的槽位",
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


STATES_ZH = {
    "healthy": "正常",
    "starting": "启动中",
    "loading": "加载中",
    "stalled": "无响应",
    "down": "已停止",
    "no_model": "无模型",
    "suspect": "可疑",
    "probation": "观察中",
    "ejected": "已剔除",
    "lost": "失联",
    "cordoned": "已隔离",
    "draining": "排空中",
    "drained": "已排空",
}


def state_shown(words: Words, state: str) -> str:
    """The state of a node, in the language."""
    return STATES_ZH.get(state, state) if words is CHINESE else state


def truth(words: Words) -> Callable[[bool], str]:
    """Writes yes and no."""
    return lambda value: words.yes if value else words.no


def outcome_word(words: Words, key: str) -> str:
    """The name of one of the totals."""
    return OUTCOMES_ZH[key] if words is CHINESE and key in OUTCOMES_ZH else key.replace("_", " ")
