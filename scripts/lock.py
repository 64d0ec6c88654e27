"""Which exact versions are installed? Writes requirements.lock and requirements-dev.lock.

pip resolves what pyproject.toml allows, without installing; the newest that fit are pinned. Files
are constraints: `pip install -c requirements.lock 'batchyard[all]'`. Update: `make lock`, look at
the difference, run the tests, commit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = {"requirements.lock": "all", "requirements-dev.lock": "dev"}
HEAD: Final = "# Written by `make lock`; of `batchyard[{extra}]`. Use: pip install -c {name} ...\n"


def main() -> int:
    """Write both."""
    for name, extra in LOCKS.items():
        pins = resolve(extra)
        lines = "".join(f"{package}=={version}\n" for package, version in sorted(pins.items()))
        (ROOT / name).write_text(HEAD.format(extra=extra, name=name) + lines, encoding="utf-8")
        print(f"{name}: {len(pins)} packages")
    return 0


def resolve(extra: str) -> dict[str, str]:
    """Versions by normalised name, without this project."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--dry-run", "--ignore-installed", "--report", "-", f"{ROOT}[{extra}]",
    ]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = {
        normalised(item["metadata"]["name"]): str(item["metadata"]["version"])
        for item in report["install"]
    }
    del found["batchyard"]
    return found


def normalised(name: str) -> str:
    """As indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
