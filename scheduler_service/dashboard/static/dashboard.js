// The dashboard: one stream of reports, drawn as they come. Read-only.
import { clock, count, element, fill, gauge, percent, sparkline, table, time } from "./parts.js";
import { lang, say, translate } from "./words.js";

const HISTORY = 120; // samples, about one a second
const history = { waiting: [], running: [], tokens: [] };
const STATES = { healthy: "good", suspect: "warn", probation: "warn", starting: "soft", loading: "soft" };
const MARKS = { critical: ["✗", "bad"], warning: ["!", "warn"], info: ["✓", "good"] };
const OUTCOMES = ["received", "succeeded", "failed", "rejected", "cancelled", "expired", "degraded",
  "failovers", "preemptions", "batches", "output_tokens", "wasted_output_tokens"];
const asks = new URLSearchParams(window.location.search);
asks.set("lang", lang);
const query = `?${asks}`;
let before = null; // [ms, tokens] of the last report

function headers() {
  const token = sessionStorage.getItem("batchyard-token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function status(words, kind) {
  const link = document.getElementById("link");
  if (link.textContent !== words) link.textContent = words;
  link.className = `pill ${kind}`;
  document.body.classList.toggle("stale", kind !== "good");
}

async function follow() {
  const answer = await fetch(`api/watch${query}`, { headers: headers(), cache: "no-store" });
  document.getElementById("login").hidden = ![401, 403].includes(answer.status);
  if (!answer.ok) throw new Error(`the scheduler says ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    if (parts.length) draw(JSON.parse(parts.at(-1).slice("data: ".length)));
  }
}

async function run() {
  for (let wait = 500; ; wait = Math.min(3000, wait * 2)) {
    const since = Date.now();
    try { await follow(); } catch { /* told below; tried again */ }
    if (Date.now() - since > 2000) wait = 500;
    status(say("not connected, trying again"), "warn");
    before = null;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function draw(report) {
  status(say("live"), "good");
  const ready = report.nodes.filter((node) => node.state === "healthy").length;
  document.getElementById("cluster").textContent =
    `${report.scheduler_version} · ${say("up")} ${time(report.uptime_ms)} · ${say("nodes")} ${ready}/${report.nodes.length}`
    + ` · ${clock(report.generate_time)}`;
  fill("diagnosis", ...report.diagnosis.map(finding));
  tiles(report);
  fill("queues", ...pools(report));
  fill("nodes", nodes(report));
  fill("outcomes", outcomes(report));
  fill("events", ...report.logs.toReversed().map(logLine));
  fill("slowest", slowest(report));
}

function finding(row) {
  const [mark, kind] = MARKS[row.severity] ?? ["·", "soft"];
  return element("li", {}, element("strong", { class: kind }, `${mark} `), row.text,
    row.reason ? element("span", { class: "soft" }, ` ${row.reason}`) : null);
}

function tiles(report) {
  const there = report.nodes.filter((node) => node.health !== "lost"); // others are only still shown
  const running = there.reduce((sum, node) => sum + node.running, 0);
  const slots = there.reduce((sum, node) => sum + node.slots, 0);
  const now = Date.parse(report.generate_time), tokens = report.totals.output_tokens;
  const per_s = before && now > before[0] && tokens >= before[1]
    ? (tokens - before[1]) / ((now - before[0]) / 1000) : 0;
  before = [now, tokens];
  for (const [name, value] of [["waiting", report.queue_size], ["running", running], ["tokens", per_s]]) {
    history[name].push(value);
    if (history[name].length > HISTORY) history[name].shift();
  }
  const recent = history.tokens.slice(-10);
  const window = report.window_totals;
  const ended = window.succeeded + window.failed + window.expired + window.rejected;
  const tile = (name, value, ...more) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, ...more));
  fill("tiles",
    tile(say("waiting"), count(report.queue_size), sparkline(history.waiting)),
    tile(say("oldest wait"), time(report.oldest_wait_ms)),
    tile(say("slots in use"), `${count(running)}/${count(slots)}`, sparkline(history.running)),
    tile(say("tokens/s, 10 s"), count(Math.round(recent.reduce((a, b) => a + b, 0) / recent.length)),
      sparkline(history.tokens)),
    tile(`${say("ended well")}, ${time(report.window_s * 1000)}`, ended ? percent(window.succeeded / ended) : "–"),
    tile(say("failovers in it"), count(window.failovers)));
}

function pools(report) {
  if (!report.pools.length) return [element("p", { class: "soft" }, say("no pool yet"))];
  return report.pools.map((pool) => {
    const rows = report.queues.filter((row) => row.pool === pool.pool);
    const open = rows.filter((row) => row.request_class !== "job");
    const jobs = rows.filter((row) => row.request_class === "job").reduce((n, row) => n + row.depth, 0);
    const most = Math.max(1, ...open.map((row) => row.depth));
    const waits = open.filter((row) => row.depth);
    const facts = [`${pool.running}/${pool.slots} ${say("slots")}`];
    if (pool.paused) facts.push(say("paused"));
    if (jobs) facts.push(`${count(jobs)} ${say("job items wait")}`);
    if (pool.scale) facts.push(`${pool.scale.ready} ${say("nodes ready")}, ${pool.scale.starting} ${say("starting")}, ${say("want")} ${pool.scale.desired}`);
    facts.push(waits.length ? waits.map((row) => `p${row.priority}: ${row.depth}, ${say("oldest")} ${time(row.oldest_wait_ms)}`).join(" · ") : say("nothing waits"));
    const bands = Array.from({ length: 10 }, (_, i) => 10 - i).map((priority) => {
      const depth = open.find((row) => row.priority === priority)?.depth ?? 0;
      return element("li", { class: "band" },
        element("span", { class: "name" }, `p${priority}`),
        element("span", { class: "well", "aria-hidden": "true" },
          element("span", { class: "fill", style: { height: `${depth / most * 100}%` } })),
        element("span", {}, count(depth)));
    });
    return element("div", { class: "pool" },
      element("div", { class: "pool-head" }, element("h3", {}, pool.pool),
        element("span", { class: "soft" }, facts.join(" · "))),
      element("ul", { class: "plain bands", "aria-label": `${say("waiting by priority in")} ${pool.pool}` }, ...bands));
  });
}

function nodes(report) {
  if (!report.nodes.length) return element("p", { class: "soft" }, say("no node has joined"));
  return table(say("Nodes"), [
    ["node", (row) => row.node_id],
    ["state", (row) => element("span", { class: STATES[row.state] ?? "bad" }, say(row.state))],
    ["slots", (row) => gauge(row.running, row.slots, row.slots_assumed ? `~${row.slots}` : row.slots)],
    ["largest batch", (row) => count(row.max_batch_size), "number"],
    ["used", (row) => percent(row.utilization), "number"],
    ["latency", (row) => time(row.avg_latency_ms), "number"],
    ["failed", (row) => percent(row.failure_rate), "number"],
    ["done", (row) => count(row.total_finished), "number"],
    ["takes work", (row) => (row.can_accept ? say("yes") : row.cannot_accept_reason)],
    ["models", (row) => row.models.join(", "), "long"],
  ], report.nodes);
}

function outcomes(report) {
  const rows = OUTCOMES.filter((key) => report.totals[key] || ["received", "succeeded"].includes(key));
  return table(say("Outcomes"), [
    ["outcome", (key) => say(key.replaceAll("_", " "))],
    ["since start", (key) => count(report.totals[key]), "number"],
    [`${say("last")} ${time(report.window_s * 1000)}`, (key) => count(report.window_totals[key]), "number"],
  ], rows);
}

function logLine(log) {
  return element("li", {}, element("time", {}, clock(log.time)), log.message || log.event);
}

function slowest(report) {
  if (!report.slowest.length) return element("p", { class: "soft" }, say("none has finished yet"));
  const trace = (row) => {
    if (!row.trace_id) return element("span", { class: "soft" }, say("not sampled"));
    if (!report.jaeger_url) return row.trace_id;
    const at = `${report.jaeger_url}/trace/${encodeURIComponent(row.trace_id)}`;
    return element("a", { href: at, target: "_blank", rel: "noopener noreferrer", "data-key": `t${row.trace_id}` }, say("trace"));
  };
  return table(say("Slowest requests"), [
    ["request", (row) => row.request_id, "id"],
    ["why", (row) => element("button", { type: "button", "data-key": `w${row.tenant}/${row.request_id}`,
      "aria-label": `${say("Explain")} ${row.request_id}`, click: () => explain(row) }, say("explain"))],
    ["took", (row) => time(row.age_ms), "number"],
    ["queued", (row) => time(row.queue_duration_ms), "number"],
    ["end", (row) => row.finish_reason ?? row.state],
    ["priority", (row) => row.priority, "number"],
    ["model", (row) => row.model, "long"],
    ["node", (row) => row.node_id],
    ["tries", (row) => row.attempts, "number"],
    ["trace", trace],
  ], report.slowest);
}

async function explain(row) {
  const asked = new URLSearchParams(query);
  asked.set("tenant", row.tenant);
  const answer = await fetch(`api/explain/${encodeURIComponent(row.request_id)}?${asked}`, { headers: headers() });
  const found = await answer.json();
  document.getElementById("why-title").textContent = `${say("Request")} ${row.request_id}`;
  if (!answer.ok) fill("why-text", element("p", {}, found.error));
  else {
    const steps = found.decisions.map((step) => element("li", {},
      element("time", { class: "soft" }, `${clock(step.decide_time)} `),
      element("strong", {}, step.kind.replaceAll("_", " ")), step.outcome === step.kind ? "" : ` ${step.outcome}`,
      step.reason ? `: ${step.reason}` : "",
      step.candidates.length > 1 ? element("span", { class: "soft" }, ` (${step.candidates.map(candidate).join("; ")})`) : null));
    fill("why-text", found.wait ? element("p", {}, `${found.wait.text} ${found.wait.ahead_reason ?? ""}`) : "", element("ol", {}, ...steps));
  }
  document.getElementById("why").showModal();
}

function candidate(each) {
  const says = each.filtered_by || (each.score === null ? "" : `${say("end in")} ${time(each.score * 1000)}`);
  return `${each.node_id}/${each.engine_id}${each.chosen ? ` ${say("chosen")}` : ""}${says ? `, ${says}` : ""}`;
}

function theme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = say(dark() ? "Light" : "Dark"); };
  const kept = localStorage.getItem("batchyard-theme");
  if (kept) root.dataset.theme = kept;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("batchyard-theme", root.dataset.theme);
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("batchyard-token", document.getElementById("token").value.trim());
});
translate();
theme();
run();
