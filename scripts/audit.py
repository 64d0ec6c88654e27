"""Has anything that we install a known vulnerability? pip-audit on the lock files.

Says plainly when no advisory database can be reached: then nothing was checked, which is not the
same as nothing found. Exit codes: 0 nothing found, 1 something found, 3 not checked.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("requirements.lock", "requirements-dev.lock")
UNREACHABLE: Final = ("ConnectionError", "connect", "Timeout", "timed out", "resolve", "proxy")
FOUND, NOT_CHECKED = 1, 3


def main(services: tuple[str, ...] = ("osv", "pypi")) -> int:
    """Audit with the first database that answers."""
    for service in services:
        code, text = audit(service)
        if code == 0 or "Found " in text:
            print(text.strip())
            return FOUND if code else 0
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "no answer")
        if not any(word.lower() in text.lower() for word in UNREACHABLE):
            print(text.strip(), file=sys.stderr)
        print(f"advisory database {service}: {last.strip()[:200]}", file=sys.stderr)
    print("NOT CHECKED: no advisory database can be reached from here", file=sys.stderr)
    return NOT_CHECKED


def audit(service: str) -> tuple[int, str]:
    """Exit code and output of one run."""
    locks = [word for name in LOCKS for word in ("--requirement", str(ROOT / name))]
    command = [
        sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--timeout", "15",
        "--progress-spinner", "off", "--vulnerability-service", service, *locks,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
