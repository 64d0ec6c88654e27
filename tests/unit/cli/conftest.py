"""A scripted scheduler, and a way to run command lines against it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from batchyard.cli.root import execute
from tests.unit.cli.scripted import Scripted


@dataclass(frozen=True, slots=True)
class Done:
    """How a command line ended."""

    exit_code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Cli:
    """Runs `batchyard ARGUMENTS` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = execute(list(arguments))
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Cli:
    for name in os.environ:
        if name.startswith("BATCHYARD_") or name in ("NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Cli(capsys)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    script = Scripted()
    script.start()
    yield script
    script.stop()


@pytest.fixture
def against(cli: Cli, scripted: Scripted) -> Any:
    """Runs a command line against the scripted scheduler."""

    def run(*arguments: str) -> Done:
        address = scripted.address
        return cli("--address", address, "--admin-address", address, *arguments)

    return run
