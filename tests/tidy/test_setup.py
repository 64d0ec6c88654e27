"""`make setup` says in one line what is missing, and leaves nothing half made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.pip_install import complaint
from tests.tidy.source_tree import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make setup` needs of one, and an environment that has pip and nothing else."""
    (tmp_path / "scripts").mkdir()
    for name in ("Makefile", "scripts/check_python.py", "scripts/pip_install.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").touch()
    locked = f"nothing-of-that-name==1.0 --hash=sha256:{'0' * 64}\n"
    (tmp_path / "requirements-dev.lock").write_text(locked)
    venv.create(tmp_path / ".venv")
    (tmp_path / ".venv/bin/pip").symlink_to("python")  # not asked for another
    return tmp_path


def setup(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run it; the index is a port that nobody listens at."""
    pip = find_spec("pip")
    assert pip is not None
    assert pip.origin is not None
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "MAKE"))
    }
    index = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    found = {"PYTHONPATH": str(Path(pip.origin).parent.parent), "PIP_RETRIES": "1"}
    return subprocess.run(
        ["make", "setup", f"PYTHON={sys.executable}"], cwd=checkout, env=clean | index | found,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_setup_without_an_index_ends_with_one_plain_line_and_no_stamp(checkout: Path) -> None:
    done = setup(checkout)
    assert done.returncode != 0
    told, *rest = done.stderr.splitlines()
    assert told.startswith("make setup: no package index can be reached (Connection refused). ")
    assert [line.split(":")[0] for line in rest] == ["make"], "and make's own"
    assert "nothing-of-that-name" in (checkout / ".venv/setup.log").read_text()
    assert not list((checkout / ".venv").glob(".installed-*"))


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        "ERROR: No matching distribution found for nothing-of-that-name==1.0",
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError()': /x/\n\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
    ],
)
def test_what_is_not_the_networks_fault_is_told_in_pips_words(said: str) -> None:
    assert complaint(said, Path("log")) == ""
