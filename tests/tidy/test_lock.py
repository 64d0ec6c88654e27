"""Every dependency has its pin, and the pin is one that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.tidy.source_tree import ROOT

LOCKS = {"requirements.lock": "all", "requirements-dev.lock": "dev"}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(extra: str) -> list[Requirement]:
    """Direct dependencies of an extra, its own extras resolved."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    found, todo, seen = list(map(Requirement, project["dependencies"])), [extra], {extra}
    while todo:
        for each in map(Requirement, extras[todo.pop()]):
            if each.name != "batchyard":
                found.append(each)
                continue
            todo += sorted(each.extras - seen)
            seen |= each.extras
    return found


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_every_dependency_has_an_allowed_pin(name: str) -> None:
    """When this fails: `make lock`."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line[:1] != "#")
    for each in wanted(LOCKS[name]):
        assert normalised(each.name) in pins, each.name
        assert each.specifier.contains(pins[normalised(each.name)]), each
