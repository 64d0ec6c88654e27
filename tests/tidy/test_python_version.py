"""`make setup` refuses an interpreter that will not do, and says which one would."""

from __future__ import annotations

import sys
import tomllib

from scripts.check_python import OLDEST, complaint
from tests.tidy.source_tree import ROOT


def test_this_interpreter_will_do() -> None:
    assert complaint(sys.version_info[:3], modules_missing=False) == ""


def test_old_interpreter_is_told_which_one_to_use() -> None:
    text = complaint((3, 10, 12), modules_missing=False)
    assert "3.11 or newer" in text
    assert "is Python 3.10." in text
    assert "make setup PYTHON=" in text


def test_interpreter_without_venv_is_told_what_to_install() -> None:
    assert "python3-venv" in complaint((3, 11, 2), modules_missing=True)


def test_the_oldest_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=" + ".".join(map(str, OLDEST))
