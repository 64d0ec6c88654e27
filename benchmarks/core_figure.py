"""Draw what a request costs the core, over queue length and over nodes, from a results file."""

from __future__ import annotations

from typing import Any, Final

from simulator.experiments.drawing import picture
from simulator.pages.charts import Chart, Line, linear, logarithmic

BY: Final = {"waiting": "requests waiting, one node", "nodes": "nodes, none waiting"}


def figure(results: dict[str, Any]) -> str | None:
    """An SVG file's text; None where the core was not measured."""
    details = [line["detail"] for line in results["lines"] if line["key"] == "core.request"]
    if not details or not details[0]:
        return None
    lines = []
    for number, (word, name) in enumerate(BY.items()):
        points = [
            (float(key.split()[1]), cost)
            for key, cost in details[0].items()
            if key.startswith(f"{word} ")
        ]
        x, y = [at for at, _ in points], [cost for _, cost in points]
        lines.append(Line(name=name, colour=number, x=x, y=y, dots=True))
    chart = Chart(
        title="Core alone: CPU of a request in us",
        about="",
        lines=lines,
        x=logarithmic([x for line in lines for x in line.x], least=1.0),
        y=linear([y for line in lines for y in line.y]),
    )
    return picture(chart)
