// The words of the page, by language: `?lang=zh`, `?lang=en`, else the browser's own.
// A key is the English text; what a language lacks stays English.
const ZH = {
  "Diagnosis": "诊断", "Now": "当前", "Queues": "队列", "10 = most urgent": "10 = 最紧急",
  "Nodes": "节点", "Outcomes": "结果", "Events": "事件", "Slowest requests": "最慢的请求",
  "Why": "原因", "Close": "关闭", "Show": "显示", "Dark": "深色", "Light": "浅色",
  "Skip to content": "跳到内容", "connecting": "连接中", "live": "实时",
  "not connected, trying again": "未连接，正在重试",
  "This scheduler asks for a token with the right to read.": "此调度器需要具有读取权限的令牌。",
  "up": "运行", "nodes": "节点", "waiting": "等待", "oldest wait": "最久等待",
  "slots in use": "使用中的槽位", "tokens/s, 10 s": "词元/秒，10 秒", "ended well": "成功率",
  "failovers in it": "故障转移", "no pool yet": "还没有资源池", "slots": "槽位",
  "paused": "已暂停", "job items wait": "个批量条目等待", "nodes ready": "个节点就绪",
  "starting": "启动中", "want": "目标", "oldest": "最久", "nothing waits": "没有等待的请求",
  "waiting by priority in": "各优先级等待", "no node has joined": "还没有节点加入",
  "node": "节点", "state": "状态", "largest batch": "最大批次", "used": "使用率",
  "latency": "延迟", "failed": "失败", "done": "完成", "takes work": "接收", "models": "模型",
  "yes": "是", "outcome": "结果", "since start": "启动以来", "last": "最近",
  "none has finished yet": "还没有请求完成", "not sampled": "未采样", "trace": "追踪",
  "request": "请求", "took": "耗时", "queued": "排队", "end": "结束", "priority": "优先级",
  "model": "模型", "tries": "尝试", "why": "原因", "explain": "解释", "Explain": "解释",
  "Request": "请求", "chosen": "选中", "end in": "预计",
  "healthy": "正常", "suspect": "可疑", "probation": "观察中", "ejected": "已剔除", "lost": "失联",
  "loading": "加载中", "stalled": "无响应", "down": "已停止", "no_model": "无模型",
  "cordoned": "已隔离", "draining": "排空中", "drained": "已排空",
  "received": "收到", "succeeded": "成功", "rejected": "拒绝", "cancelled": "取消", "expired": "过期",
  "degraded": "降级", "failovers": "故障转移", "preemptions": "抢占", "batches": "批次",
  "output tokens": "输出词元", "wasted output tokens": "浪费词元",
};

const asked = new URLSearchParams(window.location.search).get("lang");
export const lang = (asked || navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
export const say = (text) => (lang === "zh" && ZH[text]) || text;

// The texts of the page itself: whole texts of elements that are marked.
export function translate() {
  document.documentElement.lang = lang === "zh" ? "zh-Hans" : "en";
  if (lang === "en") return;
  for (const each of document.querySelectorAll("[data-say]")) each.textContent = say(each.textContent);
}
