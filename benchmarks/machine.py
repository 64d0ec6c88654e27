"""On which machine, with which versions and of which commit was this measured?"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What the numbers depend on; a change elsewhere leaves a commit's results true.
MEASURED = ("scheduler_service", "node_agent", "service_kit", "clients", "benchmarks/*.py")


def describe() -> dict[str, Any]:
    """The machine and the versions, without anything that names it or its user."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "grpcio": _version("grpcio"),
        "protobuf": _version("protobuf"),
        "uvloop": _version("uvloop"),
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """The commit, with "+" where measured files differ from it; "unknown" outside a checkout."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    changed = _git("status", "--porcelain", "--", *MEASURED)
    return head + ("+" if changed else "")


def now() -> dt.datetime:
    """The wall clock, in UTC; read nowhere else in this package."""
    return dt.datetime.now(dt.UTC)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
