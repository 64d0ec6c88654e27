"""The composition refers to what exists, and its configuration files are valid."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml

from tests.tidy.source_tree import ROOT

DEPLOY = ROOT / "deploy"


def services() -> dict[str, dict[str, Any]]:
    composition = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = composition["services"]
    return found


def test_images_are_targets_of_the_dockerfile() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    targets = re.findall(r"^FROM \S+ AS (\w+)$", dockerfile, re.MULTILINE)
    built = [service["build"]["target"] for service in services().values() if "build" in service]
    assert len(built) == 3
    assert set(built) <= set(targets)


def test_image_is_built_from_every_package_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        top = package.partition("/")[0]
        assert f"COPY {top} {top}\n" in dockerfile
        assert f"!{top}" in kept


def test_mounted_files_exist() -> None:
    mounts = [mount for service in services().values() for mount in service.get("volumes", [])]
    files = [mount.partition(":")[0] for mount in mounts if mount.startswith("./")]
    assert sorted(set(files)) == ["./agent.yaml", "./scheduler.yaml"]
    assert all((DEPLOY / file).is_file() for file in files)


def test_everything_is_published_on_loopback_only() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert {port.rpartition(":")[2] for port in ports} >= {"16686", "4317", "4318", "7611"}
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_role_sends_its_traces_to_jaeger() -> None:
    for service in services().values():
        if "build" in service:
            assert service["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://jaeger:4318"


@pytest.mark.parametrize(
    ("module", "file"), [("scheduler_service", "scheduler.yaml"), ("node_agent", "agent.yaml")]
)
def test_configuration_is_valid(module: str, file: str) -> None:
    check = [sys.executable, "-m", module, "--check-config", str(DEPLOY / file)]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
