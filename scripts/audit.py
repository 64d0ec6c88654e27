"""Has anything that we install a known vulnerability? pip-audit on each of the lock files.

Says plainly when no advisory database can be reached, or when one does not know all packages (a
mirror of an index knows none): then nothing was checked, which is not the same as nothing found.
Exit codes: 0 all checked and nothing found, 1 something found, 3 not checked.

    make audit                                          public databases, one after the other
    make audit AUDIT_FLAGS='--osv-url URL'              a mirror of the OSV database, its /v1/query
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("requirements.lock", "requirements-dev.lock")
SERVICES: Final = ("osv", "pypi")
FOUND, NOT_CHECKED = 1, 3


class NoAnswer(Exception):
    """This database did not judge what is pinned; the message says why."""


@dataclass(slots=True)
class Verdict:
    """What a database knows of the packages of one lock file, as `name version`."""

    clean: set[str] = field(default_factory=set)
    vulnerable: dict[str, list[str]] = field(default_factory=dict)  # to ids and remedies
    unknown: set[str] = field(default_factory=set)

    def add(self, other: Verdict) -> None:
        """Take in what was said of another file."""
        self.clean |= other.clean
        self.vulnerable |= other.vulnerable
        self.unknown |= other.unknown


def main(words: list[str]) -> int:
    """Audit with the first database that knows all packages."""
    parser = argparse.ArgumentParser(prog="scripts/audit.py", description=__doc__)
    parser.add_argument("--osv-url", metavar="URL", help="ask this OSV database, and no other")
    url = parser.parse_args(words).osv_url
    for service in ("osv",) if url else SERVICES:
        verdict = Verdict()
        try:
            for name in LOCKS:
                verdict.add(audit(ROOT / name, service, url))
        except NoAnswer as why:
            print(f"advisory database {service}: {why}", file=sys.stderr)
            continue
        return report(verdict)
    print("NOT CHECKED: no advisory database can be reached from here", file=sys.stderr)
    return NOT_CHECKED


def audit(lock: Path, service: str, url: str | None) -> Verdict:
    """Ask one database about one lock file.

    Raises:
        NoAnswer: it cannot be reached, or does not know all of it.
    """
    command = [
        sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--timeout", "15",
        "--progress-spinner", "off", "--format", "json", "--vulnerability-service", service,
        *(["--osv-url", url] if url else []), "--requirement", str(lock),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        verdict = judge(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        last = next((text for text in reversed(done.stderr.splitlines()) if text.strip()), "silent")
        raise NoAnswer(last.strip()[:200]) from None
    return complete(verdict, lock.name)


def complete(verdict: Verdict, lock: str) -> Verdict:
    """The verdict, if it is one about all packages.

    Raises:
        NoAnswer: the database does not know some.
    """
    known = len(verdict.clean) + len(verdict.vulnerable)
    if verdict.unknown:
        raise NoAnswer(f"knows {known} of {known + len(verdict.unknown)} packages of {lock}")
    return verdict


def judge(document: dict[str, Any]) -> Verdict:
    """Sort what pip-audit says, in its JSON form."""
    verdict = Verdict()
    for each in document["dependencies"]:
        package = f"{each['name']} {each.get('version', '')}".strip()
        if "skip_reason" in each:
            verdict.unknown.add(package)
        elif each["vulns"]:
            verdict.vulnerable[package] = [
                f"{one['id']}: fixed in {', '.join(one.get('fix_versions', [])) or 'no version'}"
                for one in each["vulns"]
            ]
        else:
            verdict.clean.add(package)
    return verdict


def report(verdict: Verdict) -> int:
    """Tell people; the exit code."""
    for package, found in sorted(verdict.vulnerable.items()):
        for text in found:
            print(f"{package}: {text}")
    checked = len(verdict.clean) + len(verdict.vulnerable)
    print(f"{checked} packages checked, {len(verdict.vulnerable)} with known vulnerabilities")
    return FOUND if verdict.vulnerable else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
