"""In which words are events told? One table, every language that there is.

Variables in braces are fields of the event or of its record; `count` is `REQUESTS` of a batch.
"""

from __future__ import annotations

from typing import Final

from scheduler_service.core import records
from scheduler_service.report.texts import Language

TEXTS: Final[dict[str, dict[Language, str]]] = {
    records.SUBMIT: {
        "en": "request {request_id} waits for {model}",
        "zh": "请求 {request_id} 等待 {model}",
    },
    records.DISPATCH_BATCH: {
        "en": "{count} sent to {node_id}",
        "zh": "{count} 已发往 {node_id}",
    },
    records.BATCH_FINISHED: {
        "en": "{count} ended on {node_id}",
        "zh": "{count} 在 {node_id} 上结束",
    },
    records.NO_AVAILABLE_NODE: {
        "en": "no live node serves {pool}; {waiting} waiting",
        "zh": "没有存活的节点能运行 {pool}；{waiting} 个请求在等待",
    },
    records.SCALE_OUT: {
        "en": "{pool}: {source} to {target} nodes, {reason}",
        "zh": "{pool}：节点数 {source} 增至 {target}，{reason}",
    },
    records.SCALE_IN: {
        "en": "{pool}: {source} to {target} nodes, {reason}",
        "zh": "{pool}：节点数 {source} 减至 {target}，{reason}",
    },
    records.SCALE_FAILED: {
        "en": "{pool}: nodes could not be started: {message}",
        "zh": "{pool}：无法启动节点：{message}",
    },
    records.NODE_JOINED: {
        "en": "node {node_id} joined",
        "zh": "节点 {node_id} 加入",
    },
    records.NODE_SUSPECT: {
        "en": "node {node_id} is suspect: {reason}",
        "zh": "节点 {node_id} 可疑：{reason}",
    },
    records.NODE_LOST: {
        "en": "node {node_id} is lost: {reason}; {in_flight} in flight there",
        "zh": "节点 {node_id} 失联：{reason}；其上有 {in_flight} 个请求在运行",
    },
    records.NODE_RECOVERED: {
        "en": "node {node_id} is heard again",
        "zh": "节点 {node_id} 恢复联系",
    },
    records.NODE_EJECTED: {
        "en": "node {node_id} gets no new work for {duration_s} s: {reason}",
        "zh": "节点 {node_id} 在 {duration_s} 秒内不接收新工作：{reason}",
    },
    records.NODE_REFUSED: {
        "en": "another agent claims the id of node {node_id} and was refused",
        "zh": "另一个代理使用了节点 {node_id} 的标识，已被拒绝",
    },
    records.NODE_CORDONED: {
        "en": "node {node_id} gets no new work",
        "zh": "节点 {node_id} 不再接收新工作",
    },
    records.NODE_UNCORDONED: {
        "en": "node {node_id} gets work again",
        "zh": "节点 {node_id} 重新接收工作",
    },
    records.NODE_DRAINING: {
        "en": "node {node_id} drains; {in_flight} in flight there",
        "zh": "节点 {node_id} 正在排空；其上有 {in_flight} 个请求在运行",
    },
    records.NODE_DRAINED: {
        "en": "node {node_id} is drained: {finished} finished, {moved} moved, {lost} lost",
        "zh": "节点 {node_id} 已排空：{finished} 个完成，{moved} 个转移，{lost} 个丢失",
    },
    records.FAILOVER: {
        "en": "request {request_id} moves on from {node_id}: {reason}",
        "zh": "请求 {request_id} 从 {node_id} 转移：{reason}",
    },
    records.DEGRADED: {
        "en": "request {request_id} goes to {model} instead of {source}: {reason}",
        "zh": "请求 {request_id} 由 {model} 代替 {source}：{reason}",
    },
    records.REJECTED: {
        "en": "request {request_id} was refused: {message}",
        "zh": "请求 {request_id} 被拒绝：{message}",
    },
    records.CANCELLED: {
        "en": "request {request_id} was cancelled",
        "zh": "请求 {request_id} 被取消",
    },
    records.EXPIRED: {
        "en": "request {request_id} expired: {message}",
        "zh": "请求 {request_id} 超时：{message}",
    },
    records.FAILED: {
        "en": "request {request_id} failed: {message}",
        "zh": "请求 {request_id} 失败：{message}",
    },
    records.PREEMPTED: {
        "en": "request {request_id} made room on {node_id}",
        "zh": "请求 {request_id} 在 {node_id} 上让出槽位",
    },
    records.POOL_PAUSED: {
        "en": "{pool} is paused; {waiting} wait",
        "zh": "{pool} 已暂停；{waiting} 个请求在等待",
    },
    records.POOL_RESUMED: {
        "en": "{pool} dispatches again; {waiting} wait",
        "zh": "{pool} 恢复派发；{waiting} 个请求在等待",
    },
    records.AUTOSCALE_FROZEN: {
        "en": "the autoscaler of {pool} is frozen",
        "zh": "{pool} 的自动扩缩容已冻结",
    },
    records.AUTOSCALE_UNFROZEN: {
        "en": "the autoscaler of {pool} acts again",
        "zh": "{pool} 的自动扩缩容恢复",
    },
    records.LOG_LEVEL_SET: {
        "en": "log level of {logger}: {level}",
        "zh": "{logger} 的日志级别：{level}",
    },
    records.REQUESTS_CANCELLED: {
        "en": "{requests} open requests were cancelled: {filter}",
        "zh": "{requests} 个未完成的请求被取消：{filter}",
    },
    records.ACCESS_GRANTED: {
        "en": "access was granted: {what}",
        "zh": "授予访问权限：{what}",
    },
    records.ACCESS_CHANGED: {
        "en": "access was changed by hand: {what}",
        "zh": "访问权限被手工修改：{what}",
    },
    records.ACCESS_REVOKED: {
        "en": "access was revoked: {what}",
        "zh": "撤销访问权限：{what}",
    },
    records.POLICY_UPDATED: {
        "en": "policies changed: {changes}",
        "zh": "策略已更改：{changes}",
    },
    records.MODEL_LOAD: {
        "en": "{engine} of {node_id} is to load {pool}",
        "zh": "{node_id} 的 {engine} 将加载 {pool}",
    },
    records.MODEL_LOADED: {
        "en": "{engine} of {node_id} has loaded {pool}",
        "zh": "{node_id} 的 {engine} 已加载 {pool}",
    },
    records.MODEL_UNLOAD: {
        "en": "{engine} of {node_id} is to unload {pool}",
        "zh": "{node_id} 的 {engine} 将卸载 {pool}",
    },
    records.MODEL_UNLOADED: {
        "en": "{engine} of {node_id} has unloaded {pool}",
        "zh": "{node_id} 的 {engine} 已卸载 {pool}",
    },
    records.MODEL_FAILED: {
        "en": "{pool} on {engine} of {node_id}: {message}",
        "zh": "{node_id} 的 {engine} 上的 {pool}：{message}",
    },
    records.LEDGER_HEALED: {
        "en": "the books of {node_id} were corrected: {what}",
        "zh": "{node_id} 的账目已更正：{what}",
    },
    records.JOB_CREATED: {
        "en": "job {job_id} is stored: {items} items",
        "zh": "批量任务 {job_id} 已保存：{items} 个条目",
    },
    records.JOB_CANCELLED: {
        "en": "job {job_id} is to end: {reason}",
        "zh": "批量任务 {job_id} 被要求结束：{reason}",
    },
    records.JOB_FINISHED: {
        "en": (
            "job {job_id} ended as {state}: {succeeded} of {items} succeeded, {failed} failed, "
            "{cancelled} cancelled, {expired} expired"
        ),
        "zh": (
            "批量任务 {job_id} 以 {state} 结束：{items} 个条目中成功 {succeeded}、失败 {failed}、"
            "取消 {cancelled}、超时 {expired}"
        ),
    },
    records.SUSPECTED: {
        "en": "request {request_id} was on nodes that failed ({nodes}): it runs alone",
        "zh": "请求 {request_id} 曾在失败的节点上运行（{nodes}）：它将单独运行",
    },
    records.HEDGED: {
        "en": (
            "request {request_id} is slow on {slow_node} after {after_ms} ms: "
            "it runs on {node_id}, too"
        ),
        "zh": (
            "请求 {request_id} 在 {slow_node} 上 {after_ms} 毫秒仍未应答：同时在 {node_id} 上运行"
        ),
    },
    records.POISONED: {
        "en": "request {request_id} makes nodes fail ({nodes}): it is not run again",
        "zh": "请求 {request_id} 导致节点失败（{nodes}）：不再运行",
    },
}
# Of a batch: one, or several.
REQUESTS: Final[dict[Language, tuple[str, str]]] = {
    "en": ("1 request", "{number} requests"),
    "zh": ("1 个请求", "{number} 个请求"),
}
# What was found of a node when its books were corrected, by `what` of the record.
HEALED: Final[dict[str, dict[Language, str]]] = {
    "lost": {
        "en": "it no longer holds an attempt of {request_id}, which goes elsewhere if still wanted",
        "zh": "它不再持有 {request_id} 的一次尝试；如仍需要，该请求将转到其他节点",
    },
    "unknown": {
        "en": "it holds what is none of ours ({items}), and is told to stop it",
        "zh": "它持有不属于本调度器的条目（{items}），已要求其停止",
    },
}
# Before what a caller said of a cancellation, or an agent of why it leaves.
COLON: Final[dict[Language, str]] = {"en": ": ", "zh": "："}
