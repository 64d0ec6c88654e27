"""In which words is the report told? One table, every language that there is.

A sentence says what is so; its reason gives the figures. Variables in braces are those of
`Diagnosis.metadata`: numbers as text, seconds and percents without their sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Language = Literal["en", "zh"]
LANGUAGES: Final[tuple[Language, ...]] = ("en", "zh")

REPORT_NAME: Final[dict[Language, str]] = {
    "en": "Batchyard inference scheduling report",
    "zh": "Batchyard 推理调度报告",
}

# code: language: (sentence, reason)
SENTENCES: Final[dict[str, dict[Language, tuple[str, str]]]] = {
    "no_node": {
        "en": (
            "No live node serves {pool}: start an agent that has it.",
            "{waiting} requests waited without a node, for {seconds} s.",
        ),
        "zh": (
            "没有存活的节点能运行 {pool}，请启动装有该模型的代理。",
            "{waiting} 个请求在没有节点的情况下等待，持续 {seconds} 秒。",
        ),
    },
    "pool_paused": {
        "en": (
            "An operator has paused {pool}: `batchyard queues resume {pool}` when it is time.",
            "{waiting} interactive requests wait for it now.",
        ),
        "zh": (
            "运维人员暂停了 {pool}，适当时执行 `batchyard queues resume {pool}`。",
            "目前有 {waiting} 个交互请求在等待。",
        ),
    },
    "node_failing": {
        "en": (
            "Node {node} fails often: look at its log and its engine.",
            "{failed} of its {ended} attempts failed ({percent} %).",
        ),
        "zh": (
            "节点 {node} 频繁失败，请检查它的日志和推理引擎。",
            "它的 {ended} 次尝试中有 {failed} 次失败（{percent}%）。",
        ),
    },
    "rejects": {
        "en": (
            "Requests are refused, mostly with {reason}.",
            "{count} of {received} requests were refused ({percent} %).",
        ),
        "zh": (
            "有请求被拒绝，主要原因是 {reason}。",
            "{received} 个请求中有 {count} 个被拒绝（{percent}%）。",
        ),
    },
    "nodes_idle": {
        "en": (
            "Requests for {pool} wait although nodes are idle: see why they take none.",
            "For {percent} % of the window {waiting} waited on average and {idle} nodes were idle.",
        ),
        "zh": (
            "{pool} 有请求在等待，却有节点空闲，请查看节点为何不接收请求。",
            "在 {percent}% 的时间里，平均有 {waiting} 个请求等待，同时有 {idle} 个节点空闲。",
        ),
    },
    "scaled_at_max": {
        "en": (
            "{pool} runs at its most nodes, and that is too few: raise autoscale.max.",
            "{nodes} of at most {max} nodes, under pressure for {percent} % of the window.",
        ),
        "zh": (
            "{pool} 的节点数已达上限仍然不够，请提高 autoscale.max。",
            "节点数 {nodes}，上限 {max}，在 {percent}% 的时间里处于压力之下。",
        ),
    },
    "queue_long": {
        "en": (
            "The queue of {pool} is long: its nodes do not keep up.",
            "{waiting} waited on average; {threshold} or more for {percent} % of the window.",
        ),
        "zh": (
            "{pool} 的队列过长，节点处理不过来。",
            "平均有 {waiting} 个请求等待；在 {percent}% 的时间里达到 {threshold} 个或更多。",
        ),
    },
    "wait_long": {
        "en": (
            "Requests for {pool} wait long.",
            "Some waited over {threshold} s for {percent} % of the window, up to {seconds} s.",
        ),
        "zh": (
            "{pool} 的请求等待时间过长。",
            "在 {percent}% 的时间里，最久的请求等待超过 {threshold} 秒，最长 {seconds} 秒。",
        ),
    },
    "node_lost": {
        "en": (
            "Nodes were lost; what ran there was run elsewhere.",
            "{count} in the window: {nodes}.",
        ),
        "zh": (
            "有节点失联，其上的工作已转移到其他节点。",
            "时间窗口内共 {count} 个：{nodes}。",
        ),
    },
    "engines_unwell": {
        "en": (
            "Nodes serve nothing, for their engines hang or are gone: {nodes}.",
            "{count} of them now; `batchyard nodes show {node}` says what its engine said.",
        ),
        "zh": (
            "有节点因推理引擎无响应或已停止而无法服务：{nodes}。",
            "目前共 {count} 个；`batchyard nodes show {node}` 会显示引擎给出的原因。",
        ),
    },
    "requests_failed": {
        "en": (
            "Requests fail; the events `failed` say why.",
            "{count} of {ended} requests failed ({percent} %).",
        ),
        "zh": (
            "有请求失败，原因见 failed 事件。",
            "{ended} 个请求中有 {count} 个失败（{percent}%）。",
        ),
    },
    "deadlines_missed": {
        "en": (
            "Requests run out of time.",
            "{count} of {ended} requests expired ({percent} %).",
        ),
        "zh": (
            "有请求超时。",
            "{ended} 个请求中有 {count} 个超时（{percent}%）。",
        ),
    },
    "node_slow": {
        "en": (
            "Node {node} is slow with {model}.",
            "It takes {latency} s on average, the others {median} s.",
        ),
        "zh": (
            "节点 {node} 运行 {model} 较慢。",
            "它平均需要 {latency} 秒，其他节点为 {median} 秒。",
        ),
    },
    "spans_lost": {
        "en": (
            "Traces are incomplete: see whether their collector can be reached and keeps up.",
            "{count} spans of the scheduler were lost in the window; requests are not touched.",
        ),
        "zh": (
            "链路追踪不完整，请检查采集器是否可达、是否跟得上。",
            "时间窗口内丢失了调度器的 {count} 个跨度；请求不受影响。",
        ),
    },
    "degraded": {
        "en": (
            "Requests are answered by a smaller model than they asked for.",
            "{count} of {received} requests were degraded ({percent} %).",
        ),
        "zh": (
            "有请求被降级，由较小的模型应答。",
            "{received} 个请求中有 {count} 个被降级（{percent}%）。",
        ),
    },
    "batch_fill_low": {
        "en": (
            "Batches of {pool} leave half empty while requests wait: they are too unlike.",
            "{batches} batches were {percent} % full on average.",
        ),
        "zh": (
            "{pool} 有请求在等待，批次却没有装满：请求之间差异太大，不能合批。",
            "{batches} 个批次平均装满 {percent}%。",
        ),
    },
    "healthy": {
        "en": (
            "All is well.",
            "{succeeded} of {ended} requests succeeded; 99 % waited {wait} s or less.",
        ),
        "zh": (
            "运行正常。",
            "{ended} 个请求中有 {succeeded} 个成功；99% 的请求等待不超过 {wait} 秒。",
        ),
    },
    "idle": {
        "en": ("Nothing to do.", "No request came within {seconds} s."),
        "zh": ("当前空闲。", "{seconds} 秒内没有收到请求。"),
    },
    "starting": {
        "en": (
            "The scheduler has just started.",
            "It has been up for {seconds} s and {nodes} nodes have joined.",
        ),
        "zh": ("调度器刚刚启动。", "已运行 {seconds} 秒，{nodes} 个节点已加入。"),
    },
}


def language_of(asked: str) -> Language:
    """The language asked for ("zh", also with a region), else English."""
    return "zh" if asked.split("-")[0].split("_")[0].lower() == "zh" else "en"


def sentence(code: str, language: Language, variables: Mapping[str, str]) -> tuple[str, str]:
    """The sentence and its reason, filled in."""
    text, reason = SENTENCES[code][language]
    return text.format_map(variables), reason.format_map(variables)
