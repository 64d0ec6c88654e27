"""The benchmarks run, and what they save is what `docs/performance.md` is made from.

Nothing here looks at how fast anything was.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import document, table
from benchmarks.measured import Measured
from benchmarks.measures import tracing
from benchmarks.measures.security import TURNS
from benchmarks.targets import MEASURES

# Differences, and what is at best not seen at all.
MAY_BE_NOUGHT = {
    "security.added",
    "tracing.share",
    "steady.growth",
    *(f"overload.{what}" for what in ("attainment", "refusal", "memory", "recovery")),
}
IN_TURNS = dict.fromkeys(("security.multiplex", "security.echo", "security.added"), TURNS)
IN_TURNS |= dict.fromkeys(
    ("tracing.cpu", "tracing.full", "black_hole.cpu", "black_hole.memory"), tracing.TURNS
)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_quick_run_measures_everything_and_saves_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--name=quick", f"--results={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "quick.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{12}\+?|unknown", results["commit"])
    assert set(results["machine"]) >= {"cpu", "cores", "python", "grpcio", "protobuf", "uvloop"}
    assert results["options"] == {"rounds": 1, "round_s": 0.3, "quick": True}
    lines = {line["key"]: line for line in results["lines"]}
    assert list(lines) == list(MEASURES)
    for line in lines.values():
        assert line["value"] > 0 or line["key"] in MAY_BE_NOUGHT
        turns = IN_TURNS.get(line["key"], 1)
        assert len(line["samples"]) == turns
        assert (line["verdict"] != "") == (line["floor"] is not None)
    for kind in ("multiplex", "unary", "tokens", "deltas"):
        assert lines[f"{kind}.cpu"]["ratio"] > 0, "the limit is measured in the same run"
    for line in results["lines"]:
        assert line["what"] in done.stdout


def test_the_document_shows_a_results_file_as_it_is() -> None:
    text = document.DOCUMENT.read_text(encoding="utf-8")
    shown = document.current(text)
    named = re.search(r"`(benchmarks/results/[^`]+\.json)`", shown)
    assert named is not None
    results = json.loads((ROOT / named[1]).read_text(encoding="utf-8"))
    assert shown == document.section(results, named[1])
    assert not results["options"]["quick"]


def test_a_verdict_is_the_best_target_that_the_median_reaches() -> None:
    assert Measured("start.cold", [0.4, 0.6, 9.0]).verdict == "promise"
    assert Measured("start.cold", [1.6]).verdict == "below floor"
    assert Measured("unary.core_rate", [1_600, 1_400, 1_550]).verdict == "floor"
    assert Measured("unary.core_rate", [4_000]).verdict == "stretch"
    assert Measured("unary.cpu", [1.0]).verdict == ""
    assert Measured("unary.cpu", [300, 100, 200], [50, 100, 200]).ratio == 2


def test_numbers_keep_three_digits_that_matter() -> None:
    shown = [table.number(value) for value in (None, 0.12345, 7.0, 31.96, 123.4, 1_588.2, 104_321)]
    assert shown == ["", "0.123", "7", "32", "123", "1,588", "104,000"]
