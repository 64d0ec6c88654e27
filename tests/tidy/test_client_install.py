"""A client needs the library's three dependencies, and no part of a server."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from tests.tidy.source_tree import ROOT

SERVER = {"scheduler_service", "node_agent", "service_kit", "simulator"}
# Imports every module of the library (the command line is an extra) while all packages but the
# named ones refuse to load, as on a machine that never installed them.
IMPORT_ALL = """
import importlib, pkgutil, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not among a client's dependencies", name=name)
BLOCKED = set(sys.argv[1:])
sys.meta_path.insert(0, Absent())
import batchyard
for module in pkgutil.walk_packages(batchyard.__path__, "batchyard."):
    if not module.name.startswith("batchyard.cli"):
        importlib.import_module(module.name)
"""


def with_dependencies(name: str) -> set[str]:
    """Return a distribution and all that it needs, without its extras, by normal names."""
    found = {name}
    for line in requires(name) or []:
        needed = re.match(r"[\w.-]+", line)
        if needed is not None and "extra ==" not in line and normal(needed.group()) not in found:
            found |= with_dependencies(normal(needed.group()))
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_client_imports_with_its_own_dependencies_only() -> None:
    kept = with_dependencies("batchyard")
    blocked = {
        package
        for package, owners in packages_distributions().items()
        if not kept & {normal(owner) for owner in owners}
    }
    blocked |= SERVER
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *sorted(blocked)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_wheel_holds_library_services_and_types(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {"batchyard"} | SERVER
    assert {"batchyard/py.typed", "batchyard/v1/types_pb2.pyi"} <= names
    assert not [name for name in names if "__pycache__" in name or "test" in name]
