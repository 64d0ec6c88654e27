"""In which words are decisions explained? One table, every language that there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler_service.report.texts import Language

# What a request waits for, and what would make it run.
WAITS: Final[dict[str, dict[Language, str]]] = {
    "pool_paused": {
        "en": "An operator has paused {pool}; it runs after `batchyard queues resume {pool}`.",
        "zh": "运维人员暂停了 {pool}，执行 `batchyard queues resume {pool}` 后继续。",
    },
    "behind_others": {
        "en": "It waits its turn in {pool}: {ahead} go first; it runs when a slot comes to it.",
        "zh": "它在 {pool} 中排队：前面还有 {ahead} 个请求，轮到它并有空槽位时运行。",
    },
    "no_credit": {
        "en": "All that could run it in {pool} is full; it runs when a slot becomes free.",
        "zh": "{pool} 中能运行它的节点都已满，有槽位空出后运行。",
    },
    "loading": {
        "en": "{pool} is being loaded: it runs when a first request of it was answered.",
        "zh": "{pool} 正在加载，应答第一个预热请求后运行。",
    },
    "engines_unwell": {
        "en": "Engines that have {pool} hang or are gone: `batchyard nodes show NODE` says why.",
        "zh": "装有 {pool} 的推理引擎无响应或已停止：`batchyard nodes show NODE` 会说明原因。",
    },
    "no_node": {
        "en": "No node takes work for {pool}: start an agent that has it, or uncordon one.",
        "zh": "没有节点为 {pool} 接收工作：请启动装有该模型的代理，或恢复被隔离的节点。",
    },
    "no_fit": {
        "en": "No node of {pool} can take this request ({words}): it needs another kind of node.",
        "zh": "{pool} 中没有节点能接收这个请求（{words}）：需要另一种节点。",
    },
    "retry_later": {
        "en": "Its last attempt failed; it goes back into the queue when its back-off is over.",
        "zh": "上一次尝试失败，退避时间结束后重新进入队列。",
    },
}
AHEAD: Final[dict[str, dict[Language, str]]] = {
    "calls": {"en": "{count} open calls", "zh": "{count} 个在线请求"},
    "urgent": {"en": "{count} of priority {priority}", "zh": "{count} 个优先级 {priority} 的请求"},
    "older": {
        "en": "{count} of its own priority {priority} that came before it",
        "zh": "{count} 个相同优先级 {priority}、更早到达的请求",
    },
    "priority": {
        "en": "10 = most urgent; waiting adds to a priority, tenants take turns within one",
        "zh": "10 = 最紧急；等待会提升优先级，同级内各租户轮流",
    },
    "jobs_last": {
        "en": "open calls go before items of jobs, these by priority and age",
        "zh": "在线请求先于批量任务的条目，条目之间按优先级和到达时间",
    },
}
JOIN: Final[dict[Language, str]] = {"en": ", ", "zh": "，"}
REASONS: Final[dict[str, dict[Language, str]]] = {
    "admit": {"en": "priority {priority}, {task_type}", "zh": "优先级 {priority}，{task_type}"},
    "order": {
        "en": "it was next by order, after {wait} s in the queue",
        "zh": "在队列中等待 {wait} 秒后按顺序轮到",
    },
    "floor": {
        "en": "the floor gave it a turn as the oldest, after {wait} s in the queue",
        "zh": "在队列中等待 {wait} 秒后，作为最久的请求由保底机制选中",
    },
    "hedge": {
        "en": "its attempt was slower than nearly all, so it was sent to a second node as well",
        "zh": "当前尝试比绝大多数都慢，因此同时发往第二个节点",
    },
    "rival": {
        "en": "a slot was free there that nobody waited for",
        "zh": "该节点有空闲槽位且没有请求在等待",
    },
    "revoke": {
        "en": "another attempt answered first",
        "zh": "另一次尝试先给出了应答",
    },
    "batch": {
        "en": "{size} together; closed by {close_reason}",
        "zh": "共 {size} 个请求，因 {close_reason} 关闭",
    },
    "place": {
        "en": "the earliest expected end of {eligible} that could take it",
        "zh": "在 {eligible} 个可用引擎中预计最早完成",
    },
    "joined": {
        "en": "it joined a batch that went there",
        "zh": "它加入了发往该节点的批次",
    },
    "forgotten": {
        "en": "the other candidates are no longer remembered",
        "zh": "其他候选节点已不再保留",
    },
    "degrade": {
        "en": "{to} answers instead of {from}: {why}",
        "zh": "由 {to} 代替 {from} 应答：{why}",
    },
    "preempt": {
        "en": "urgent work needed its slot",
        "zh": "紧急工作需要它的槽位",
    },
    "fail_over": {
        "en": "attempt {number} on {node} ended with {error}",
        "zh": "在 {node} 上的第 {number} 次尝试以 {error} 结束",
    },
    "finish": {"en": "{error}", "zh": "{error}"},
}


def say(
    table: Mapping[str, Mapping[Language, str]],
    code: str,
    language: Language,
    variables: Mapping[str, object],
) -> str:
    """The text of a code, filled in."""
    return table[code][language].format_map(variables)
