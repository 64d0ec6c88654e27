"""docs/configuration.md says what the models say, and every scheduler option has a meaning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "configuration.md"


def test_the_document_is_fresh() -> None:
    """After a change of an option: run scripts/config_docs.py."""
    done = subprocess.run(
        [sys.executable, "scripts/config_docs.py", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_option_of_the_scheduler_has_a_meaning() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition("## agent.yaml")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if row.endswith("|  |")] == []
