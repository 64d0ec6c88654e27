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


def pinned(name: str) -> list[tuple[str, str, list[str]]]:
    """Package, version and the hashes of its files."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if line[:1] != "#":
            pin, *hashes = line.split("--hash=")
            package, version = pin.partition(";")[0].split("==")
            found.append((package.strip(), version.strip(), [each.strip() for each in hashes]))
    return found


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_every_pin_names_the_files_that_it_allows(name: str) -> None:
    """So pip installs no other file, wherever it got it from."""
    pins = pinned(name)
    assert len(pins) > 30
    for package, _, hashes in pins:
        assert hashes, package
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), package


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_every_dependency_has_an_allowed_pin(name: str) -> None:
    """When this fails: `make lock`."""
    pins = {package: version for package, version, _ in pinned(name)}
    for each in wanted(LOCKS[name]):
        assert normalised(each.name) in pins, each.name
        assert each.specifier.contains(pins[normalised(each.name)]), each
