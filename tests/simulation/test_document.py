"""The example of docs/simulation.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"


def test_the_documented_example_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(DOCUMENT), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["aged", "fifo"]
    assert any(line.startswith("objective met") for line in lines)
