// Pieces of the page, in its language. What comes from the scheduler goes in as text, never as markup.
import { say } from "./words.js";

export function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") made.className = value;
    else if (name === "click") made.addEventListener("click", value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const two = (big, small, one, other) => `${big} ${one}${small ? ` ${small} ${other}` : ""}`;
  if (s < 3600) return two(Math.floor(s / 60), Math.floor(s % 60), "min", "s");
  return two(Math.floor(s / 3600), Math.floor((s % 3600) / 60), "h", "min");
}

export const count = (value) => Number(value).toLocaleString("en");
export const percent = (value) =>
  value === null || value === undefined ? "–" : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
export const clock = (stamp) => (stamp ? new Date(stamp).toLocaleTimeString("en-GB") : "–");

// columns: [title, cell function, "number" | "long" | "id" | ""]; the first cell names its row.
export function table(caption, columns, rows) {
  const head = columns.map(([title, , kind]) =>
    element("th", { scope: "col", class: kind || "" }, say(title)));
  const body = rows.map((row) => element("tr", {}, ...columns.map(([, cell, kind], index) => {
    const shown = cell(row), about = { class: kind || "" };
    if (!index) about.scope = "row";
    if (kind === "id") about.title = shown; // it may be cut
    return element(index ? "td" : "th", about, shown);
  })));
  return element("table", { "aria-label": caption },
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

export function gauge(used, room, shown = room) {
  const share = room ? Math.min(1, used / room) : 0;
  return element("span", {},
    element("span", { class: "gauge", "aria-hidden": "true" },
      element("span", { style: { width: `${share * 100}%` } })),
    `${used}/${shown}`);
}

const SVG = "http://www.w3.org/2000/svg";
export function sparkline(values) {
  const most = Math.max(1, ...values), step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(19 - 18 * value / most).toFixed(1)}`);
  const svg = document.createElementNS(SVG, "svg"), line = document.createElementNS(SVG, "polyline");
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  line.setAttribute("points", points.join(" "));
  line.setAttribute("class", "spark");
  svg.append(line);
  return svg;
}

// Replace what is in `id`, but leave the reader's place: focus and scrolling stay.
export function fill(id, ...children) {
  const place = document.getElementById(id);
  const focused = document.activeElement?.dataset?.key;
  const [top, left] = [place.scrollTop, place.scrollLeft];
  place.replaceChildren(...children);
  [place.scrollTop, place.scrollLeft] = [top, left];
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}
