"""What is in a release? Builds the wheel, and writes its bill of materials (CycloneDX 1.6, JSON).

Components are the pinned versions of requirements.lock, all that `batchyard[all]` installs; the
subject is the wheel itself, with the SHA-256 of its file.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"


def main() -> int:
    """Build, describe, check."""
    wheel = build()
    path = DIST / f"{wheel.stem}.cdx.json"
    describe(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["metadata"]["component"] |= subject(wheel)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{wheel.relative_to(ROOT)}\n{path.relative_to(ROOT)}: {len(document['components'])} "
          "components")  # fmt: skip
    return 0


def build() -> Path:
    """The wheel of this checkout."""
    before = set(DIST.glob("batchyard-*.whl"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--wheel-dir", str(DIST), str(ROOT)]  # fmt: skip
    subprocess.run(command, check=True)
    wheels = set(DIST.glob("batchyard-*.whl"))
    return max(wheels - before or wheels, key=lambda path: path.stat().st_mtime)


def describe(path: Path) -> None:
    """The pinned components, by CycloneDX's own tool."""
    command = [
        sys.executable, "-m", "cyclonedx_py", "requirements", str(ROOT / "requirements.lock"),
        "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application",
        "--spec-version", "1.6", "--output-reproducible", "--output-format", "JSON",
        "--output-file", str(path),
    ]  # fmt: skip
    subprocess.run(command, check=True)


def subject(wheel: Path) -> dict[str, Any]:
    """What the bill is of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {
        "version": project["version"],
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


if __name__ == "__main__":
    sys.exit(main())
