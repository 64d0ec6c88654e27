"""docs/experiments.md is what the kept results say, and charts are pictures that stand alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from simulator.experiments import document
from simulator.experiments.drawing import picture
from simulator.experiments.registry import EXPERIMENTS
from simulator.pages.charts import Chart, Line, linear


def test_the_page_is_made_of_the_kept_results() -> None:
    """If not: python -m simulator.experiments NAME --document."""
    assert document.PAGE.read_text(encoding="utf-8") == document.page(EXPERIMENTS)


def test_a_chart_is_a_picture_with_its_legend() -> None:
    line = Line(name="a & b", colour=0, x=[0.0, 1.0], y=[1.0, 2.0], dots=True)
    chart = Chart(title="x < y", about="", lines=[line], x=linear([1.0]), y=linear([2.0]))
    root = ET.fromstring(picture(chart))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "x < y" in texts
    assert "a & b" in texts
