"""`batchyard simulate|plan|replay` as a user types them, in a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LOAD = ("--workload", "poisson:rate=6,lasts=30s,lengths=500/50")


def batchyard(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batchyard.cli", *arguments],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def test_a_user_compares_records_and_replays(tmp_path: Path) -> None:
    (tmp_path / "calm.yaml").write_text("policies: {order: strict}\n")
    # A file of that name must not become part of the program.
    (tmp_path / "simulator.py").write_text("raise SystemExit('the wrong one')\n")
    nodes = ("--nodes", "2xslots-70B", "--record", "core.rec", "--html", "report.html")
    done = batchyard(tmp_path, "simulate", *LOAD, *nodes, "--policy", "calm.yaml", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar where nobody looks
    assert json.loads(done.stdout)["runs"][0]["name"] == "calm"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    again = batchyard(tmp_path, "replay", "core.rec", "-o", "table")
    assert (again.returncode, again.stdout[:10]) == (0, "identical:"), again.stderr


@pytest.mark.parametrize("command", ["simulate", "plan", "replay"])
def test_help_tells_the_options_and_wrong_ones_end_with_2(tmp_path: Path, command: str) -> None:
    done = batchyard(tmp_path, command, "--help")
    assert done.returncode == 0
    assert f"batchyard {command}" in done.stdout
    assert "--html" in done.stdout
    wrong = batchyard(tmp_path, command, "--no-such-option")
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_without_the_simulator_it_is_said_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: "
        "None if name == 'simulator' else find(name, package)\n"
    )
    done = batchyard(tmp_path, "plan", *LOAD, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "pip install 'batchyard[simulator]'" in done.stderr
