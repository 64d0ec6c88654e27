"""How does a chart of a report become a picture of a document? An SVG file that stands alone."""

from __future__ import annotations

from html import escape
from typing import Final

from simulator.pages import charts
from simulator.pages.charts import Chart

LINE: Final = 18  # height of a line of text
_STYLE: Final = """
:root { --ink: #1c1f23; --soft: #5b636d; --line: #dfe2e6; --grid: #eceef0; --bad: #b3261e;
  --run0: #0b62c4; --run1: #c2410c; --run2: #0f7b5f; --run3: #7a3ff2; --run4: #8f6400;
  --run5: #b0216b; }
text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.title { fill: var(--ink); font-weight: 600; }
"""


def picture(chart: Chart) -> str:
    """With its title above and its legend, a line of text for each line, below."""
    height = charts.HEIGHT + LINE * (2 + len(chart.lines))
    legend = [
        f'<g transform="translate(0 {number * LINE})"><line x1="0" x2="34" y1="-4" y2="-4" '
        f'{charts.stroke(line.colour)}/><text x="42">{escape(line.name)}</text></g>'
        for number, line in enumerate(chart.lines)
    ]
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {charts.WIDTH} {height}" '
                f'width="{charts.WIDTH}" height="{height}" role="img">'
            ),
            f"<title>{escape(chart.title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{charts.WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text class="title" x="8" y="{LINE - 4}">{escape(chart.title)}</text>',
            f'<g transform="translate(0 {LINE})">',
            *charts.plot(chart),
            "</g>",
            f'<g transform="translate({charts.LEFT} {charts.HEIGHT + 2 * LINE})">',
            *legend,
            "</g>",
            "</svg>",
            "",
        ]
    )
