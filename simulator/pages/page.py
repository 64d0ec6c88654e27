"""The frame of a page: style for light, dark and paper, and the reading line of the plots.

Colours come as custom properties, so that a plot drawn once fits both schemes. Runs are told apart
by colour and by dash. No font, script or picture comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

COLOURS: Final = 6  # distinct ones; further runs begin anew

_STYLE: Final = """
:root { color-scheme: light dark;
  --ground: #fbfbfa; --card: #ffffff; --ink: #1c1f23; --soft: #5b636d; --line: #dfe2e6;
  --grid: #eceef0; --good: #0f7b5f; --bad: #b3261e;
  --run0: #0b62c4; --run1: #c2410c; --run2: #0f7b5f; --run3: #7a3ff2; --run4: #8f6400;
  --run5: #b0216b; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #121417; --card: #1a1d21; --ink: #e8eaed; --soft: #a3abb5; --line: #33383f;
  --grid: #272b31; --good: #4fd1a5; --bad: #ff8a80;
  --run0: #6cb2ff; --run1: #ff9e64; --run2: #4fd1a5; --run3: #c4a1ff; --run4: #e3c04f;
  --run5: #ff8ab8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 16px 48px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 6px; }
h2 { font-size: 17px; margin: 34px 0 10px; }
h3 { font-size: 14px; margin: 0; }
p { margin: 4px 0; }
.soft { color: var(--soft); }
.facts { color: var(--soft); margin-bottom: 18px; }
.facts b { color: var(--ink); font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 12px 0; }
.legend span { display: inline-flex; align-items: center; gap: 8px; overflow-wrap: anywhere; }
.legend svg { flex: none; }
.tiles, .plots { display: grid; gap: 14px; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(min(100%, 230px), 1fr)); }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; min-width: 0; }
.tile { border-top: 4px solid var(--run); }
.tile .big { font-size: 28px; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile h3 { overflow-wrap: anywhere; }
figure { margin: 0; } figcaption { color: var(--soft); font-size: 13px; margin-top: 2px; }
figure svg { display: block; width: 100%; height: auto; margin-top: 8px; }
figure svg text { fill: var(--soft); font-size: 13px; }
.read { min-height: 20px; font-size: 13px; color: var(--soft); font-variant-numeric: tabular-nums; }
.read i { font-style: normal; margin-right: 14px; white-space: nowrap; }
.read b { font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px 5px 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 600; }
tr.head td { padding-top: 12px; font-weight: 600; }
tr.best td { color: var(--good); font-weight: 600; }
tr.indent td:first-child { padding-left: 16px; color: var(--soft); }
code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media (max-width: 560px) { figure svg text { font-size: 18px; } }
@media print { .card { break-inside: avoid; } }
"""

# A vertical line follows the pointer, and a line below the plot tells the values there.
_SCRIPT: Final = """
document.querySelectorAll('svg[data-plot]').forEach(function (svg) {
  var plot = JSON.parse(svg.dataset.plot), rule = svg.querySelector('.rule');
  var out = svg.parentNode.querySelector('.read');
  function show(event) {
    var box = svg.getBoundingClientRect();
    var x = (event.clientX - box.left) / box.width * plot.width;
    var near = 0, best = Infinity;
    plot.at.forEach(function (at, i) {
      var d = Math.abs(at - x); if (d < best) { best = d; near = i; } });
    rule.setAttribute('x1', plot.at[near]); rule.setAttribute('x2', plot.at[near]);
    rule.style.visibility = 'visible';
    out.textContent = '';
    var first = document.createElement('i'); first.textContent = plot.labels[near];
    out.appendChild(first);
    plot.series.forEach(function (s) {
      if (s.values[near] === undefined) return;
      var item = document.createElement('i'), value = document.createElement('b');
      item.style.color = 'var(--run' + s.colour + ')';
      value.textContent = s.values[near];
      item.append(s.name + ' ', value); out.appendChild(item); });
  }
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', function () {
    rule.style.visibility = 'hidden'; out.textContent = ''; });
});
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + f"\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """ "name value" in a row; empty values are left out."""
    told = [f"{escape(name)} <b>{escape(value)}</b>" for name, value in pairs if value]
    return f'<p class="facts">{" · ".join(told)}</p>'


def table(rows: Sequence[Sequence[str]], *, best: Sequence[int] = ()) -> str:
    """The first row is the head; names that begin with spaces belong to the row above."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = []
    for number, row in enumerate(rows[1:]):
        kind = "best" if number in best else _kind_of(row[0])
        cells = "".join(f"<td>{escape(cell.strip())}</td>" for cell in row)
        body.append(f'<tr class="{kind}">{cells}</tr>')
    return (
        f'<div class="card scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _kind_of(name: str) -> str:
    if name.startswith(" "):
        return "indent"
    return "head" if ":" in name else ""
