"""Which exact files may be installed? Writes requirements.lock and requirements-dev.lock.

uv resolves what pyproject.toml allows, for every platform and every Python that it allows, without
installing; each pin comes with the hashes of its files, so pip takes no other file. Pins that still
fit stay; `--upgrade` takes the newest that fit. The indexes are uv's own setting
(UV_DEFAULT_INDEX). Then: look at the difference, run the tests, commit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = {"requirements.lock": "all", "requirements-dev.lock": "dev"}
PYTHON: Final = "3.11"  # the oldest that pyproject.toml allows
HEAD: Final = (
    "# Written by `make lock`; of `batchyard[{extra}]`. "
    "Use: pip install --require-hashes -r {name}\n"
)


def main(options: list[str]) -> int:
    """Write both. `options`: further ones for uv."""
    for name, extra in LOCKS.items():
        pins = resolve(ROOT / name, extra, options)
        (ROOT / name).write_text(HEAD.format(extra=extra, name=name) + pins, encoding="utf-8")
        print(f"{name}: {pins.count('==')} packages")
    return 0


def resolve(lock: Path, extra: str, options: list[str]) -> str:
    """The pins of an extra, with hashes; those that are in the file stay where they fit."""
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal",
        "--python-version", PYTHON, "--generate-hashes", "--no-header", "--no-annotate",
        "--extra", extra, "--output-file", str(lock), *options, str(ROOT / "pyproject.toml"),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return lock.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
